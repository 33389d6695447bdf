"""The picture of the pipeline shows the package as it is."""

from __future__ import annotations

from tests.picture import AROUND, FILE, STEPS, called, drawn
from tests.process import ROOT


def test_the_picture_has_the_steps_of_a_sweep_in_order() -> None:
    assert called() == [step.call for step in STEPS if step.call is not None]


def test_the_picture_has_every_folder() -> None:
    folders = {path.parent.name for path in (ROOT / "txnscan").glob("*/__init__.py")}
    assert {folder for step in STEPS for folder in step.folders}.union(*AROUND) == folders


def test_the_picture_in_the_docs_is_the_one_that_is_drawn() -> None:
    assert FILE.read_text("utf-8") == drawn()


def test_the_docs_show_the_picture() -> None:
    assert f"({FILE.name})" in (ROOT / "docs" / "architecture.md").read_text("utf-8")
