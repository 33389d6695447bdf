"""The settings of a cluster as options of a command."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Annotated, Any

import typer

from txnscan.config import ScanConfig
from txnscan.config.settings import Kind, Setting


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
    """Gives a command the options of these settings, in the place of its parameter `given`."""

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for one in own.parameters.values():
            parameters += map(_parameter, settings) if one.name == "given" else [one.replace(kind=one.KEYWORD_ONLY)]

        @wraps(command)
        def called(**values: Any) -> None:
            command(given=Given({one: values.pop(_name(one)) for one in settings}), **values)

        called.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        return called

    return with_options


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
