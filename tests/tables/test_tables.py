"""The tables of sweeps, for the next sweep and for dashboards."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.builders import MINUTE_MS, NOW_MS, failed, judged, known, plan, said, scan, stored, unobserved, view
from tests.cases import Cases
from tests.tables.stored import (
    COMMIT,
    DOUBTFUL,
    ENDED,
    LATER_MS,
    ONGOING,
    ORPHAN,
    SEEN_COMMIT,
    STALE,
    YOUNG,
    After,
    hanging,
    incidents,
    log_read,
    logged,
    next_sweep,
    read_for,
    reads_of,
    swept,
)
from txnscan.config import ConfigError, Location
from txnscan.sweeps.column import epoch_ms, timestamp
from txnscan.sweeps.history import Incident, Sighting
from txnscan.sweeps.preflight import Level
from txnscan.sweeps.row import incident_id
from txnscan.tables.delta import READABLE_PROPERTY, VERSION_PROPERTY, By
from txnscan.tables.history import life, remembered
from txnscan.tables.maintain import kept
from txnscan.tables.preflight import check_tables
from txnscan.tables.schema import (
    CANDIDATES,
    FACTS,
    INCIDENTS,
    OPEN_TRANSACTIONS,
    READABLE_SINCE,
    SCAN_ERRORS,
    SCHEMA_VERSION,
    SWEEPS,
    TABLES,
    Table,
)
from txnscan.txnlog.facts import ProducerFacts, SeenMarker
from txnscan.verdict.evidence import Evidence
from txnscan.verdict.rules import judge
from txnscan.waiting.cause import Cause
from txnscan.waiting.impact import BlockedGroup, BlockReason, CarriedImpact, Impact
from txnscan.waiting.owner import Owner
from txnscan.waiting.writability import WriteStates

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from syrupy.assertion import SnapshotAssertion

    from tests.conftest import Opens
    from txnscan.tables.tables import Tables

LATER = str(SCHEMA_VERSION + 1)


# --- stored sweeps ----------------------------------------------------------------------------------------------------


def test_a_sweep_stores_its_transactions_candidates_errors_and_counts(tables: Tables) -> None:
    error = unobserved("read", "broker 3 cannot be reached", 3, "p", 1)
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


def test_the_stored_evidence_gives_the_stored_verdict(tables: Tables) -> None:
    from txnscan.engine.rows import from_row

    tables.write(scan(ORPHAN, STALE, ONGOING, YOUNG, store_all=True))
    rows = tables.read(OPEN_TRANSACTIONS, "sweep-1")
    judgements = [judge(from_row(Evidence, row["evidence"])) for row in rows]
    again = {(str(one.verdict), str(one.reason), one.explanation) for one in judgements}
    assert again == {(r["verdict"], r["reason"], r["explanation"]) for r in rows}
    assert len(judgements) == 4


def test_healthy_transactions_are_counted_and_have_no_row(tables: Tables) -> None:
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


def test_a_live_transaction_that_holds_readers_back_gets_a_row_and_no_incident(after: After) -> None:
    """The others are only counted. A plan does not offer it."""
    from txnscan.resolve.plan_of_sweep import stored_hanging

    claim = view("Ongoing", 3, ("p-1",), start_time_ms=NOW_MS - 6 * MINUTE_MS)
    blocking, counted = judged(claim, partition=1), judged(view("Ongoing", 3, ("p-0",)))
    group = BlockedGroup("billing", BlockReason.AT_LSO, "Stable", 100, 5)
    impact = Impact(None, None, Owner("X", None, None), groups=(group,), groups_blocked=1, groups_asked=4)
    tables = after(swept(blocking, counted, impacts={blocking.observation.transaction_key: impact}))
    (row,) = tables.read(OPEN_TRANSACTIONS, "sweep-1")
    assert (row["partition"], row["verdict"], row["blocking"], row["candidate"]) == (1, "ongoing", True, False)
    assert epoch_ms(row["ends_by"]) == NOW_MS + 9 * MINUTE_MS
    assert (row["blocked_records"], row["groups_blocked"], row["cause"]) == (5, 1, None)
    assert [one["group"] for one in row["blocked_groups"]] == ["billing"]
    last = tables.last_sweep()
    assert last is not None
    assert (last["blocking"], last["blocking_after_ms"], last["ongoing"]) == (1, 5 * MINUTE_MS, 2)
    assert [tuple(count.values()) for count in last["healthy"]] == [("p", "ongoing", 2)]
    assert incidents(tables) == {} and stored_hanging(tables, "sweep-1") == []


# --- ages -------------------------------------------------------------------------------------------------------------


def test_a_transaction_keeps_its_first_sighting(after: After) -> None:
    tables = after(scan(YOUNG))
    assert tables.last_seen("cluster-1")() == {YOUNG.observation.transaction_key: Sighting(NOW_MS, 3)}
    assert tables.unresolved("cluster-1")() == {
        YOUNG.observation.transaction_key: Incident(NOW_MS, None, 3, 4, 300, 0, 5)
    }
    assert tables.last_seen("another cluster")() == {}
    assert tables.unresolved("another cluster")() == {}


def test_another_transaction_does_not_inherit_an_age(after: After) -> None:
    tables = after(scan(YOUNG))
    stored = {**tables.last_seen("cluster-1")(), **tables.unresolved("cluster-1")()}
    with Cases() as cases:
        for changed in ({"topic_id": "t1"}, {"start_offset": 201}, {"producer_id": 8}, {"partition": 1}):
            with cases.case(changed):
                assert replace(YOUNG.observation, **changed).transaction_key not in stored


def test_a_hanging_transaction_keeps_its_age_while_it_is_unobserved(after: After) -> None:
    """Another transaction starts a new age."""
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


def test_an_incident_of_a_recreated_topic_is_closed_with_that_reason(after: After) -> None:
    tables = after(next_sweep(1, STALE))
    tables.write(next_sweep(2, proven={("p", 1): "t1"}))
    assert incidents(tables)[incident_id("cluster-1", STALE)]["resolved_how"] == "topic_recreated"


def test_an_incident_of_a_deleted_topic_is_closed_and_not_reopened(after: After) -> None:
    tables = after(next_sweep(1, STALE))
    tables.write(next_sweep(2, proven={}, topics_gone={("p", "other"): "topic_deleted"}))
    assert incidents(tables)[incident_id("cluster-1", STALE)]["is_open"]
    tables.write(next_sweep(3, proven={}, topics_gone={("p", "t0"): "topic_deleted"}))
    tables.write(next_sweep(4, STALE))
    row = incidents(tables)[incident_id("cluster-1", STALE)]
    assert (row["is_open"], row["resolved_how"], row["sweeps"]) == (False, "topic_deleted", 1)


def test_a_sweep_does_not_close_an_incident_opened_by_another_sweep_meanwhile(
    opens: Opens, tables: Tables, location: str
) -> None:
    tables.unresolved("cluster-1")()
    opens(location).write(next_sweep(1, STALE))
    tables.write(next_sweep(2))
    assert incidents(tables)[incident_id("cluster-1", STALE)]["resolved_at"] is None


def test_the_next_sweep_reads_the_time_without_progress_from_the_incident(tables: Tables) -> None:
    """The incident keeps it. The groups are from the second sweep."""
    group = BlockedGroup("billing", BlockReason.AT_LSO, "Stable", 100, 5)
    owner = Owner("sink", "Flink", "ask")
    impact = Impact(Cause.NEVER_ADDED, "a reason", owner, groups=(group,), groups_blocked=1)
    tables.write(scan(ORPHAN, impacts={ORPHAN.observation.transaction_key: impact}))
    (incident,) = tables.unresolved("cluster-1")().values()
    read_at_ms = ORPHAN.observation.second.read_at_ms
    assert incident.impact == CarriedImpact(100, read_at_ms, Cause.NEVER_ADDED, "a reason", "sink")

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


def test_a_sweep_with_an_earlier_view_of_the_partition_does_not_close_the_incident(after: After) -> None:
    tables = after(next_sweep(1, STALE))
    tables.write(next_sweep(2, ends={("p", 1): (5, 100)}))
    assert incidents(tables)[incident_id("cluster-1", STALE)]["resolved_at"] is None


def test_an_unchanged_incident_is_not_written(after: After, location: str) -> None:
    from deltalake import DeltaTable

    def version() -> int:
        return DeltaTable(f"{location}/incidents").version()

    tables = after(next_sweep(1, STALE))
    before = version()
    tables._fold_incidents(next_sweep(1, STALE))
    tables._fold_incidents(next_sweep(2, ends={("p", 1): (5, 100)}))
    assert version() == before


# --- facts ------------------------------------------------------------------------------------------------------------

UNDECIDED = hanging(100, known("unknown", "the row of the sweep"))


def planned(tables: Tables, sweep_id: str) -> tuple[str | None, str | None]:
    """The outcome in a plan, and the failure of the log."""
    from txnscan.resolve.plan_of_sweep import stored_hanging

    (found,) = stored_hanging(tables, sweep_id)
    return found.outcome, said(found.log_failure)


def test_a_plan_computes_the_outcome_from_the_reads_of_all_sweeps(after: After) -> None:
    """The last sweep had no new records, or could not read the log."""
    tables = after(next_sweep(1, UNDECIDED, **read_for(UNDECIDED, COMMIT)))
    tables.write(next_sweep(2, UNDECIDED, **read_for(UNDECIDED)))
    assert planned(tables, "sweep-1") == planned(tables, "sweep-2") == ("committed", None)
    lost = hanging(100, known("unknown", "no record", log_failure=failed("broker 2 is down")))
    tables.write(next_sweep(3, lost, **read_for(lost)))
    assert planned(tables, "sweep-3") == ("maybe_committed", "broker 2 is down")


def test_a_plan_uses_the_reads_of_an_unfinished_sweep(after: After) -> None:
    tables = after(next_sweep(1, UNDECIDED, **read_for(UNDECIDED)))
    assert planned(tables, "sweep-1") == ("unknown", None)
    tables._append(next_sweep(2, UNDECIDED, **read_for(UNDECIDED, COMMIT)), FACTS)
    assert planned(tables, "sweep-1") == ("committed", None)


def test_a_plan_uses_a_marker_seen_by_an_apply(after: After) -> None:
    from txnscan.resolve.journal import TablesJournal

    tables = after(next_sweep(1, UNDECIDED, **read_for(UNDECIDED)))
    TablesJournal(tables).remember(plan(stored()), SeenMarker("q", 0, 50, 7, 3))
    assert planned(tables, "sweep-1") == ("maybe_committed", None)


def test_a_plan_leaves_out_what_an_apply_has_ended_since_the_sweep(after: After) -> None:
    from txnscan.resolve.apply import Status
    from txnscan.resolve.journal import TablesJournal
    from txnscan.resolve.plan_of_sweep import stored_hanging

    tables = after(next_sweep(1, UNDECIDED, **read_for(UNDECIDED)))
    (before,) = stored_hanging(tables, "sweep-1")
    made = plan(stored(incident_id=before.incident_id))
    journal = TablesJournal(tables, now_ms=lambda: NOW_MS + MINUTE_MS)
    journal.conclude(made, journal.intend(made, made.actions[0], None), made.actions[0], Status.FAILED, "it moved")
    assert stored_hanging(tables, "sweep-1")[0].resolved_ms is None
    journal.conclude(made, journal.intend(made, made.actions[0], None), made.actions[0], Status.RESOLVED, "gone")
    (ended,) = stored_hanging(tables, "sweep-1")
    assert ended.resolved_ms == NOW_MS + MINUTE_MS
    (refusal,) = plan(ended).refused
    assert refusal.guard == "already_resolved"


def test_a_plan_uses_no_computed_columns(after: After) -> None:
    """A change of `incidents`, verdicts or outcomes changes no plan."""
    from txnscan.resolve.plan_of_sweep import stored_hanging
    from txnscan.tables.conditions import Is
    from txnscan.tables.delta import arrow_rows

    tables = after(next_sweep(1, UNDECIDED, **read_for(UNDECIDED)))
    before = stored_hanging(tables, "sweep-1")
    forged = {
        "sweeps": 99,
        "outcome": "not_committed",
        "first_seen_at": timestamp(0),
        "last_seen_at": timestamp(NOW_MS),
    }
    for table, changes in (
        (INCIDENTS, forged),
        (OPEN_TRANSACTIONS, {"reason": "stale_epoch", "outcome": "not_committed", "first_seen_at": timestamp(0)}),
    ):
        rows = [{**row, **changes} for row in tables.rows(table)]
        tables.delta.replace(table, arrow_rows(table.columns, rows), Is("cluster_id", "cluster-1"))
    assert stored_hanging(tables, "sweep-1") == before
    assert (before[0].sweeps, before[0].outcome, before[0].first_seen_ms) == (1, "unknown", NOW_MS - 2_000)


def test_a_plan_uses_a_commit_that_a_sweep_saw_at_its_owner(after: After) -> None:
    """Also by an unfinished sweep, and if later sweeps lack it."""
    tables = after(next_sweep(1, UNDECIDED, **read_for(UNDECIDED)))
    assert planned(tables, "sweep-1") == ("unknown", None)
    tables._append(next_sweep(2, UNDECIDED, **read_for(UNDECIDED, commits=[SEEN_COMMIT])), FACTS)
    tables.write(next_sweep(3, UNDECIDED, **read_for(UNDECIDED)))
    assert planned(tables, "sweep-1") == planned(tables, "sweep-3") == ("maybe_committed", None)


def test_a_seen_commit_counts_for_its_producer_id_if_the_log_has_no_proof(after: After) -> None:
    tables = after(next_sweep(1, UNDECIDED, **read_for(UNDECIDED, commits=[replace(SEEN_COMMIT, producer_id=8)])))
    assert planned(tables, "sweep-1") == ("unknown", None)
    assert [len(tables.facts("cluster-1", {one})()[one].commits) for one in (7, 8)] == [0, 1]
    tables.write(next_sweep(2, UNDECIDED, **read_for(UNDECIDED, COMMIT, commits=[SEEN_COMMIT])))
    assert planned(tables, "sweep-1") == planned(tables, "sweep-2") == ("committed", None)


@pytest.mark.parametrize("last", ["the one that saw it", "the other one"])
def test_a_commit_seen_by_one_of_two_concurrent_sweeps_is_kept(
    after: After, opens: Opens, location: str, last: str
) -> None:
    """Each has read the tables before the other wrote."""
    after(next_sweep(1, UNDECIDED, **read_for(UNDECIDED)))
    saw = next_sweep(2, UNDECIDED, **read_for(UNDECIDED, commits=[SEEN_COMMIT]))
    other = next_sweep(3, UNDECIDED, **read_for(UNDECIDED))
    sweeps = [other, saw] if last == "the one that saw it" else [saw, other]
    writers = [opens(location), opens(location)]
    for tables in writers:
        tables.unresolved("cluster-1")()
        assert tables.facts("cluster-1", {7})()[7].commits == ()
    for tables, sweep in zip(writers, sweeps, strict=True):
        tables.write(sweep)
    for sweep_id in ("sweep-1", "sweep-2", "sweep-3"):
        assert planned(opens(location), sweep_id) == ("maybe_committed", None)


def test_two_transactions_of_a_producer_id_store_their_facts_once(tables: Tables) -> None:
    one, other = hanging(100, known("unknown")), hanging(200, known("unknown"))
    of_each = [read_for(each, COMMIT, commits=[SEEN_COMMIT])["outcome_evidence"] for each in (one, other)]
    tables.write(next_sweep(1, one, other, outcome_evidence={**of_each[0], **of_each[1]}))
    (row,) = tables.rows(FACTS)
    assert (len(row["reads"]), len(row["commits"])) == (1, 1)


def test_rewriting_a_sweep_deletes_no_fact(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process may end, or the storage may fail, before everything is rewritten."""
    sweep = next_sweep(1, UNDECIDED, **read_for(UNDECIDED, COMMIT, commits=[SEEN_COMMIT]))
    tables.write(sweep)
    with monkeypatch.context() as broken:
        broken.setattr(tables.delta, "append", lambda *_: (_ for _ in ()).throw(OSError("no space")))
        with pytest.raises(OSError, match="no space"):
            tables.write(sweep)
    assert tables.facts("cluster-1", {7})()[7] == ProducerFacts(tuple(reads_of(sweep)), commits=(SEEN_COMMIT,))
    tables.write(sweep)
    assert [len(tables.rows(table)) for table in (FACTS, OPEN_TRANSACTIONS, SWEEPS)] == [1, 1, 1]


