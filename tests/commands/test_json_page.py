"""docs/json.md names only fields that the JSON of a sweep has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cases import Cases
from tests.process import ROOT, run
from tests.sim.wire import ClusterShape, WireCluster
from txnscan.tables.schema import OPEN_TRANSACTIONS, SCAN_ERRORS, SWEEPS
from txnscan.verdict.evidence import Verdict

PAGE = (ROOT / "docs" / "json.md").read_text("utf-8")
# With failed partitions, so that `errors` has objects.
SHAPE = ClusterShape(
    partitions=40, hanging=3, ongoing=2, transactional_ids=10, log_records=50, groups=2, error_every=17
)
FIELDS = sorted(set(re.findall(r"`((?:sweep\.|transactions\[\]\.|errors\[\]\.)[a-z_.]+)`", PAGE)))
EXAMPLES = re.findall(r"^    jq (?:-\w )?'(.*)' output\.json$", PAGE, re.M)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The JSON of the three commands, by command."""
    tables = str(tmp_path_factory.mktemp("tables"))
    with WireCluster(SHAPE, 1) as cluster:
        at = ("--bootstrap-server", cluster.bootstrap_servers)
        ran = {
            "find-hanging": run("find-hanging", *at, "--format", "json"),
            "sweep": run("sweep", *at, "--tables", tables, "--engine", "threads", "--format", "json"),
            "show": run("show", "--tables", tables, "--format", "json"),
        }
    return {command: json.loads(one.stdout) for command, one in ran.items()}


def paths(value: Any, before: str = "") -> Iterator[str]:
    """Every field of nested objects, such as `errors[].code`."""
    if isinstance(value, dict):
        for name, below in value.items():
            yield before + name
            yield from paths(below, f"{before}{name}.")
    elif isinstance(value, list):
        for below in value:
            yield from paths(below, f"{before.removesuffix('.')}[].")


def test_every_field_of_the_page_is_in_the_json_of_each_command(printed: dict[str, dict[str, Any]]) -> None:
    assert len(FIELDS) > 20
    with Cases() as cases:
        for command, found in printed.items():
            existing = set(paths(found))
            for field in FIELDS:
                with cases.case(f"{command} {field}"):
                    assert field in existing


def test_the_examples_use_existing_fields(printed: dict[str, dict[str, Any]]) -> None:
    names = {path.rpartition(".")[2] for path in paths(printed["find-hanging"])} | {"transactions", "errors"}
    assert len(EXAMPLES) == 3
    for example in EXAMPLES:
        used = re.findall(r"\.([a-z_]+)", example)
        assert used and set(used) <= names, example


def test_the_sweeps_have_candidates_and_errors(printed: dict[str, dict[str, Any]]) -> None:
    for found in printed.values():
        assert found["sweep"]["candidates"] == SHAPE.hanging == sum(one["candidate"] for one in found["transactions"])
        assert found["errors"] and not found["sweep"]["complete"]


def test_other_names_are_those_of_the_columns(printed: dict[str, dict[str, Any]]) -> None:
    """All but the three objects in `sweep`, whose members the page maps to columns."""
    sweeps, transactions, errors = (
        {column.name for column in table.columns} for table in (SWEEPS, OPEN_TRANSACTIONS, SCAN_ERRORS)
    )
    for found in printed.values():
        summary = found["sweep"]
        assert set(summary) - {"partitions", "coordinators", "counts"} <= sweeps
        for name in ("partitions", "coordinators"):
            assert {f"{name}_{member}" for member in summary[name]} <= sweeps
        assert set(summary["counts"]) == {*Verdict} <= sweeps
        assert set(found["transactions"][0]) <= transactions and set(found["errors"][0]) <= errors
