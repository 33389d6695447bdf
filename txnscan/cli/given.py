"""The settings of a cluster, and dataclasses, as options of a command.

Options that belong together are one frozen dataclass. Its fields are declared as a command's parameters are:
`Annotated[type, typer.Option(...)] = default`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import wraps
from typing import Annotated, Any

import typer

from txnscan.config import Location, ScanConfig
from txnscan.config.settings import TABLES, Kind, Setting


class Given:
    """The settings that a command got, from its options, from variables or from a file."""

    def __init__(self, values: Mapping[Setting, Any]) -> None:
        self._values = {one.option: (one, value) for one, value in values.items() if value not in (None, [])}

    def settings(self) -> Iterator[Setting]:
        """Those that have a value."""
        for setting, _ in self._values.values():
            yield setting

    def text(self, setting: Setting) -> str | None:
        """The value of a setting that is one text, or None."""
        _, value = self._values.get(setting.option, (setting, None))
        return None if value is None else str(value)

    def location(self) -> Location | None:
        """Of the tables. Raises ConfigError."""
        text = self.text(TABLES)
        return None if text is None else Location.of(text)

    def parsed(self, setting: Setting) -> Any:
        """The value as ScanConfig has it, or None. Raises ConfigError."""
        _, value = self._values.get(setting.option, (setting, None))
        return None if value is None else setting.parsed(value, setting.option)

    def config(self, **others: Any) -> ScanConfig:
        """The settings as a config, which has to have bootstrap servers. others: fields that the command has in another
        way. Raises ConfigError.
        """
        given = {one.field: one.parsed(value, one.option) for one, value in self._values.values()}
        return ScanConfig(**(given | others))


def takes(*settings: Setting) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command the options of these settings, in the place of its parameter `given`, and the options that a
    dataclass has as fields, in the place of a parameter of that type.
    """

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True)
        places = {one.name: _expanded(one, settings) for one in own.parameters.values()}

        @wraps(command)
        def called(**values: Any) -> None:
            command(
                **{
                    name: value_of(**{option.name: values[option.name] for option in options})
                    for name, (options, value_of) in places.items()
                }
            )

        parameters = [option for options, _ in places.values() for option in options]
        called.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        return called

    return with_options


def _expanded(
    parameter: inspect.Parameter, settings: Sequence[Setting]
) -> tuple[list[inspect.Parameter], Callable[..., Any]]:
    """The options in the place of a command's parameter, and the function that makes its value from theirs."""
    if parameter.name == "given":
        given = {_name(one): one for one in settings}
        return [*map(_parameter, settings)], lambda **values: Given({given[name]: values[name] for name in values})
    group = parameter.annotation
    if isinstance(group, type) and is_dataclass(group):
        return [*map(_by_name, inspect.signature(group, eval_str=True).parameters.values())], group
    return [_by_name(parameter)], lambda **values: values[parameter.name]


def _by_name(parameter: inspect.Parameter) -> inspect.Parameter:
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _name(setting: Setting) -> str:
    return setting.key.replace("-", "_")


def _parameter(setting: Setting) -> inspect.Parameter:
    """As typer takes it."""
    type_: Any = list[str] if setting.is_several else int if setting.kind is Kind.WHOLE_NUMBER else str
    shown = setting.default is not None
    option = typer.Option(setting.option, metavar=setting.metavar, help=setting.help, show_default=shown)
    return inspect.Parameter(
        _name(setting),
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if setting.is_required else setting.default,
        annotation=Annotated[type_ if setting.is_required else type_ | None, option],
    )
