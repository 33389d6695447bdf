"""Help and usage errors of the command line: whole sentences, no names of types, one line for an error."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from txnscan.config import printable
from txnscan.errors import ExitStatus

HELP_OPTIONS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
# The commands as the help shows them: by task, and in this order.
COMMAND_GROUPS: Mapping[str, tuple[str, ...]] = {
    "Find": ("find-hanging", "sweep", "watch", "gate"),
    "Explain": (*("explain", "list", "describe", "describe-producers", "coordinator", "transaction-log", "mcp"),),
    "Resolve": ("plan", "apply", "abort", "force-terminate"),
    "Tables": ("show", "history", "report", "views", "maintain"),
    "Offline": ("segments",),
    "Setup": ("check", "config", "capacity", "prepare", "demo"),
}
# The commands that change a cluster.
CHANGE_A_CLUSTER = ("apply", "abort", "force-terminate")
_MARK = "*"


def examples(*lines: str) -> str:
    """The end of a help text. Lines stay as they are."""
    # Text after a \\b is not wrapped.
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


# Kafka's tool takes these before the command, and KIP-664 writes its commands as options, and --broker for --broker-id.
_BEFORE_THE_COMMAND = ("--bootstrap-server", "--command-config")
_OF_KIP_664 = ("list", "find-hanging", "describe", "describe-producers", "abort")


def as_txnscan_writes(arguments: Sequence[str]) -> list[str]:
    """A command line of kafka-transactions.sh, as its documentation or KIP-664 writes it, as txnscan takes it; any
    other command line unchanged. Pure.
    """
    at = 0
    before: list[str] = []
    while at < len(arguments):
        if arguments[at] in _BEFORE_THE_COMMAND and at + 1 < len(arguments):
            before += arguments[at : at + 2]
            at += 2
        elif arguments[at].startswith(tuple(f"{option}=" for option in _BEFORE_THE_COMMAND)):
            before.append(arguments[at])
            at += 1
        else:
            break
    if at == len(arguments):
        return list(arguments)
    after = ["--broker-id" if word == "--broker" else word for word in arguments[at + 1 :]]
    command = arguments[at]
    if command.startswith("--") and command[2:] in _OF_KIP_664:
        command = command[2:]
    return [command, *before, *after]


class PlainCommand(TyperCommand):
    """A command whose arguments are shown by their names alone."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`PLAN`, not `{PLAN}`; and `PATH...` where there may be several, which the library does not always say."""
        pieces = [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]
        if any(getattr(one, "nargs", 1) == -1 for one in self.params) and not pieces[-1].endswith("..."):
            pieces[-1] += "..."
        return pieces

    def get_help(self, ctx: Any) -> str:
        """Without the types of arguments, which are Python's."""
        return re.sub(r"^(  [A-Z]+) <[\w\[\]]+>", r"\1", super().get_help(ctx), flags=re.M)


class OneGroup(TyperGroup):
    """The commands, each with its whole summary; and errors of the command line in one line."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands, in the order of their groups."""
        grouped = [name for names in COMMAND_GROUPS.values() for name in names if name in self.commands]
        return [*grouped, *(name for name in super().list_commands(ctx) if name not in grouped)]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The first sentence of each command's help, whole, by task. A mark shows what changes a cluster."""
        for title, names in COMMAND_GROUPS.items():
            marked = not {*names}.isdisjoint(CHANGE_A_CLUSTER)
            with formatter.section(f"{title} ({_MARK} changes the cluster)" if marked else title):
                formatter.write_dl(
                    [
                        (f"{name} {_MARK}" if name in CHANGE_A_CLUSTER else name, _first_sentence(one.help or ""))
                        for name in names
                        if (one := self.get_command(ctx, name)) is not None
                    ]
                )

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, standalone_mode: bool = True, **extra: Any
    ) -> Any:
        """Runs a command; see click's `Command.main`."""
        try:
            written = as_txnscan_writes(sys.argv[1:] if args is None else args)
            status = super().main(written, standalone_mode=False, **extra)
        except TyperException as error:
            context = getattr(error, "ctx", None)
            if not standalone_mode:
                raise
            said = _as_txnscan_says(error.format_message().rstrip("."))
            if "\n" in said:
                # The help itself, for a command without any arguments.
                typer.echo(said, err=True)
                sys.exit(ExitStatus.USAGE)
            help_of = f"; see {context.command_path} --help" if context is not None else ""
            if said.endswith("?"):
                help_of = help_of.replace("; see", " See")
            typer.echo(f"txnscan: {printable(_in_lower_case(said))}{help_of}", err=True)
            sys.exit(ExitStatus.USAGE)
        if standalone_mode:
            sys.exit(status or 0)
        return status


def _as_txnscan_says(said: str) -> str:
    """The words of the library without the names of its types, and its suggestions as txnscan writes them."""
    said = re.sub(r"is not a valid (?:int|integer)(?: range)?\b", "is not a whole number", said)
    said = re.sub(r"is not a valid float(?: range)?\b", "is not a number", said)
    said = re.sub(r" \(Possible options: (.*)\)$", r"; did you mean \1?", said)
    return said.replace(". Did you mean", "; did you mean")


def _in_lower_case(said: str) -> str:
    """The sentence as the end of a line. A name in capitals, such as one of a variable, keeps them."""
    return said if said[:2].isupper() else said[:1].lower() + said[1:]


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].rstrip(".") + "."