def test_facts_are_read_during_the_sweep_and_only_if_needed(tables: Tables) -> None:
    assert tables.past("cluster-1")().history == 0, "which a sweep reads first"
    begun = tables.facts("cluster-1", {7})
    shutil.rmtree(tables.delta.location.of_table("sweeps"))
    assert begun()[7].reads == ()
    shutil.rmtree(tables.delta.location.text)
    assert tables.facts("cluster-1", ())() == {}
    with pytest.raises(ConfigError, match=r"^--tables: there are no tables"):
        tables.facts("cluster-1", {7})()


def test_every_read_of_the_log_is_kept(after: After) -> None:
    """Also reads of the former log after its recreation, and reads with fewer records."""
    reads = (COMMIT, log_read(logged("Empty", 4), topic_id="ts1"), log_read(None, leader_epoch=3))
    sweeps = [next_sweep(number, UNDECIDED, **read_for(UNDECIDED, read)) for number, read in enumerate(reads)]
    tables = after(*sweeps)
    assert set(tables.facts("cluster-1", {7})()[7].reads) == set(reads_of(*sweeps))


# --- tables of other versions, and damaged tables ---------------------------------------------------------------------


def without(table: Table, *names: str) -> Table:
    """The table as created by a version of txnscan without these columns."""
    return replace(table, columns=tuple(column for column in table.columns if column.name not in names))


