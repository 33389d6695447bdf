"""The notebooks run from top to bottom against the demo's brokers, and show its hanging transactions."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import nbformat
import pandas as pd
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from nbclient import NotebookClient

from tests.brokers.shared import Shared
from tests.docs_site import RECORDED
from tests.notebooks import recorded
from tests.process import ROOT
from txnscan import ScanConfig, sweep
from txnscan.tables.conditions import Is
from txnscan.tables.open import open_tables
from txnscan.tables.schema import INCIDENTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
HANGING = ("payments-solo", "clicks", "sensors", "shipments", "invoices")


def read(path: Path) -> nbformat.NotebookNode:
    notebook: nbformat.NotebookNode = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    return notebook


@pytest.fixture
def executed(shared: Shared, location: str, monkeypatch: pytest.MonkeyPatch) -> nbformat.NotebookNode:
    """The quick start, in a kernel and a session of its own."""
    monkeypatch.setenv("TXNSCAN_BOOTSTRAP_SERVERS", shared.bootstrap_servers)
    monkeypatch.setenv("TXNSCAN_TABLES", location)
    monkeypatch.setenv("MASTER", "local[2]")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    notebook = read(ROOT / "notebooks" / "quickstart.ipynb")
    return NotebookClient(notebook, timeout=900, resources={"metadata": {"path": str(ROOT)}}).execute()


def shown(notebook: nbformat.NotebookNode, source: str) -> str:
    """The values that the cell with this text shows."""
    (cell,) = [c for c in notebook.cells if c.cell_type == "code" and source in c.source and c.outputs]
    return "".join(output["data"]["text/plain"] for output in cell.outputs if "data" in output)


def test_the_notebook_shows_planted_transactions_evidence_and_history(
    executed: nbformat.NotebookNode,
) -> None:
    assert "'complete': True" in shown(executed, "\nresult.summary")
    hanging = shown(executed, "show(hanging)")
    assert all(topic in hanging for topic in HANGING)
    assert "backfill" not in hanging
    assert "Empty DataFrame" in shown(executed, "result.errors")
    assert "payments-service" in shown(executed, "evidence.coordinators")
    assert shown(executed, "incidents.select").count(" 2 ") >= 5


def test_texts_are_whole_and_charts_need_no_network(executed: nbformat.NotebookNode) -> None:
    hanging = shown(executed, "show(hanging)")
    assert "..." not in hanging and "no coordinator will end" in hanging
    outputs = [output["data"] for cell in executed.cells if cell.cell_type == "code" for output in cell.outputs
               if "data" in output]  # fmt: skip
    charts = [data["image/svg+xml"] for data in outputs if "image/svg+xml" in data]
    assert len(charts) == 1
    assert not [data for data in outputs if any("vega" in kind or "javascript" in kind for kind in data)]
    assert not re.findall(r"https?://(?!www\.w3\.org)", "".join(charts))


def test_the_site_shows_of_each_cell_what_it_shows(executed: nbformat.NotebookNode) -> None:
    kept = json.loads(RECORDED.read_text("utf-8"))["quickstart"]
    assert [kinds(cell) for cell in recorded(executed)] == [kinds(cell) for cell in kept]


def kinds(cell: Mapping[str, Any]) -> list[str]:
    return [one["kind"] for one in cell["shows"]]


# --- the others, in this process and its session, on the tables of two sweeps -----------------------------------------


@pytest.fixture(scope="module")
def swept(shared: Shared, tmp_path_factory: pytest.TempPathFactory) -> str:
    location = str(tmp_path_factory.mktemp("notebooks") / "tables")
    for _ in range(2):
        sweep(None, ScanConfig(shared.bootstrap_servers, tables=location, engine="threads"))
    return location


class Widgets:
    """`dbutils.widgets` of Databricks, with values in place of a person's."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self.defaults: dict[str, str] = {}

    def text(self, name: str, default: str, label: str = "") -> None:
        self.defaults[name] = default

    def get(self, name: str) -> str:
        assert name in self.defaults
        return self._values.get(name, self.defaults[name])


class Ran:
    """The values of a notebook, cell by cell, and its variables.

    widgets, spark: on Databricks, the values of its widgets and its session. There `displayHTML` shows charts, and
    `display` shows DataFrames.
    """

    def __init__(self, name: str, widgets: Mapping[str, str] | None = None, spark: SparkSession | None = None) -> None:
        self.magics: list[str] = []
        self.html: list[str] = []
        self._displayed: list[Any] = []
        self._shown: list[tuple[str, Any]] = []
        self.names: dict[str, Any] = {"display": self._displayed.append, "get_ipython": lambda: self}
        if widgets is not None:
            self.names |= {"dbutils": SimpleNamespace(widgets=Widgets(widgets)), "spark": spark}
            self.names["displayHTML"] = self.html.append
        notebook = read(ROOT / "notebooks" / f"{name}.ipynb")
        for cell in notebook.cells:
            if cell.cell_type == "code":
                self._displayed.clear()
                value = self._run(cell.source)
                self._shown.append((cell.source, self._displayed[-1] if self._displayed else value))

    def run_line_magic(self, name: str, line: str) -> None:
        self.magics.append(f"%{name} {line}")

    def _run(self, source: str) -> Any:
        """The value of the last line, which a notebook shows."""
        *statements, last = ast.parse(python_of(source)).body
        if not isinstance(last, ast.Expr):
            statements.append(last)
        exec(compile(ast.Module(statements, []), "cell", "exec"), self.names)
        return eval(ast.unparse(last), self.names) if isinstance(last, ast.Expr) else None

    def shown(self, source: str) -> Any:
        (value,) = [value for text, value in self._shown if source in text]
        return value


