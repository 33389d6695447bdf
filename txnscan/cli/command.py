"""A command whose shared options have values from elsewhere if they are not given: from a variable of the environment,
then from a cluster in a file of named clusters (`--cluster`).

- `config/settings.py` declares the settings of a cluster. VARIABLES has their options, and those of every cluster.
- The file has the form of the file of `sweep --config`. TXNSCAN_CONFIG names it.
- An error about such a value names the variable, or the file and the cluster (`where_from`).
- An option on the command line may replace others: with `--config` the options of clusters stand in that file alone.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from typer.core import TyperOption
from typer.exceptions import TyperException

from txnscan.config import ConfigError, ScanConfig, printable, utf8_text
from txnscan.config.settings import BOOTSTRAP_SERVER, SETTINGS, TABLES, TOPIC
from txnscan.report.help import PlainCommand

CLUSTER_VARIABLE = "TXNSCAN_CLUSTER"
# Each shared option with its variable: of one cluster, and of every cluster.
VARIABLES: Mapping[str, str] = {
    **{one.option: one.variable for one in SETTINGS.values()},
    "--engine": "TXNSCAN_ENGINE",
    "--master": "TXNSCAN_MASTER",
    "--format": "TXNSCAN_FORMAT",
    "--fail-on": "TXNSCAN_FAIL_ON",
}
# What an option or an argument on the command line replaces: these options count only if they are given, too.
_REPLACES: Mapping[str, Collection[str]] = {
    "--config": {one.option for one in SETTINGS.values() if one is not TABLES},
    "--before-stop": ("--tables", "--master"),
    "--max-transaction-timeout": ("--late-after",),
    "--partitions": ("--bootstrap-server",),
    "paths": ("--bootstrap-server", "--timeout"),
}
# The metavars of options whose values are names, or patterns of names: they go to brokers, or to tables.
NAMES = frozenset({"GROUP", "ID", "NAME", "NAME=REGEX", "REGEX", "TOPIC", "TOPIC-PARTITION"})
_FILE_SAYS, _NAMED = "txnscan.of_cluster", "txnscan.cluster"


class OneCommand(PlainCommand):
    """A command of txnscan."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        shared = [one for one in self.params if _setting(one) is not None]
        for one in shared:
            one.envvar = VARIABLES[_setting(one) or ""]
        if {BOOTSTRAP_SERVER.option, TABLES.option} & {_setting(one) for one in shared}:
            self.params.append(_cluster_option())

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the command line. What it replaces counts only if it is given, too."""
        if any(one == "--config" or one.startswith("--config=") for one in args):
            ctx.meta[_FILE_SAYS] = None
        rest: list[str] = super().parse_args(ctx, args)
        given = [name for one in self.params if _source(ctx, one.name) == "COMMANDLINE" for name in one.opts]
        replaced = {setting for name in given for setting in _REPLACES.get(name, ())}
        for one in self.params:
            if _setting(one) in replaced and _source(ctx, one.name) in ("ENVIRONMENT", "DEFAULT_MAP"):
                # The default of each of these; click's would again be that of the file.
                ctx.params[one.name] = None
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Runs the command. Its errors may ask for its options."""
        global _running
        before, _running = _running, ctx
        try:
            ctx.params.update(_names_in_utf8(ctx))
            return super().invoke(ctx)
        finally:
            _running = before


def _names_in_utf8(ctx: Any) -> dict[str, Any]:
    """The names among the values of the options, as UTF-8 text."""
    named = [one for one in ctx.command.params if one.metavar in NAMES and one.name in ctx.params]
    try:
        return {one.name: _in_utf8(where_from(one.opts[0]) or one.opts[0], ctx.params[one.name]) for one in named}
    except ConfigError as error:
        raise _Usage(error) from None


def _in_utf8(option: str, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_in_utf8(option, one) for one in value]
    # An id may be a number.
    return utf8_text(option, value) if isinstance(value, str) else value


# The context of the running command.
_running: Any = None


