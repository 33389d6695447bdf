"""A dataclass of options as the type of a command's parameter: `@takes()` gives the command its fields as options."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.testing import CliRunner

from tests.cases import Cases
from txnscan.cli.given import Given, takes
from txnscan.config.settings import TIMEOUT, TOPIC


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class PaintOptions:
    where: Annotated[str, typer.Option("--where", help="The wall.")]
    colour: Annotated[Colour, typer.Option("--colour", metavar="red|blue", help="The paint.")] = Colour.RED
    coats: Annotated[int, typer.Option("--coats", min=1, help="How often.")] = 2
    names: Annotated[list[str] | None, typer.Option("--name", help="The painters. May be repeated.")] = None
    is_quick: Annotated[bool, typer.Option("--quick", help="Hurry.")] = False


calls: list[tuple[Any, ...]] = []
app = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)


@app.command()
@takes(TIMEOUT, TOPIC)
def paint(
    room: Annotated[str, typer.Argument(metavar="ROOM")],
    *,
    given: Given,
    before: Annotated[bool, typer.Option("--before")] = False,
    paint: PaintOptions,
    after: Annotated[str | None, typer.Option("--after")] = None,
) -> None:
    calls.append((room, given.text(TIMEOUT), given.parsed(TOPIC), before, paint, after))


DEFAULT = PaintOptions("north")
# Arguments after `hall --where north`, the expected group, and the values of timeout, topic, before and after.
NO_OTHERS = (None, None, False, None)
TAKEN: tuple[tuple[str, list[str], PaintOptions, tuple[Any, ...]], ...] = (
    ("defaults", [], DEFAULT, NO_OTHERS),
    ("a value", ["--colour", "blue"], PaintOptions("north", Colour.BLUE), NO_OTHERS),
    ("a number", ["--coats", "3"], PaintOptions("north", coats=3), NO_OTHERS),
    ("a flag", ["--quick"], PaintOptions("north", is_quick=True), NO_OTHERS),
    ("an option once", ["--name", "ann"], PaintOptions("north", names=["ann"]), NO_OTHERS),
    ("a repeated option", ["--name", "ann", "--name", "bob"], PaintOptions("north", names=["ann", "bob"]), NO_OTHERS),
    ("the last of two values counts", ["--coats", "3", "--coats", "4"], PaintOptions("north", coats=4), NO_OTHERS),
    ("other options", ["--before", "--after", "x"], DEFAULT, (None, None, True, "x")),
    ("settings", ["--timeout", "3s", "--topic", "a", "--topic", "b"], DEFAULT, ("3s", ("a", "b"), False, None)),
)
# Arguments, and the option and the value that typer's usual error names.
WRONG: tuple[tuple[str, list[str], tuple[str, ...]], ...] = (
    ("no number", ["--where", "north", "--coats", "many"], ("--coats", "many")),
    ("out of range", ["--where", "north", "--coats", "0"], ("--coats", "0")),
    ("no such choice", ["--where", "north", "--colour", "green"], ("--colour", "green")),
    ("a flag with a value", ["--where", "north", "--quick=yes"], ("--quick",)),
    ("without a value", ["--where", "north", "--name"], ("--name",)),
    ("without a required option", [], ("--where",)),
    ("the name of the parameter", ["--where", "north", "--paint", "x"], ("--paint",)),
)


def test_a_command_gets_the_value_that_its_options_make() -> None:
    with Cases() as cases:
        for name, arguments, expected, (timeout, topic, before, after) in TAKEN:
            with cases.case(name):
                calls.clear()
                ran = CliRunner().invoke(app, ["hall", "--where", "north", *arguments])
                assert ran.exit_code == 0, ran.output
                assert calls == [("hall", timeout, topic, before, expected, after)]


def test_an_option_in_wrong_form_is_a_usage_error() -> None:
    calls.clear()
    with Cases() as cases:
        for name, arguments, expected in WRONG:
            with cases.case(name):
                ran = CliRunner().invoke(app, ["hall", *arguments])
                assert ran.exit_code == 2
                assert all(part in ran.stderr for part in expected), ran.stderr
    assert calls == []


def test_options_stand_in_the_place_of_their_parameter() -> None:
    command: Any = typer.main.get_command(app)
    assert [one.opts[0] for one in command.params] == [
        *("room", "--timeout", "--topic", "--before"),
        *("--where", "--colour", "--coats", "--name", "--quick"),
        "--after",
    ]
