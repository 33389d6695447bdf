"""The notebook runs from top to bottom against the demo's brokers and shows what hangs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.conftest import Planted
from tests.process import ROOT


@pytest.fixture
def executed(planted: Planted, location: str, monkeypatch: pytest.MonkeyPatch) -> nbformat.NotebookNode:
    monkeypatch.setenv("TXNSCAN_BOOTSTRAP_SERVERS", planted.bootstrap_servers)
    monkeypatch.setenv("TXNSCAN_TABLES", location)
    monkeypatch.setenv("MASTER", "local[2]")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    notebook = nbformat.read(  # type: ignore[no-untyped-call]
        ROOT / "notebooks" / "quickstart.ipynb", as_version=4
    )
    return NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(ROOT)}}).execute()


def shown(notebook: nbformat.NotebookNode, source: str) -> str:
    """The value that the cell with this text shows."""
    (cell,) = [c for c in notebook.cells if c.cell_type == "code" and source in c.source and c.outputs]
    return "".join(output["data"]["text/plain"] for output in cell.outputs if output.output_type == "execute_result")


def test_the_notebook_shows_the_planted_transactions_their_evidence_and_their_history(
    executed: nbformat.NotebookNode,
) -> None:
    assert "'complete': True" in shown(executed, "\nresult.summary")
    hanging = shown(executed, "hanging.toPandas()")
    assert all(topic in hanging for topic in ("payments-solo", "clicks", "sensors", "shipments", "invoices"))
    assert "backfill" not in hanging
    assert "Empty DataFrame" in shown(executed, "result.errors")
    assert "payments-service" in shown(executed, "evidence.coordinators")
    assert shown(executed, "incidents.select").count(" 2 ") >= 5


def test_the_notebook_is_kept_without_outputs() -> None:
    notebook = nbformat.read(  # type: ignore[no-untyped-call]
        ROOT / "notebooks" / "quickstart.ipynb", as_version=4
    )
    assert all(not c.get("outputs") and c.get("execution_count") is None for c in notebook.cells)
