"""The examples of docs/python.md run, and the functions return what the commands print."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.process import ROOT, run
from tests.sim.wire import ClusterShape, WireCluster
from txnscan import ConfigError, ScanConfig, check, explain, find_hanging, gate, plan, sweep
from txnscan.report.check import check_object
from txnscan.report.explain import explained_object
from txnscan.waiting.complete_up_to import GateState

SHAPE = ClusterShape(brokers=1, partitions=20, hanging=1, transactional_ids=20, log_records=50, groups=1)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with WireCluster(SHAPE) as cluster:
        yield cluster.bootstrap_servers


def printed(address: str, *words: str) -> Any:
    """The output of a command in a process of its own: in this one, tests before may have left a Spark session."""
    return json.loads(run(*words, "--bootstrap-server", address, "--format", "json").stdout)


def test_the_examples_of_the_page_run(address: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "python.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    code = "\n".join(blocks).replace("localhost:9092", address).replace("/data/txnscan", str(tmp_path / "tables"))
    # Of simulated brokers, and shorter.
    code = code.replace('"orders"', repr(SHAPE.topic_name(0))).replace("wait_s=5", "wait_s=0")
    names: dict[str, Any] = {}
    exec(compile(code, "python.md", "exec"), names)
    assert len(names["found"].candidates) == len(names["planned"].actions) + len(names["planned"].refused) == 1
    assert names["passed"].state in [*GateState]


def test_the_functions_return_what_the_commands_print(address: str, tmp_path: Path) -> None:
    config, topic = ScanConfig(address), SHAPE.topic_name(0)
    checked, shown = check_object(check(config)), printed(address, "check")
    assert [one["level"] for one in checked["findings"]] == [one["level"] for one in shown["findings"]]
    why = explained_object(explain(config, topic=topic))
    asked = printed(address, "explain", "--topic", topic)
    assert (why["cause"], why["next"]) == (asked["cause"], asked["next"])
    until = datetime(2026, 1, 1, tzinfo=UTC)
    state = gate(config, [topic], until, wait_s=0).state
    printed_state = printed(address, "gate", "--topic", topic, "--until", until.isoformat(), "--wait", "0s")
    assert state == printed_state["gate"]["state"]
    found = printed(address, "find-hanging")
    assert len(find_hanging(config).candidates) == found["sweep"]["candidates"]
    tables = str(tmp_path / "tables")
    sweep(None, ScanConfig(address, tables=tables, engine="threads"))
    assert plan(tables).actions == plan(None, tables).actions


def test_a_time_without_a_zone_and_a_missing_location_are_refused(address: str) -> None:
    with pytest.raises(ConfigError):
        gate(ScanConfig(address), [SHAPE.topic_name(0)], datetime(2026, 1, 1))
    with pytest.raises(ConfigError):
        plan(None)  # type: ignore[call-overload]