def python_of(source: str) -> str:
    """The Python of a cell, with calls in place of magics."""
    return str(TransformerManager().transform_cell(source))  # type: ignore[no-untyped-call]


@pytest.fixture
def on_tables(swept: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXNSCAN_TABLES", swept)


def test_the_incident_notebook_leads_from_verdicts_to_remedies(
    swept: str, on_tables: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = open_tables(swept, None).rows(INCIDENTS, Is("topic", "payments-solo"))
    monkeypatch.setenv("TXNSCAN_INCIDENT", rows[0]["incident_id"][:12])
    ran = Ran("investigate")
    incidents = ran.shown("incidents.select")
    assert set(HANGING) <= set(incidents["topic"])
    assert "payments-service" in ran.shown('chosen["explanation"]')
    assert len(ran.shown("show(seen.select")) == 2
    assert set(ran.shown("show(seen.select")["verdict"]) == {"hanging"}
    assert "evidence" not in ran.shown("limit(1)").columns and "coordinators" in ran.shown("limit(1)").columns
    said = capsys.readouterr().out
    assert re.search(r"^committed: .*\n(offset \d+: .*\n)*.*PrepareCommit.*payments-solo-0", said, re.M)
    assert "payments-solo-0: " in said.partition("CompleteCommit")[2] and "needs None" not in said
    assert list(ran.shown("journal.select").columns)[:3] == ["at", "step", "status"]


def test_each_view_has_a_result_and_the_checks_find_the_errors(on_tables: None) -> None:
    ran = Ran("dashboards")
    assert set(HANGING) <= set(ran.shown("ORDER BY seen_for_s")["topic"])
    worst = set(ran.shown("worst_topics")["topic"])
    # It shows ten rows, and the shared cluster may have more.
    assert set(HANGING) <= worst or len(worst) == 10
    assert "hanging" in set(ran.shown("current_transactions")["verdict"])
    assert int(ran.shown("by_day.orderBy")["opened"].sum()) >= len(HANGING)
    assert list(ran.shown("partitions, coordinators")["complete"]) == [True, True]
    checks = ran.shown("checks = {")
    no_sweep, incomplete, late, _ = checks.values()
    assert (no_sweep, incomplete) == (0, 0)
    assert late == len(ran.shown('"current_candidates"]} ORDER')) > 0


def test_capacity_is_predicted_and_compared_with_stored_sweeps(on_tables: None) -> None:
    ran = Ran("capacity")
    grown = ran.shown("\ngrown")
    assert list(grown["seconds"][grown["latency_ms"] == 20].sort_values().index) == [1, 3, 5, 7]
    assert (grown["seconds_max"] >= grown["seconds"]).all()
    assert set(ran.shown("def engine").values()) == {"threads", "spark"}
    assert (ran.shown("measured / predicted")["ratio"] > 0).all()


@pytest.mark.parametrize("name", ["investigate", "dashboards", "capacity"])
def test_on_databricks_a_notebook_shows_dataframes_and_a_chart(
    name: str, swept: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    monkeypatch.setenv("TXNSCAN_TABLES", "/nowhere/else")
    ran = Ran(name, {"tables": swept}, spark)
    assert len(ran.html) == 1 and ran.html[0].startswith("<svg")
    (install,) = ran.magics
    assert install.startswith("%pip install") and ".whl[report]" in install
    shows = {type(value).__name__ for _, value in ran._shown}
    assert "DataFrame" in shows and (name == "capacity" or not any(isinstance(v, pd.DataFrame) for _, v in ran._shown))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_no_outputs_and_uses_only_the_public_api(path: Path) -> None:
    notebook = read(path)
    assert all(not c.get("outputs") and c.get("execution_count") is None for c in notebook.cells)
    code = "\n".join(c.source for c in notebook.cells if c.cell_type == "code")
    used = {f"{node.module}" for node in ast.walk(ast.parse(python_of(code))) if isinstance(node, ast.ImportFrom)}
    # Except the demo's brokers, and a session for users without either.
    spare = {"txnscan.engine.spark.session", "txnscan.demo.brokers", "txnscan.demo.story"}
    assert {module for module in used if module.startswith("txnscan.")} <= spare
