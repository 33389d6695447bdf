"""The pictures in the docs match the package and its output."""

from __future__ import annotations

import json

import pytest

from tests.picture import AROUND, FILE, STEPS, called, drawn
from tests.process import ROOT
from tests.screens import COMMANDS, DOCS, RECORDED
from tests.screens import drawn as drawn_screen


def test_the_picture_has_the_steps_of_a_sweep_in_order() -> None:
    assert called() == [step.call for step in STEPS if step.call is not None]


def test_the_picture_has_every_folder() -> None:
    folders = {path.parent.name for path in (ROOT / "txnscan").glob("*/__init__.py")}
    assert {folder for step in STEPS for folder in step.folders}.union(*AROUND) == folders


def test_the_picture_in_the_docs_is_up_to_date() -> None:
    assert FILE.read_text("utf-8") == drawn()


def test_the_docs_show_the_picture() -> None:
    assert f"({FILE.name})" in (ROOT / "docs" / "architecture.md").read_text("utf-8")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_pictures_of_commands_show_their_output(name: str) -> None:
    """`make pictures` draws them."""
    recorded = json.loads(RECORDED.read_text("utf-8"))
    picture = (DOCS / f"{name}.svg").read_text("utf-8")
    assert picture == drawn_screen(name, recorded[name])
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")
    assert f"(docs/{name}.svg)" in (ROOT / "README.md").read_text("utf-8")