def test_lost_ages_start_again_with_a_report(after: After, location: str, wording: SnapshotAssertion) -> None:
    tables = after(scan(ORPHAN, ONGOING))
    shutil.rmtree(f"{location}/first_seen")
    lines: list[str] = []
    tables.create(lines.append)
    assert [line.replace(location, "TABLES") for line in lines] == wording
    assert tables.last_seen("cluster-1")() == {}
    assert set(tables.unresolved("cluster-1")()) == {ORPHAN.observation.transaction_key}


def test_unusable_tables_are_refused(
    opens: Opens, location: str, monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    refused: dict[str, str] = {}

    def refuse(name: str, tables: Tables) -> None:
        with pytest.raises(ConfigError) as raised:
            tables.create()
        refused[name] = str(raised.value).replace(location, "TABLES")

    foreign = opens(f"{location}/foreign")
    foreign.delta.create(replace(without(SWEEPS, "cluster_id"), checks=(), partitioned_by=()))
    refuse("no column cluster_id", foreign)

    narrow = opens(f"{location}/narrow")
    for table in TABLES:
        narrow.delta.create(without(table, "first_epoch"))
    refuse("no column first_epoch", narrow)

    for name, attribute, value in (
        ("an earlier schema", "SCHEMA_VERSION", READABLE_SINCE - 1),
        ("a later schema", "SCHEMA_VERSION", SCHEMA_VERSION + 1),
        ("tables of another program", "VERSION_PROPERTY", "another.version"),
    ):
        other = opens(f"{location}/{name.replace(' ', '-')}")
        with monkeypatch.context() as of_other:
            of_other.setattr(f"txnscan.tables.delta.{attribute}", value)
            other.create()
        refuse(name, other)

    assert refused == wording


def test_without_the_table_of_sweeps_the_others_are_refused(
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


def test_every_reader_refuses_tables_of_a_form_that_it_does_not_know(opens: Opens, after: After, location: str) -> None:
    after(scan(ORPHAN)).delta.set_properties(SWEEPS, {VERSION_PROPERTY: LATER, READABLE_PROPERTY: LATER})
    which = ORPHAN.observation.transaction_key
    readers: dict[str, Callable[[Tables], object]] = {
        "rows": lambda tables: tables.rows(FACTS),
        "a sweep": lambda tables: tables.read(OPEN_TRANSACTIONS, "sweep-1"),
        "the last sweeps": lambda tables: tables.last_sweeps(),
        "the history": lambda tables: remembered(tables, None, 1),
        "an incident": lambda tables: life(tables, "a"),
        "what maintain keeps": lambda tables: kept(tables, 0, NOW_MS),
        "a gate": lambda tables: tables.last_topic_reads(["orders"]),
        "a gate of a cluster": lambda tables: tables.topic_reads("cluster-1", ["orders"])(),
        "the past": lambda tables: tables.past("cluster-1")(),
        "incidents": lambda tables: tables.unresolved("cluster-1")(),
        "ended incidents": lambda tables: tables.ended("cluster-1", {which})(),
        "ages": lambda tables: tables.last_seen("cluster-1")(),
        "facts": lambda tables: tables.facts("cluster-1", {7})(),
        "disks": lambda tables: tables.disk_reads("cluster-1", {("p", "t", 0)}, NOW_MS)(),
        "a check": lambda tables: tables.to_create(),
    }
    with Cases() as cases:
        for name, reads in readers.items():
            with cases.case(name), pytest.raises(ConfigError, match=f"version {LATER}"):
                reads(opens(location))


# delta-rs panics at the first four, and makes tables elsewhere for most others.
REFUSED_PATHS = ("a[1]b", "a]", "a^b", "a|b", "%41", "a%20b", "a%C3%BC", "a\\b", "a\nb", "a\x7fb", "a\udcffb", "a\0b")


@pytest.mark.parametrize("name", REFUSED_PATHS)
def test_a_path_that_delta_rs_cannot_open_is_refused_before_anything_is_made(
    opens: Opens, tmp_path: Path, name: str
) -> None:
    with pytest.raises(ConfigError, match="--tables"):
        opens(f"{tmp_path}/{name}/tables")
    assert list(tmp_path.iterdir()) == []


def test_a_path_counts_without_its_links(opens: Opens, tmp_path: Path) -> None:
    (tmp_path / "a[1]").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a[1]")
    with pytest.raises(ConfigError, match="--tables"):
        opens(f"{tmp_path}/link")
    (found,) = check_tables(Location.of(f"{tmp_path}/link"), lambda: opens(f"{tmp_path}/link"))
    assert found.level is Level.FAILED


def test_a_path_may_have_most_characters(opens: Opens, tmp_path: Path) -> None:
    for name in ("a b ü 😀 #?*'\"`{}~<>&=:;,$!@", "a%b%"):
        tables = opens(f"{tmp_path}/{name}")
        tables.create()
        tables.write(next_sweep(1))
        assert len(opens(f"{tmp_path}/{name}").last_sweeps()) == 1


def test_a_change_of_the_schema_raises_its_version() -> None:
    """Otherwise tables of the previous version would be accepted. Add the new digest here, under the next number."""
    from txnscan.tables.delta import arrow_of, properties

    kept = [
        (
            table.name,
            [(column.name, str(arrow_of(column)), column.required) for column in table.columns],
            table.partitioned_by,
            sorted({**properties(table), VERSION_PROPERTY: ""}.items()),
        )
        for table in TABLES
    ]
    digest = hashlib.sha256(repr(kept).encode()).hexdigest()[:12]
    assert (SCHEMA_VERSION, digest) == (22, "23ae0e2a859f")


def test_a_sweep_stores_what_the_stop_of_a_broker_would_leave_without_a_leader(opens: Opens, location: str) -> None:
    tables = opens(location)
    tables.create()
    for number, counts in enumerate((None, {}, {3: 2, 1: 7})):
        tables.write(replace(next_sweep(number), writes=WriteStates(behind_last=counts)))
    rows = tables.rows(SWEEPS, columns=("stops",), order=(By("started_at"),))
    assert [row["stops"] for row in rows] == [
        None,
        [],
        [{"broker_id": 1, "transactions": 7}, {"broker_id": 3, "transactions": 2}],
    ]