def _cluster_option() -> TyperOption:
    return TyperOption(
        param_decls=["cluster", "--cluster"],
        metavar="NAME",
        help="Cluster of ~/.config/txnscan/config.toml, or of the file in TXNSCAN_CONFIG. Its options count where "
        "none are given.",
        envvar=CLUSTER_VARIABLE,
        expose_value=False,
        is_eager=True,
        callback=_use_cluster,
        default=None,
    )


def _use_cluster(ctx: Any, _: Any, name: str | None) -> None:
    """Lets the options of this cluster count where they are not given."""
    if name is None or ctx.resilient_parsing:
        return
    if _FILE_SAYS in ctx.meta:
        if _source(ctx, "cluster") == "ENVIRONMENT":
            return
        raise _Usage(ConfigError("--cluster", "names a cluster of another file; give either --config or --cluster"))
    from txnscan.watch.clusters import config_path, named_cluster

    path = config_path(os.environ)
    try:
        found = named_cluster(name, path)
    except ConfigError as error:
        by_variable = error.named == "--cluster" and _source(ctx, "cluster") == "ENVIRONMENT"
        raise _Usage(ConfigError(CLUSTER_VARIABLE, error.why) if by_variable else error) from None
    values = dict(options_of(found))
    ctx.meta[_NAMED] = name
    ctx.meta[_FILE_SAYS] = {option: in_file(path, name, option) for option in values}
    settings = ((one, _setting(one)) for one in ctx.command.params)
    ctx.default_map = {one.name: _of_one(one, values[option]) for one, option in settings if option in values}


def _of_one(parameter: Any, value: Any) -> Any:
    """The value for an option. Some commands take only one of several values; then several are none."""
    if not isinstance(value, list) or parameter.multiple:
        return value
    return value[0] if len(value) == 1 else None


class _Usage(TyperException):
    """An error while the command line is parsed, for `report.help.OneGroup`."""

    def __init__(self, error: ConfigError) -> None:
        super().__init__(str(error))


def _setting(parameter: Any) -> str | None:
    """The setting that an option of a command is, if it is one."""
    found = next((option for option in getattr(parameter, "opts", ()) if option in VARIABLES), None)
    # Of some commands --topic is a name.
    return None if found == TOPIC.option and parameter.metavar != TOPIC.metavar else found


def _source(ctx: Any, name: str | None) -> str | None:
    """Where the value of an option is from: COMMANDLINE, ENVIRONMENT, DEFAULT_MAP or DEFAULT."""
    source = ctx.get_parameter_source(name)
    return None if source is None else str(source.name)


def where_from(option: str) -> str | None:
    """The variable, or the file and the cluster, from which this option of the running command has its value. None for
    a value of the command line, and for a default.
    """
    if _running is None:
        return None
    parameter = next((one for one in _running.command.params if option in one.opts), None)
    source = _source(_running, parameter.name) if parameter is not None else None
    if source == "ENVIRONMENT":
        return str(parameter.envvar) if parameter is not None else None
    if source == "DEFAULT_MAP":
        return (_running.meta.get(_FILE_SAYS) or {}).get(option)
    return None


def cluster_name(config: ScanConfig) -> str:
    """The name of the cluster of the running command: as --cluster says, else its bootstrap servers."""
    name: str | None = _running.meta.get(_NAMED) if _running is not None else None
    return config.bootstrap_servers if name is None else name


def options_of(config: ScanConfig) -> Iterator[tuple[str, Any]]:
    """The options of a cluster that are not the defaults, as a command line has them."""
    for setting in SETTINGS.values():
        value = setting.written(config)
        if value is not None:
            yield setting.option, value


def in_file(path: Path, name: str, option: str) -> str:
    """The place of a cluster's option in the file, for messages."""
    return f"{printable(str(path))}: clusters.{printable(name)}.{option.removeprefix('--')}"


def shown_value(value: Any) -> str:
    """The value of an option, for people."""
    return ", ".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)
