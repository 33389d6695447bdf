"""The manual page of txnscan, `man txnscan`: the help of all commands, and the exit statuses of docs/options.md.

`python -m tests.reference` writes it. The text is roff with the macros of man(7).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

import txnscan.cli  # noqa: F401, declares the commands
from txnscan.cli.app import app
from txnscan.version import __version__

# The option that every command has.
HELP = ".TP\n.B \\-\\-help\n"
OPTIONS_PAGE = Path(__file__).parents[1] / "docs" / "options.md"


def manual_page() -> str:
    """All commands on one page, in the order of `txnscan --help`."""
    group: Any = get_command(app)
    return "\n".join([*_page(group), ""])


def roff(text: str) -> str:
    """A text that roff prints as it is, also at the beginning of a line. Backquotes of Markdown go."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "")
    return re.sub(r"^(?=[.'])", r"\\&", escaped, flags=re.M)


def _page(group: Any) -> Iterator[str]:
    context = group.make_context("txnscan", [], resilient_parsing=True)
    yield f'.TH TXNSCAN 1 "" "txnscan {__version__}"'
    # Without hyphenation, and aligned at the left alone: a name must not break.
    yield ".nh\n.ad l"
    yield f".SH NAME\ntxnscan \\- {roff(group.help.partition('.')[0].replace('Find', 'find', 1))}"
    yield ".SH SYNOPSIS\n.B txnscan\n[\\fIOPTIONS\\fP] \\fICOMMAND\\fP [\\fIARGS\\fP]..."
    yield f".SH DESCRIPTION\n{roff(group.help)}"
    yield ".SH OPTIONS"
    yield from _parameters(group, context)
    yield ".SH COMMANDS"
    for name in group.list_commands(context):
        if not group.commands[name].hidden:
            yield from _command(name, group.commands[name])
    yield ".SH EXIT STATUS"
    yield from _exit_statuses()
    yield ".SH SEE ALSO\n.BR kafka\\-transactions.sh"


def _command(name: str, command: Any) -> Iterator[str]:
    context = command.make_context(name, [], resilient_parsing=True)
    yield f".SS txnscan {roff(' '.join([name, *command.collect_usage_pieces(context)]))}"
    for paragraph in command.help.split("\n\n"):
        yield f".PP\n{roff(' '.join(paragraph.split()))}"
    yield from (one for one in _parameters(command, context) if not one.startswith(HELP))
    examples = (command.epilog or "").partition("Examples:\n")[2]
    if examples:
        yield f".PP\nExamples:\n.PP\n.nf\n{roff(examples)}\n.fi"


def _parameters(command: Any, context: Any) -> Iterator[str]:
    for parameter in command.get_params(context):
        names, meaning = parameter.get_help_record(context)
        yield f".TP\n.B {roff(names)}\n{roff(meaning)}"


def _exit_statuses() -> Iterator[str]:
    table = OPTIONS_PAGE.read_text("utf-8").partition("## Exit status\n")[2]
    for status, condition in re.findall(r"^\| (\d+) \| (.*) \|$", table, re.M):
        yield f".TP\n.B {status}\n{roff(condition)}"
