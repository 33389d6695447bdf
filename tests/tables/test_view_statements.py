"""Views for dashboards, as statements. tests/spark/test_views.py runs them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from typer.testing import CliRunner

from tests.process import ROOT
from txnscan.cli.app import app
from txnscan.tables.views import VIEWS

if TYPE_CHECKING:
    from pathlib import Path

    from syrupy.assertion import SnapshotAssertion


def test_the_page_of_views_lists_each_view_with_its_meaning() -> None:
    page = (ROOT / "docs" / "dashboards.md").read_text("utf-8")
    listed = re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.M)
    assert listed == [(view.name, view.meaning) for view in VIEWS]


def test_the_command_prints_the_statements(tmp_path: Path, wording: SnapshotAssertion) -> None:
    ran = CliRunner().invoke(app, ["views", "--tables", str(tmp_path / "tables")])
    assert (ran.exit_code, ran.stdout.count("TEMPORARY VIEW txnscan_")) == (0, len(VIEWS))
    ran = CliRunner().invoke(app, ["views", "--tables", "main.txnscan"])
    assert (ran.exit_code, ran.stdout.count("CREATE OR REPLACE VIEW main.txnscan.")) == (0, len(VIEWS))
    ran = CliRunner().invoke(app, ["views", "--tables", str(tmp_path / "tables"), "--create"])
    assert ran.exit_code == 2
    assert ran.stderr.strip() == wording
