"""`gate` from tables alone, and its options. tests/brokers/test_gate_real.py asks brokers."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.builders import NOW_MS
from tests.cases import Cases
from tests.process import run_here
from tests.tables.stored import LATER_MS, next_sweep
from txnscan.report.plain import iso_utc
from txnscan.tables.delta import READABLE_PROPERTY, VERSION_PROPERTY
from txnscan.tables.open import open_tables
from txnscan.tables.schema import SCHEMA_VERSION, SWEEPS
from txnscan.waiting.complete_up_to import PartitionRead, TopicRead, concluded

if TYPE_CHECKING:
    from pathlib import Path

    from syrupy.assertion import SnapshotAssertion

FIRST, SECOND = iso_utc(NOW_MS), iso_utc(NOW_MS + LATER_MS)
NOWHERE = "127.0.0.1:1"


def read(topic: str, at_ms: int, *partitions: PartitionRead, topic_id: str = "t0") -> TopicRead:
    return TopicRead(topic, topic_id, at_ms, partitions)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two sweeps. `orders` was complete at the first. `solo` has no leader at the second. `stuck` was
    never complete. Two clusters have `both`.
    """
    location = str(tmp_path_factory.mktemp("gate") / "tables")
    tables = open_tables(location, None)
    tables.create()
    free = PartitionRead(0, 1, 9, 9)
    first = tuple(read(topic, NOW_MS, free) for topic in ("orders", "solo", "both"))
    tables.write(next_sweep(1, topic_reads=tuple(map(concluded, first))))
    later_ms = NOW_MS + LATER_MS
    second = (
        read("orders", later_ms, PartitionRead(0, 1, 12, 10)),
        read("solo", later_ms, PartitionRead(0, code="NO_LEADER")),
        read("stuck", later_ms, PartitionRead(0, 1, 12, 10)),
    )
    tables.write(next_sweep(2, topic_reads=tuple(concluded(one, first) for one in second)))
    tables.write(next_sweep(3, cluster_id="cluster-2", topic_reads=(concluded(read("both", NOW_MS, free)),)))
    return location


# The topics, the time, further options, the exit status, and the state.
STATES = (
    (("orders",), FIRST, (), 0, "complete"),
    (("orders",), SECOND, (), 3, "blocked"),
    (("both",), FIRST, ("--cluster-id", "cluster-2"), 0, "complete"),
    (("both",), SECOND, ("--cluster-id", "cluster-2"), 3, "not_yet"),
    (("solo",), FIRST, (), 4, "not_observed"),
    (("stuck",), FIRST, (), 3, "blocked"),
    (("never-read",), FIRST, (), 4, "not_observed"),
    (("orders", "solo"), FIRST, (), 4, "not_observed"),
    (("orders", "solo"), SECOND, (), 3, "blocked"),
)


def test_the_exit_status_is_the_state_of_the_topics(written: str) -> None:
    with Cases() as cases:
        for topics, until, options, status, state in STATES:
            with cases.case(f"{', '.join(topics)} until {until}"):
                named = [word for topic in topics for word in ("--topic", topic)]
                ran = run_here("gate", "--tables", written, *named, "--until", until, *options, "--format", "json")
                found = json.loads(ran.stdout)
                assert (ran.returncode, found["gate"]["state"]) == (status, state)
                assert [topic["topic"] for topic in found["topics"]] == list(topics)


def test_the_output_names_blocked_partitions_codes_and_times(written: str, wording: SnapshotAssertion) -> None:
    named = [word for topic in ("orders", "solo", "stuck", "never-read") for word in ("--topic", topic)]
    ran = run_here("gate", "--tables", written, *named, "--until", SECOND)
    assert ran.returncode == 3
    assert ran.stdout == wording


def test_no_gate_opens_on_tables_of_a_later_form(written: str, tmp_path: Path) -> None:
    location = f"{tmp_path}/tables"
    shutil.copytree(written, location)
    later = str(SCHEMA_VERSION + 1)
    given = {VERSION_PROPERTY: later, READABLE_PROPERTY: later}
    open_tables(location, None).delta.set_properties(SWEEPS, given)
    for command in (("gate", "--topic", "orders", "--until", FIRST), ("history",)):
        ran = run_here(*command, "--tables", location)
        assert (ran.returncode, ran.stdout) == (2, "") and f"version {later}" in ran.stderr


# Options that cannot be used.
WRONG = (
    ("--topic", "orders"),
    ("--topic", "orders", "--tables", "TABLES"),
    ("--topic", "orders", "--tables", "TABLES", "--until", "2026-01-31T06:00:00"),
    ("--topic", "orders", "--tables", "TABLES", "--until", "yesterday"),
    ("--topic", "or ders", "--bootstrap-server", NOWHERE),
    ("--topic", "orders", "--bootstrap-server", NOWHERE, "--wait", "5"),
    ("--topic", "both", "--tables", "TABLES", "--until", FIRST),
)


def test_options_that_cannot_be_used_are_usage_errors(written: str, wording: SnapshotAssertion) -> None:
    said = []
    for words in WRONG:
        ran = run_here("gate", *(written if word == "TABLES" else word for word in words))
        assert (ran.returncode, ran.stdout) == (2, ""), words
        said.append(ran.stderr.strip())
    assert said == wording


def test_unreachable_brokers_fail_the_gate() -> None:
    assert run_here("gate", "--topic", "orders", "--bootstrap-server", NOWHERE).returncode == 1
