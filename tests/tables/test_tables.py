"""The tables of sweeps: what the next sweep and dashboards read there."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.builders import NOW_MS, judged, known, scan, view
from tests.cases import Cases
from tests.tables.stored import (
    DOUBTFUL,
    ENDED,
    LATER_MS,
    ONGOING,
    ORPHAN,
    STALE,
    YOUNG,
    After,
    hanging,
    incidents,
    next_sweep,
)
from txnscan.config import ConfigError
from txnscan.findings import Incident, KnownImpact, Sighting
from txnscan.judge.rules import judge
from txnscan.model import BlockedGroup, Cause, Evidence, Impact, Owner, ScanError, Siblings, Standing
from txnscan.store.schema import (
    CANDIDATES,
    INCIDENTS,
    OPEN_TRANSACTIONS,
    RESOLUTIONS,
    SCAN_ERRORS,
    SCHEMA_REVISION,
    SWEEPS,
    TABLES,
    Table,
    incident_id,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from syrupy.assertion import SnapshotAssertion

    from tests.conftest import Opens
    from txnscan.store.tables import Tables


# --- what a sweep stores ----------------------------------------------------------------------------------------------


def test_a_sweep_stores_its_transactions_candidates_errors_and_counts(tables: Tables) -> None:
    error = ScanError("read", "broker 3 cannot be reached", 3, "p", 1)
    tables.write(scan(ORPHAN, YOUNG, ONGOING, errors=(error,), partitions_failed=1, store_all=True))
    columns = ("start_offset", "verdict", "reason", "late", "candidate")
    stored = {tuple(row.values()) for row in tables.read(OPEN_TRANSACTIONS, "sweep-1", columns)}
    assert stored == {
        (90, "ongoing", "owned", False, False),
        (100, "hanging", "orphan", True, True),
        (200, "hanging", "orphan", False, False),
    }
    assert [row["start_offset"] for row in tables.read(CANDIDATES, "sweep-1")] == [100]
    (row,) = tables.read(SCAN_ERRORS, "sweep-1")
    assert (row["stage"], row["broker"], row["topic"], row["partition"]) == ("read", 3, "p", 1)
    last = tables.last_sweep()
    assert last is not None
    assert (last["hanging"], last["candidates"], last["complete"], last["partitions_answered"]) == (2, 1, False, 1)


def test_the_stored_evidence_gives_the_stored_verdict_again(tables: Tables) -> None:
    from txnscan.engine.rows import from_row

    tables.write(scan(ORPHAN, STALE, ONGOING, YOUNG, store_all=True))
    rows = tables.read(OPEN_TRANSACTIONS, "sweep-1")
    judgements = [judge(from_row(Evidence, row["evidence"])) for row in rows]
    again = {(str(one.verdict), str(one.reason), one.explanation) for one in judgements}
    assert again == {(r["verdict"], r["reason"], r["explanation"]) for r in rows}
    assert len(judgements) == 4


def test_healthy_transactions_are_counted_by_topic_and_verdict_and_have_no_row(tables: Tables) -> None:
    owed = judged(view("PrepareCommit", 4, ("p-1",)), partition=1, first_seen_ms=NOW_MS)
    tables.write(scan(ORPHAN, ONGOING, ENDED, owed))
    assert [row["start_offset"] for row in tables.read(OPEN_TRANSACTIONS, "sweep-1")] == [100]
    last = tables.last_sweep()
    assert last is not None
    assert [tuple(count.values()) for count in last["healthy"]] == [
        ("p", "gone", 1),
        ("p", "ongoing", 1),
        ("p", "pending_marker", 1),
    ]
    assert set(tables.last_seen("cluster-1")()) == {one.observation.transaction_key for one in (ORPHAN, ONGOING, owed)}


# --- since when a transaction is open ---------------------------------------------------------------------------------


def test_a_transaction_keeps_the_time_at_which_it_was_first_seen(after: After) -> None:
    tables = after(scan(YOUNG))
    assert tables.last_seen("cluster-1")() == {YOUNG.observation.transaction_key: Sighting(NOW_MS, 3)}
    assert tables.unresolved("cluster-1")() == {YOUNG.observation.transaction_key: Incident(NOW_MS, None)}
    assert tables.last_seen("another cluster")() == {}
    assert tables.unresolved("another cluster")() == {}


def test_another_transaction_does_not_inherit_an_age(after: After) -> None:
    tables = after(scan(YOUNG))
    stored = {**tables.last_seen("cluster-1")(), **tables.unresolved("cluster-1")()}
    with Cases() as cases:
        for changed in ({"topic_id": "t1"}, {"start_offset": 201}, {"producer_id": 8}, {"partition": 1}):
            with cases.case(changed):
                assert replace(YOUNG.observation, **changed).transaction_key not in stored


def test_a_hanging_transaction_keeps_its_age_while_sweeps_cannot_observe_it(after: After) -> None:
    """A transaction that does not hang starts a new age."""
    tables = after(next_sweep(1, ORPHAN, ONGOING))
    tables.write(next_sweep(2, DOUBTFUL, proven={}))
    assert set(tables.unresolved("cluster-1")()) == {ORPHAN.observation.transaction_key}
    assert set(tables.last_seen("cluster-1")()) == {DOUBTFUL.observation.transaction_key}


def test_a_sweep_of_some_topics_keeps_the_ages_of_the_others(after: After) -> None:
    tables = after(next_sweep(1, ORPHAN, ONGOING))
    tables.write(next_sweep(2, scope="topic=x"))
    assert set(tables.last_seen("cluster-1")()) == {one.observation.transaction_key for one in (ORPHAN, ONGOING)}


def test_if_two_scopes_saw_a_transaction_the_earlier_time_counts(tables: Tables) -> None:
    observation = replace(ONGOING.observation, first_seen_ms=NOW_MS + 1)
    later = replace(ONGOING, evidence=replace(ONGOING.evidence, observation=observation))
    for number, seen, scope in ((1, later, "topic=p"), (2, ONGOING, "all"), (3, later, "topic=p.*")):
        tables.write(next_sweep(number, seen, scope=scope))
    (last_seen,) = tables.last_seen("cluster-1")().values()
    assert last_seen == Sighting(ONGOING.observation.first_seen_ms, 3)


# --- incidents --------------------------------------------------------------------------------------------------------


def test_incidents_are_watched_until_they_are_resolved(after: After) -> None:
    tables = after(next_sweep(1, ORPHAN, STALE))
    assert set(tables.unresolved("cluster-1")()) == {one.observation.transaction_key for one in (ORPHAN, STALE)}
    tables.write(next_sweep(2, ORPHAN))
    assert set(tables.unresolved("cluster-1")()) == {ORPHAN.observation.transaction_key}


def test_a_sweep_that_proved_no_partition_closes_no_incident(after: After) -> None:
    tables = after(next_sweep(1, STALE))
    tables.write(next_sweep(2, proven={}))
    assert incidents(tables)[incident_id("cluster-1", STALE)]["resolved_at"] is None


def test_if_the_topic_was_created_again_the_incident_is_closed_with_that_reason(after: After) -> None:
    tables = after(next_sweep(1, STALE))
    tables.write(next_sweep(2, proven={("p", 1): "t1"}))
    assert incidents(tables)[incident_id("cluster-1", STALE)]["resolved_how"] == "topic_recreated"


def test_a_sweep_does_not_close_an_incident_that_another_sweep_opened_meanwhile(
    opens: Opens, tables: Tables, location: str
) -> None:
    tables.unresolved("cluster-1")()
    opens(location).write(next_sweep(1, STALE))
    tables.write(next_sweep(2))
    assert incidents(tables)[incident_id("cluster-1", STALE)]["resolved_at"] is None


def test_the_next_sweep_reads_since_when_the_last_stable_offset_stands_still(tables: Tables) -> None:
    """From the incident, which keeps it. The groups are from the second sweep."""
    group = BlockedGroup("billing", Standing.AT_LSO, "Stable", 100, 5)
    owner = Owner("sink", "Flink", "ask")
    impact = Impact(Cause.NEVER_ADDED, "a reason", owner, groups=(group,), groups_blocked=1)
    tables.write(scan(ORPHAN, impacts={ORPHAN.observation.transaction_key: impact}))
    (incident,) = tables.unresolved("cluster-1")().values()
    read_at_ms = ORPHAN.observation.second_read_at_ms
    assert incident.impact == KnownImpact(100, read_at_ms, Cause.NEVER_ADDED, "a reason", "sink")

    again = replace(impact, lso_since_ms=read_at_ms, groups=(), groups_blocked=0)
    later = judged(second_read_at_ms=read_at_ms + LATER_MS)
    at_ms = NOW_MS + LATER_MS
    second = scan(later, impacts={ORPHAN.observation.transaction_key: again}, sweep_id="sweep-2")
    tables.write(replace(second, started_at_ms=at_ms, finished_at_ms=at_ms + 500))
    (incident,) = tables.unresolved("cluster-1")().values()
    assert incident.impact is not None and incident.impact.lso_since_ms == read_at_ms
    rows = sorted(tables.rows(OPEN_TRANSACTIONS), key=lambda row: row["started_at"])
    assert [row["lso_unmoved_ms"] for row in rows] == [None, LATER_MS]
    assert [[one["group"] for one in row["blocked_groups"]] for row in rows] == [["billing"], []]
    (row,) = tables.rows(INCIDENTS)
    assert (row["groups_blocked"], row["framework"]) == (0, "Flink")


def test_apply_adds_its_knowledge_to_the_incident(tables: Tables) -> None:
    siblings = Siblings(("q-0", "r-1"), (4,), NOW_MS)
    unknown = hanging(100, known("unknown", "no record", siblings=siblings))
    tables.write(next_sweep(1, unknown, hanging(200, known("unknown", "no record"))))
    tables.remember(incident_id("cluster-1", unknown), known("maybe_committed", "a COMMIT marker"))
    kept = {row["start_offset"]: row for row in incidents(tables).values()}
    assert (kept[100]["outcome"], kept[100]["outcome_reason"]) == ("maybe_committed", "a COMMIT marker")
    assert kept[100]["siblings"]["marker_epochs"] == [4]
    assert kept[200]["outcome"] == "unknown"


def test_a_plan_uses_the_best_known_outcome_and_the_error_of_the_last_sweep(after: After) -> None:
    from txnscan.resolve.journal import stored_hanging

    tables = after(next_sweep(1, hanging(100, known("committed", "it committed", owner_committed=True))))
    lost = known("unknown", "no record", settled=False, log_error="broker 2 is down")
    tables.write(next_sweep(2, hanging(100, lost)))
    (stored,) = stored_hanging(tables, "sweep-2")
    assert (stored.outcome, stored.outcome_reason, stored.owner_committed) == ("committed", "it committed", True)
    assert stored.log_error == "broker 2 is down"


# --- tables of other versions, and damaged tables ---------------------------------------------------------------------


def without(table: Table, *names: str) -> Table:
    """The table as a version of txnscan without these columns creates it."""
    return replace(table, columns=tuple(column for column in table.columns if column.name not in names))


def test_new_columns_and_renewed_constraints_are_reported(
    opens: Opens, location: str, wording: SnapshotAssertion
) -> None:
    from txnscan.store.delta import REVISION_PROPERTY, Renewal

    tables = opens(location)
    for table in TABLES:
        tables.delta.create(without(table, "warnings", "os_user", "principal"))
    tables.delta.renew(SWEEPS, Renewal([], {}, {REVISION_PROPERTY: "0"}))
    lines: list[str] = []
    tables.create(lines.append)
    assert sorted(line.replace(location, "TABLES") for line in lines) == wording
    opens(location).create(lines.append)
    assert len(lines) == 3


def test_lost_ages_start_again_and_that_is_reported(after: After, location: str, wording: SnapshotAssertion) -> None:
    """Tables of a version without ages are not refused."""
    tables = after(scan(ORPHAN, ONGOING))
    shutil.rmtree(f"{location}/first_seen")
    lines: list[str] = []
    tables.create(lines.append)
    assert [line.replace(location, "TABLES") for line in lines] == wording
    assert tables.last_seen("cluster-1")() == {}
    assert set(tables.unresolved("cluster-1")()) == {ORPHAN.observation.transaction_key}


def test_tables_of_a_later_revision_are_written_and_not_changed(tables: Tables) -> None:
    from txnscan.store.delta import REVISION_PROPERTY, Renewal

    tables.delta.renew(RESOLUTIONS, Renewal(["step_known"], {"step_known": "step <> 'nothing'"}, {}))
    tables.delta.renew(SWEEPS, Renewal([], {}, {REVISION_PROPERTY: str(SCHEMA_REVISION + 1)}))
    lines: list[str] = []
    tables.create(lines.append)
    tables.write(scan(ORPHAN))
    assert (lines, len(tables.rows(SWEEPS))) == ([], 1)
    assert "nothing" in tables.delta.properties(RESOLUTIONS)["delta.constraints.step_known"]


def test_tables_that_cannot_be_used_are_refused(opens: Opens, location: str, wording: SnapshotAssertion) -> None:
    from txnscan.store.delta import REVISION_PROPERTY, VERSION_PROPERTY, Renewal, arrow_rows

    refused: dict[str, str] = {}

    def refuse(name: str, tables: Tables) -> None:
        with pytest.raises(ConfigError) as raised:
            tables.create()
        refused[name] = str(raised.value).replace(location, "TABLES")

    foreign = opens(f"{location}/foreign")
    foreign.delta.create(replace(without(SWEEPS, "cluster_id"), checks=()))
    refuse("no column cluster_id", foreign)

    later = opens(f"{location}/later")
    later.create()
    later.delta.renew(SWEEPS, Renewal([], {}, {VERSION_PROPERTY: "2"}))
    refuse("a later schema", later)

    broken = opens(f"{location}/broken")
    broken.create()
    broken.delta.renew(OPEN_TRANSACTIONS, Renewal(["partition_not_negative"], {}, {}))
    rows = [{**row, "partition": -1} for row in OPEN_TRANSACTIONS.rows(scan(), [ORPHAN])]
    broken.delta.append(OPEN_TRANSACTIONS, arrow_rows(OPEN_TRANSACTIONS.columns, rows))
    broken.delta.renew(SWEEPS, Renewal([], {}, {REVISION_PROPERTY: "0"}))
    refuse("a row breaks a constraint", broken)

    assert refused == wording


def test_if_the_table_of_sweeps_is_gone_the_others_are_refused(
    after: After, opens: Opens, location: str, wording: SnapshotAssertion
) -> None:
    tables = after(scan(ORPHAN))
    shutil.rmtree(f"{location}/sweeps")
    calls: dict[str, Callable[[], object]] = {
        "to write": tables.create,
        "to read": tables.last_sweep,
        "no tables at all": opens(f"{location}/nowhere").last_sweep,
    }
    refused: dict[str, str] = {}
    for name, call in calls.items():
        with pytest.raises(ConfigError) as raised:
            call()
        refused[name] = str(raised.value).replace(location, "TABLES")
    assert refused == wording


def test_a_change_of_a_constraint_or_property_raises_the_revision() -> None:
    """Without a higher revision, existing tables keep theirs. Put the new digest here, under the next number."""
    from txnscan.store.delta import REVISION_PROPERTY, properties

    kept = {table.name: {**properties(table), REVISION_PROPERTY: ""} for table in TABLES}
    digest = hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:12]
    assert (SCHEMA_REVISION, digest) == (1, "7190a61c0132")
