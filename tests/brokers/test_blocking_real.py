"""Live transactions that hold readers back, on real brokers: a group that waits, the limit, the end, and the fence."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.brokers.offsets import commit_offset, commit_offset_within
from tests.brokers.shared import Shared
from tests.process import run_here
from txnscan import ScanConfig, find_hanging, sweep
from txnscan.demo.admin import create_topic
from txnscan.demo.producer import Producer
from txnscan.kafka.clock import wall_clock_ms
from txnscan.report.plain import iso_utc
from txnscan.sweeps.result import Scan
from txnscan.verdict.evidence import Verdict
from txnscan.waiting.blocking import ORDINARY_MS
from txnscan.waiting.impact import BlockReason
from txnscan.waiting.owner import Framework

if TYPE_CHECKING:
    from txnscan.verdict.evidence import Judged

WAITED_FOR, ALONE, WITHHOLDS, NAMES = "blocking-orders", "blocking-quiet", "blocking-offsets", "blocking-named"
OFFSETS = "__consumer_offsets"
GROUP, WITHHELD = "blocking-billing", "blocking-shipping"
# As Flink names them: prefix, subtask, number of the checkpoint.
SINK = "blocking-sink-0-42"
TIMEOUT_MS = 600_000


@pytest.fixture(scope="module")
def config(shared: Shared) -> ScanConfig:
    """Settings of a sweep of two live transactions, of which a group waits for one."""
    for topic, name in ((WAITED_FOR, SINK), (ALONE, "blocking-service")):
        create_topic(shared.wire, topic, [[1]])
        before = Producer(shared.wire, f"{topic}-before")
        before.init_producer_id()
        before.write(topic, 0, [b"read"] * 5)
        before.end(commit=True)
        live = Producer(shared.wire, name, timeout_ms=TIMEOUT_MS)
        live.init_producer_id()
        live.write(topic, 0, [b"waits"] * 3)
    # After the five records and their marker.
    commit_offset(shared.cluster, GROUP, WAITED_FOR, 6)
    return ScanConfig(shared.bootstrap_servers, topic_names=(WAITED_FOR, ALONE), engine="threads")


# Sweeps as if the clock were ahead by this many milliseconds.
Later = Callable[[ScanConfig, int], Scan]


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Later:
    def swept(config: ScanConfig, ahead_ms: int) -> Scan:
        with monkeypatch.context() as ahead:
            ahead.setattr("txnscan.api.wall_clock_ms", lambda: wall_clock_ms() + ahead_ms)
            return find_hanging(config)

    return swept


def by_topic(judged: tuple[Judged, ...]) -> dict[str, Judged]:
    return {one.observation.topic: one for one in judged}


def test_a_new_live_transaction_is_only_counted(config: ScanConfig) -> None:
    found = find_hanging(config)
    assert found.counts[Verdict.ONGOING] == 2
    assert (found.blocking, found.stored, found.impacts, found.complete) == ((), (), {}, True)


def test_a_live_transaction_that_a_group_waits_for_gets_a_row_before_the_limit(
    config: ScanConfig, later: Later
) -> None:
    """The other one of the same age is only counted."""
    found = later(config, 2 * ORDINARY_MS)
    assert found.blocking_after_ms == 300_000
    assert by_topic(found.stored).keys() == by_topic(found.blocking).keys() == {WAITED_FOR}
    (one,) = found.blocking
    impact = found.impact(one)
    assert impact is not None
    assert (one.judgement.verdict, one.blocked_records, one.holds_lso) == (Verdict.ONGOING, 3, True)
    (group,) = impact.groups
    assert (group.group, group.reason, group.lag) == (GROUP, BlockReason.AT_LSO, 3)
    assert (impact.groups_blocked, impact.groups_error, impact.owner.framework) == (1, None, Framework.FLINK)
    assert [count.transactions for count in found.healthy if count.verdict == "ongoing"] == [1, 1]


def test_live_transactions_older_than_the_limit_get_rows(config: ScanConfig, later: Later) -> None:
    assert by_topic(later(config, 400_000).blocking).keys() == {WAITED_FOR, ALONE}
    short = replace(config, blocking_after_ms=1)
    found = find_hanging(short)
    assert by_topic(found.stored).keys() == {WAITED_FOR, ALONE}
    assert all(found.blocks(one) for one in found.stored)
    of_alone = found.impact(by_topic(found.stored)[ALONE])
    assert of_alone is not None and (of_alone.groups, of_alone.groups_blocked) == ((), 0)


def test_a_live_transaction_has_the_end_that_its_coordinator_reports(config: ScanConfig) -> None:
    at = ("--bootstrap-server", config.bootstrap_servers)
    ran = run_here("describe", *at, "--transactional-id", SINK, "--format", "json")
    (described,) = json.loads(ran.stdout)["transactions"]
    scoped = ("--topic", WAITED_FOR, "--blocking-after", "1ms", "--fail-on", "hanging", "--fail-on", "incomplete")
    ran = run_here("find-hanging", *at, *scoped, "--format", "json")
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    (row,) = found["transactions"]
    assert (row["verdict"], row["blocking"], found["sweep"]["blocking"]) == ("ongoing", True, 1)
    assert (iso_utc(row["transaction_start_ms"]), described["timeout_ms"]) == (described["started_at"], TIMEOUT_MS)
    assert row["ends_by"] == iso_utc(row["transaction_start_ms"] + TIMEOUT_MS)
    ran = run_here("find-hanging", *at, *scoped)
    assert (ran.returncode, GROUP in ran.stdout, "ENDS BY" in ran.stdout) == (0, True, True)


def test_offsets_in_a_live_transaction_are_withheld_from_their_group(shared: Shared, later: Later) -> None:
    create_topic(shared.wire, WITHHOLDS, [[1]])
    commit_offset_within(shared.wire, WITHHELD, WITHHOLDS, transactional_id="blocking-service-of-offsets")
    found = later(ScanConfig(shared.bootstrap_servers, topic_names=(OFFSETS,)), 2 * ORDINARY_MS)
    impacts = [found.impact(one) for one in found.blocking]
    groups = {group.group: group.reason for impact in impacts if impact is not None for group in impact.groups}
    assert groups.get(WITHHELD) == BlockReason.UNSTABLE


def test_a_stored_live_transaction_is_no_candidate_and_in_no_plan(config: ScanConfig, location: str) -> None:
    result: Any = sweep(None, replace(config, tables=location, blocking_after_ms=1))
    ran = run_here("show", "--tables", location, "--sweep-id", result.summary["sweep_id"], "--format", "json", "--all")
    assert ran.returncode == 0, ran.stderr
    rows = {row["topic"]: row for row in json.loads(ran.stdout)["transactions"]}
    assert {topic: (row["verdict"], row["blocking"]) for topic, row in rows.items()} == {
        WAITED_FOR: ("ongoing", True),
        ALONE: ("ongoing", True),
    }
    assert [group["group"] for group in rows[WAITED_FOR]["blocked_groups"]] == [GROUP]
    assert result.candidates.num_rows == 0
    out = Path(location).parent / "plan.json"
    ran = run_here("plan", "--tables", location, "--sweep-id", result.summary["sweep_id"], "--out", str(out))
    assert ran.returncode == 0, ran.stderr
    plan = json.loads(out.read_text("utf-8"))
    assert (plan["actions"], plan["refused"]) == ([], [])


@pytest.mark.parametrize(("name", "warns"), [("blocking-named-0-7", True), ("blocking-named", False)])
def test_a_fence_warns_if_the_id_may_be_flinks(shared: Shared, name: str, warns: bool) -> None:
    producer = Producer(shared.wire, name)
    producer.init_producer_id()
    create_topic(shared.wire, f"{NAMES}-{warns}", [[1]])
    producer.write(f"{NAMES}-{warns}", 0, [b"x"])
    ran = run_here("force-terminate", "--bootstrap-server", shared.bootstrap_servers, "--transactional-id", name)
    assert (ran.returncode, "may be Flink's" in ran.stderr) == (2, warns)
