"""The contract of the tables: every test runs on Spark and on delta-rs.

A test belongs here if a store does the work: it creates a table, converts values, evaluates a condition, merges,
replaces, deletes, or detects a second writer. tests/tables has the others, on delta-rs alone.
"""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import NOW_MS, judged, plan, scan, stored, unobserved, view
from tests.tables.stored import (
    COMMIT,
    DOUBTFUL,
    ONGOING,
    ORPHAN,
    SEEN_COMMIT,
    STALE,
    YOUNG,
    After,
    Prepared,
    incidents,
    log_read,
    next_sweep,
    read_for,
    reads_of,
    swept,
    versions,
)
from txnscan.config import ConfigError
from txnscan.kafka.answers import EpochEnd
from txnscan.resolve.apply import ApplyRunning, Status
from txnscan.resolve.plan import PlanRefused
from txnscan.sweeps.column import timestamp
from txnscan.sweeps.row import incident_id
from txnscan.tables.open import open_tables, through_spark
from txnscan.tables.schema import (
    APPLY_LOCKS,
    FACTS,
    FIRST_SEEN,
    INCIDENTS,
    OPEN_TRANSACTIONS,
    READABLE_SINCE,
    RESOLUTIONS,
    SCAN_ERRORS,
    SCHEMA_VERSION,
    SWEEPS,
    TABLES,
    TOPIC_READS,
)
from txnscan.txnlog.facts import NO_FACTS, SeenCommit, SeenMarker
from txnscan.waiting.cause import Cause
from txnscan.waiting.complete_up_to import PartitionRead, TopicRead, concluded
from txnscan.waiting.disk import DiskRead, ReplicaSize, disk_of
from txnscan.waiting.impact import BlockedGroup, BlockReason, Impact
from txnscan.waiting.owner import Owner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.conftest import Opens
    from txnscan.sweeps.result import Scan
    from txnscan.tables.conditions import Condition
    from txnscan.tables.tables import Tables

WAIT_S = 120


@pytest.fixture(scope="module", params=["spark", "delta-rs"])
def opens(request: pytest.FixtureRequest) -> Opens:
    """Opens a location through this store."""
    if request.param == "delta-rs":
        return lambda location: open_tables(location, None)
    spark: SparkSession = request.getfixturevalue("spark")
    return lambda location: through_spark(location, spark)


@pytest.fixture(scope="module")
def prepared(opens: Opens, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Many tests begin with the same sweeps, and Spark needs seconds to write one."""
    return Prepared(opens, tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def after(prepared: Prepared, location: str) -> After:
    """Tables with these sweeps, written by a process that has ended."""
    return lambda *sweeps: prepared.copy(location, *sweeps)


@pytest.fixture
def tables(after: After) -> Tables:
    """Tables without rows."""
    return after()


BOTH = next_sweep(1, ORPHAN, STALE)
BOTH_AGAIN = next_sweep(2, ORPHAN, STALE)
ONE_ENDED = next_sweep(3, ORPHAN)


# --- create -----------------------------------------------------------------------------------------------------------


# The features of writer version 4, which every writer of Delta has.
FEATURES = {"appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants"}


def test_a_created_table_has_its_columns_comments_partitions_and_properties(tables: Tables, location: str) -> None:
    """As read by delta-rs. The protocol requires no feature that only Spark can write."""
    import pyarrow as pa
    from deltalake import DeltaTable

    from txnscan.tables.delta import arrow_of, properties

    for table in TABLES:
        created = DeltaTable(f"{location}/{table.name}")
        fields = created.schema().fields
        assert [(f.name, f.metadata.get("comment"), f.nullable) for f in fields] == [
            (c.name, c.meaning, not c.required) for c in table.columns
        ]
        types = pa.schema(created.schema().to_arrow()).types
        assert types == [arrow_of(column) for column in table.columns]
        metadata, protocol = created.metadata(), created.protocol()
        assert (metadata.description, metadata.partition_columns) == (table.meaning, list(table.partitioned_by))
        assert properties(table).items() <= metadata.configuration.items()
        assert protocol.min_reader_version == 1
        assert protocol.min_writer_version <= 4 or set(protocol.writer_features or ()) <= FEATURES


@pytest.mark.parametrize("broken", [{"verdict": "guilty"}, {"cluster_id": None}], ids=["constraint", "not null"])
def test_rows_that_break_a_constraint_are_refused(tables: Tables, broken: dict[str, Any]) -> None:
    from txnscan.tables.delta import arrow_rows

    rows = [{**row, **broken} for row in OPEN_TRANSACTIONS.rows(scan(), [ORPHAN])]
    with pytest.raises(Exception, match="|".join([*broken, "validation"])):  # Each library has its own exception.
        tables.delta.append(OPEN_TRANSACTIONS, arrow_rows(OPEN_TRANSACTIONS.columns, rows))
    assert tables.rows(OPEN_TRANSACTIONS) == []


def test_an_interrupted_creation_is_resumed_and_not_repeated(tables: Tables, location: str) -> None:
    for name in ("candidates", "sweeps"):
        shutil.rmtree(f"{location}/{name}")
    tables.create()
    created = versions(location)
    tables.create()
    assert len(created) == len(TABLES) and versions(location) == created


@pytest.mark.parametrize("version", [READABLE_SINCE - 1, SCHEMA_VERSION + 1])
def test_tables_of_another_schema_are_refused(
    opens: Opens, location: str, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    with monkeypatch.context() as another:
        another.setattr("txnscan.tables.delta.SCHEMA_VERSION", version)
        opens(location).create()
    before = versions(location)
    with pytest.raises(
        ConfigError, match=rf"^--tables: [^\n]*schema version {version}, [^\n]*writes {SCHEMA_VERSION};"
    ):
        opens(location).create()
    assert versions(location) == before


def test_tables_without_a_column_are_refused(opens: Opens, location: str) -> None:
    lacking = opens(location)
    for table in TABLES:
        columns = tuple(column for column in table.columns if column.name != "scans")
        lacking.delta.create(replace(table, columns=columns))
    before = versions(location)
    with pytest.raises(ConfigError, match=r"^--tables: [^\n]*facts[^\n]* scans; [^\n]*$"):
        opens(location).create()
    assert versions(location) == before


def test_a_missing_or_unwritable_location_is_a_config_error(opens: Opens, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--tables: "):
        opens(str(tmp_path / "nowhere")).last_sweep()
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(ConfigError, match=r"^--tables: [^\n]*$"):
        opens(str(tmp_path / "file" / "tables")).create()


# --- append and read --------------------------------------------------------------------------------------------------

GROUP = BlockedGroup("billing", BlockReason.AT_LSO, "Stable", 100, 5)
IMPACT = Impact(Cause.NEVER_ADDED, 'it\'s \\ \n "so" ✓', Owner("sink-3-17", "Flink", "ask"), groups=(GROUP,))


def test_values_survive_a_round_trip(tables: Tables) -> None:
    from txnscan.tables.delta import By, arrow_rows, from_arrow
    from txnscan.tables.tables import OF_SWEEPS, items_of

    sweep = swept(
        ORPHAN, YOUNG, ONGOING,
        **read_for(ORPHAN, COMMIT),
        errors=(unobserved("read", "it's \\ broker 3\n✓", 3, "p", 1), unobserved("configs", "")),
        impacts={ORPHAN.observation.transaction_key: IMPACT},
        partitions_failed=1, store_all=True, warnings=("one", "two"),
    )  # fmt: skip
    tables.write(sweep)
    for table in OF_SWEEPS:
        order = [By(name) for name in ("start_offset", "error") if name in {column.name for column in table.columns}]
        expected = from_arrow(arrow_rows(table.columns, table.rows(sweep, items_of(sweep, table))))
        rows = tables.rows(table, order=order)
        if "start_offset" in {column.name for column in table.columns}:
            expected.sort(key=lambda row: row["start_offset"])
        if table is SCAN_ERRORS:
            expected.sort(key=lambda row: row["error"])
        assert rows == expected
    (row,) = tables.rows(SWEEPS)
    assert row["started_at"] == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert (row["started_at"].tzinfo, row["sweep_date"]) == (UTC, date(2023, 11, 14))


def test_every_condition_finds_its_rows(tables: Tables) -> None:
    from txnscan.tables.conditions import Before, Is, IsNot, NoneOf, NotBefore, OneOf, StartsWith
    from txnscan.tables.delta import By

    texts = {1: "it's", 2: "it's \\' more", None: "100% of it_s"}
    errors = tuple(unobserved("read", text, broker) for broker, text in texts.items())
    tables._append(scan(errors=errors), SCAN_ERRORS)
    day = date(2023, 11, 14)
    found: list[tuple[Condition, set[int | None]]] = [
        (Is("broker", 1), {1}),
        (Is("broker", None), {None}),
        (Is("error", "it's"), {1}),
        (Is("error", "it's \\' more"), {2}),
        (IsNot("broker", 1), {2}),
        (IsNot("broker", None), {1, 2}),
        (StartsWith("error", "it's"), {1, 2}),
        (StartsWith("error", "%"), set()),
        (StartsWith("error", "100% of it_"), {None}),
        (OneOf("error", frozenset({"it's", "100% of it_s"})), {1, None}),
        (OneOf("error", frozenset()), set()),
        (OneOf("broker", frozenset({1, 3})), {1}),
        (OneOf("broker", frozenset()), set()),
        (NoneOf("error", frozenset({"it's"})), {2, None}),
        (NoneOf("error", frozenset()), {1, 2, None}),
        (Before("sweep_date", day), set()),
        (Before("sweep_date", date(2023, 11, 15)), {1, 2, None}),
        (NotBefore("sweep_date", day), {1, 2, None}),
        (NotBefore("sweep_date", date(2023, 11, 15)), set()),
    ]
    for condition, brokers in found:
        assert {row["broker"] for row in tables.rows(SCAN_ERRORS, condition)} == brokers, condition
    order = [row["broker"] for row in tables.rows(SCAN_ERRORS, order=[By("broker")])]
    descending = tables.rows(SCAN_ERRORS, order=[By("broker", descending=True)], limit=2, columns=("broker", "absent"))
    assert (order, descending) == ([None, 1, 2], [{"broker": 2, "absent": None}, {"broker": 1, "absent": None}])


def test_the_last_sweep_of_each_cluster_and_scope_is_found(tables: Tables) -> None:
    for number, changes in enumerate(({}, {"scope": "topic=x"}, {"scope": "topic=y"}, {"cluster_id": "cluster-2"}, {})):
        tables._append(next_sweep(number, **changes), SWEEPS)
    assert {row["sweep_id"] for row in tables.last_sweeps()} == {"sweep-2", "sweep-3", "sweep-4"}
    assert {row["sweep_id"] for row in tables.last_sweeps("cluster-1")} == {"sweep-2", "sweep-4"}


def test_an_unfinished_sweep_is_invisible(tables: Tables) -> None:
    tables._append(scan(ORPHAN), OPEN_TRANSACTIONS)
    assert (tables.read(OPEN_TRANSACTIONS, "sweep-1"), tables.last_sweep()) == ([], None)
    assert len(tables.rows(OPEN_TRANSACTIONS)) == 1


def test_a_sweep_written_twice_is_stored_once(tables: Tables) -> None:
    for _ in range(2):
        tables.write(swept(ORPHAN, **read_for(ORPHAN, COMMIT, commits=[SEEN_COMMIT])))
    once = (FACTS, OPEN_TRANSACTIONS, FIRST_SEEN, INCIDENTS, SWEEPS)
    counts = {table.name: len(tables.rows(table)) for table in once}
    assert (set(counts.values()), tables.rows(INCIDENTS)[0]["sweeps"]) == ({1}, 1), counts


def test_two_sweeps_can_be_written_at_the_same_time(after: After, opens: Opens, location: str) -> None:
    """From separate processes, in the view of the store."""
    after()
    commits = (SEEN_COMMIT, replace(SEEN_COMMIT, producer_epoch=4))
    sweeps = [
        replace(sweep, **read_for(ORPHAN, commits=[commit]))
        for sweep, commit in zip((BOTH, BOTH_AGAIN), commits, strict=True)
    ]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda sweep: opens(location).write(sweep), sweeps))
    tables = opens(location)
    counts = [len(tables.rows(table)) for table in (SWEEPS, OPEN_TRANSACTIONS, FIRST_SEEN, INCIDENTS)]
    assert counts == [2, 4, 2, 2]
    assert set(tables.facts("cluster-1", {7})()[7].commits) == set(commits)


CLUSTERS = [f"cluster-{number}" for number in range(10)]


def test_ten_clusters_are_written_at_once_without_conflicts(after: After, opens: Opens, location: str) -> None:
    """Each from its own thread: incidents that open, continue and end, and facts of each cluster."""
    after()
    rounds = [
        [
            replace(
                sweep, cluster_id=one, sweep_id=f"{one}-{sweep.sweep_id}", **read_for(ORPHAN, commits=[SEEN_COMMIT])
            )
            for one in CLUSTERS
        ]
        for sweep in (BOTH, ONE_ENDED)
    ]
    conflicts: list[BaseException] = []

    def write(sweep: Scan) -> None:
        tables = opens(location)
        is_conflict = tables.delta.is_conflict

        def noted(error: BaseException) -> bool:
            conflicts.append(error)
            return is_conflict(error)

        tables.delta.is_conflict = noted  # type: ignore[method-assign]
        tables.write(sweep)

    with ThreadPoolExecutor(len(CLUSTERS)) as pool:
        for sweeps in rounds:
            list(pool.map(write, sweeps))
    tables = opens(location)
    assert not conflicts
    assert {row["sweep_id"] for row in tables.rows(SWEEPS)} == {one.sweep_id for sweeps in rounds for one in sweeps}
    counted = {
        (row["cluster_id"], row["partition"]): (row["sweeps"], row["resolved_how"]) for row in tables.rows(INCIDENTS)
    }
    assert counted == {(one, 0): (2, None) for one in CLUSTERS} | {(one, 1): (1, "ended") for one in CLUSTERS}
    for one in CLUSTERS:
        assert tables.facts(one, {7})()[7].commits == (SEEN_COMMIT,)
        assert [row["cluster_id"] for row in tables.rows(FACTS)].count(one) == 2
        assert len(tables.last_seen(one)()) == 1


# Bytes that are no text, a tombstone, an empty value, and an id with SQL and JSON characters.
ODD = log_read(
    b"\x00\xff\x80'\\\n",
    None,
    b"",
    transactional_id='it\'s \\ "X" ✓',
    epoch_ends=(EpochEnd(0, 3), EpochEnd(2, 2**40)),
    answered_ends=(EpochEnd(2, 2**40),),
)


def test_facts_survive_a_round_trip(opens: Opens, tables: Tables, location: str) -> None:
    """Including facts of an unfinished sweep, without facts of another cluster or producer id."""
    from txnscan.resolve.journal import TablesJournal

    commits = [SeenCommit(ODD.transactional_id, 7, 0), SeenCommit("X", 7, 32_767), SeenCommit("Y", 2**40, 3)]
    finished = next_sweep(1, ORPHAN, **read_for(ORPHAN, COMMIT, ODD, commits=commits[:1]))
    unfinished = next_sweep(2, ORPHAN, **read_for(ORPHAN, log_read(topic_id=""), commits=commits[1:2]))
    other = judged(view("Empty", 9), producer_id=2**40)
    elsewhere = read_for(ORPHAN, COMMIT, commits=[SEEN_COMMIT])
    tables.write(finished)
    tables._append(unfinished, FACTS)
    tables._append(next_sweep(3, other, **read_for(other, COMMIT, commits=commits[2:])), FACTS)
    tables._append(next_sweep(4, ORPHAN, cluster_id="cluster-2", **elsewhere), FACTS)
    markers = [SeenMarker("q", 0, 50, 7, 3), SeenMarker("q", 1, 2**40, 7, 4), SeenMarker("q", 0, 60, 2**40, 0)]
    for journal in (TablesJournal(tables), TablesJournal(opens(location))):
        for marker in markers:
            journal.remember(plan(stored()), marker)
    found = opens(location).facts("cluster-1", {7, 9})()
    assert set(found) == {7, 9} and found[9] == NO_FACTS
    assert (len(found[7].reads), set(found[7].reads)) == (3, set(reads_of(finished, unfinished)))
    assert (len(found[7].markers), set(found[7].markers)) == (2, set(markers[:2]))
    assert (len(found[7].commits), set(found[7].commits)) == (2, set(commits[:2]))
    (only,) = opens(location).facts("cluster-1", {2**40})().values()
    assert (len(only.reads), only.markers, only.commits) == (1, (markers[2],), (commits[2],))
    assert opens(location).facts("cluster-3", {7})() == {7: NO_FACTS}
    assert len([row for row in tables.rows(FACTS) if row["sweep_id"] is None]) == 3, "each marker is stored once"


def test_reads_of_disks_survive_a_round_trip(opens: Opens, tables: Tables, location: str) -> None:
    """Two transactions on one partition have the same read. Reads of more than two days before are not found."""
    other = judged(view("Empty", 5), partition=1, start_offset=101, second_start_offset=101)
    which = STALE.observation.transaction_key[:3]

    def found(number: int) -> DiskRead:
        known = ReplicaSize(1, "/data", 2**40 + number, 2**50, 2**45)
        return DiskRead(NOW_MS + number, "boot", number, (known, ReplicaSize(2, "/it's", number, None, None)))

    def of_sweep(number: int, read: DiskRead | None, **changes: Any) -> Scan:
        owner = Owner(None, None, None)
        impact = Impact(None, None, owner, cleanup_policy="compact", disk=disk_of(read, (), "why"))
        impacts = {one.observation.transaction_key: impact for one in (STALE, other)}
        return next_sweep(number, STALE, other, impacts=impacts, **changes)

    tables.write(of_sweep(1, found(1)))
    tables.write(of_sweep(2, None))
    tables.write(of_sweep(3, found(3)))
    tables.write(of_sweep(4, found(4), cluster_id="cluster-2"))
    history = opens(location)
    asked = {which, ("p", "another id", which[2])}
    assert history.disk_reads("cluster-1", asked, NOW_MS)() == {which: (found(3), found(1))}
    assert history.disk_reads("cluster-1", {("q", "", 0)}, NOW_MS)() == {}
    assert history.disk_reads("cluster-1", asked, NOW_MS + 2 * 86_400_000)() == {}
    rows = history.read(OPEN_TRANSACTIONS, "sweep-2", columns=("partition_bytes", "disk_error"))
    assert rows == 2 * [{"partition_bytes": None, "disk_error": "why"}]


def test_reads_of_topics_survive_a_round_trip_newest_first(opens: Opens, tables: Tables, location: str) -> None:
    first = concluded(TopicRead("t'1", "id", NOW_MS, (PartitionRead(0, 3, 9, 9), PartitionRead(1, code="NO_LEADER"))))
    second = concluded(
        TopicRead("t'1", "id", NOW_MS + 1, (PartitionRead(0, 3, 12, 10), PartitionRead(1, 3, 5, 5))), [first]
    )
    other = concluded(TopicRead("u", "", NOW_MS, code="UNKNOWN_TOPIC_OR_PARTITION"))
    tables.write(next_sweep(1, topic_reads=(first, other)))
    tables.write(next_sweep(2, topic_reads=(second,)))
    found = opens(location)
    assert found.topic_reads("cluster-1", ["t'1", "u", "v"])() == [second, first, other]
    assert found.topic_reads("another cluster", ["u"])() == []
    assert found.last_topic_reads(["u"]) == [("cluster-1", other)]
    rows = {(row["topic"], row["read_at"]): (row["status"], row["complete_up_to"]) for row in found.rows(TOPIC_READS)}
    assert rows == {
        ("t'1", timestamp(NOW_MS)): ("not_observed", None),
        ("t'1", timestamp(NOW_MS + 1)): ("blocked", timestamp(NOW_MS)),
        ("u", timestamp(NOW_MS)): ("not_observed", None),
    }


def test_the_journal_keeps_each_step_once(opens: Opens, tables: Tables, location: str) -> None:
    from txnscan.resolve.journal import TablesJournal
    from txnscan.resolve.lock import Lock

    planned = plan(stored())
    (action,) = planned.actions
    with pytest.raises(PlanRefused):
        TablesJournal(tables).check_planned(planned)
    for journal in (TablesJournal(tables), TablesJournal(opens(location))):
        journal.planned(planned)
    with Lock(tables, "cluster-1") as lock:
        journal = TablesJournal(tables, lock, principal="User:alice", now_ms=lambda: NOW_MS)
        attempt_id = journal.intend(planned, action, "it's \\ over")
        (before,) = TablesJournal(opens(location)).attempts("cluster-1")
        journal.conclude(planned, attempt_id, action, Status.RESOLVED, "done")
    reader = TablesJournal(opens(location))
    reader.check_planned(planned)
    (after,) = reader.attempts("cluster-1")
    assert (before.attempt_id, before.intent_at_ms, before.status) == (attempt_id, NOW_MS, None)
    assert (after.attempt_id, after.status, after.detail) == (attempt_id, "resolved", "done")
    assert (after.action.incident_id, after.action.topic_partition, after.action.marker) == (
        action.incident_id,
        action.topic_partition,
        action.marker,
    )
    assert sorted(row["step"] for row in tables.rows(RESOLUTIONS)) == ["intent", "outcome", "planned"]


def test_one_of_two_processes_gets_the_lock(
    opens: Opens, tables: Tables, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the row alone, as in an object store: without a file lock."""
    from contextlib import nullcontext

    from txnscan.resolve import lock
    from txnscan.resolve.lock import Lock

    monkeypatch.setattr(lock, "_file_lock", nullcontext)
    ready, done = threading.Barrier(2), threading.Barrier(2)

    def take(_: int) -> str:
        own = opens(location)
        ready.wait(WAIT_S)
        try:
            with Lock(own, "cluster-1"):
                done.wait(WAIT_S)
                return "taken"
        except ApplyRunning:
            done.wait(WAIT_S)
            return "refused"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(take, range(2))) == ["refused", "taken"]
    with Lock(tables, "cluster-1"), Lock(tables, "cluster-2"):
        holders = {row["cluster_id"]: row["holder"] for row in tables.rows(APPLY_LOCKS)}
        assert None not in holders.values() and set(holders) == {"cluster-1", "cluster-2"}
    assert [row["holder"] for row in tables.rows(APPLY_LOCKS)] == [None, None]


# --- replace ----------------------------------------------------------------------------------------------------------


def test_an_incident_is_opened_counted_and_closed(after: After) -> None:
    rows = incidents(after(BOTH, BOTH_AGAIN, ONE_ENDED))
    counted, closed = rows[incident_id("cluster-1", ORPHAN)], rows[incident_id("cluster-1", STALE)]
    assert (counted["sweeps"], counted["last_sweep_id"], counted["resolved_at"]) == (3, "sweep-3", None)
    assert (closed["sweeps"], closed["last_sweep_id"], closed["resolved_how"]) == (2, "sweep-2", "ended")
    assert closed["resolved_at"] == datetime.fromtimestamp(ONE_ENDED.finished_at_ms / 1_000, UTC)


def test_a_closed_incident_is_opened_again_at_a_later_leader_epoch(after: After) -> None:
    tables = after(BOTH, BOTH_AGAIN, ONE_ENDED)
    tables.write(next_sweep(4, judged(view("Empty", 5), partition=1, leader_epoch=6)))
    row = incidents(tables)[incident_id("cluster-1", STALE)]
    assert (row["sweeps"], row["resolved_at"], row["resolved_how"]) == (3, None, None)
    assert len(tables.rows(INCIDENTS)) == 2


def test_a_closed_incident_stays_closed_while_the_open_ones_are_replaced(after: After) -> None:
    tables = after(BOTH, BOTH_AGAIN, ONE_ENDED)
    tables.write(next_sweep(4, ORPHAN))
    tables.write(next_sweep(5, ORPHAN, judged(partition=1, producer_id=8)))
    found = [(row["producer_id"], row["partition"], row["sweeps"], row["is_open"]) for row in tables.rows(INCIDENTS)]
    assert sorted(found) == [(7, 0, 5, True), (7, 1, 2, False), (8, 1, 1, True)]


@pytest.mark.parametrize(
    "changes",
    [{"proven": {("p", 0): "t0"}}, {"transactions": (DOUBTFUL,)}],
    ids=["its partition was not proven", "it is still open, if no longer called hanging"],
)
def test_an_incident_stays_open_when(after: After, changes: dict[str, Any]) -> None:
    tables = after(BOTH)
    tables.write(replace(next_sweep(2), **changes))
    rows = incidents(tables)
    assert rows[incident_id("cluster-1", STALE)]["resolved_at"] is None
    assert rows[incident_id("cluster-1", ORPHAN)]["resolved_how"] == "ended"


def test_incidents_of_other_clusters_and_unobserved_incidents_do_not_change(after: After) -> None:
    tables = after(BOTH)
    before = incidents(tables)
    tables.write(next_sweep(2, ORPHAN, proven={("p", 0): "t0"}))
    tables.write(next_sweep(3, STALE, cluster_id="cluster-2"))
    found = incidents(tables)
    stale = incident_id("cluster-1", STALE)
    assert found[stale] == before[stale]
    assert {row["incident_id"]: row["sweeps"] for row in found.values()} == {
        stale: 1,
        incident_id("cluster-1", ORPHAN): 2,
        incident_id("cluster-2", STALE): 1,
    }


def test_first_seen_is_replaced_by_the_next_sweep_of_the_same_scope(tables: Tables) -> None:
    for sweep in (next_sweep(1, ORPHAN, ONGOING), next_sweep(2, YOUNG, scope="topic='x'"), next_sweep(3, ONGOING)):
        tables._hand_on(sweep)
    assert {(row["sweep_id"], row["start_offset"]) for row in tables.rows(FIRST_SEEN)} == {
        ("sweep-2", 200),
        ("sweep-3", 90),
    }
    seen = tables.last_seen("cluster-1")()
    assert {key: sighting.first_seen_ms for key, sighting in seen.items()} == {
        one.observation.transaction_key: one.observation.first_seen_ms for one in (YOUNG, ONGOING)
    }


# --- delete, compact and vacuum ---------------------------------------------------------------------------------------


def test_rows_are_deleted_files_compacted_and_the_lock_file_is_kept(tables: Tables, location: str) -> None:
    from txnscan.tables.conditions import Before, NoneOf
    from txnscan.tables.delta import Compacted

    for number, name in enumerate(("it's", "b\\", "c", "d")):
        tables._append(replace(next_sweep(number * 300), sweep_id=name), SWEEPS)
    old = Before("sweep_date", date(2023, 11, 16))
    assert tables.delta.delete(SWEEPS, old, NoneOf("sweep_id", frozenset({"it's", "x\\"}))) == 1
    assert {row["sweep_id"] for row in tables.rows(SWEEPS)} == {"it's", "c", "d"}
    lock = Path(location, "sweeps", "_cluster.lock")
    lock.write_text("host process 1")
    files = set(Path(location, "sweeps").rglob("part-*.parquet"))
    assert tables.delta.compact(SWEEPS) == Compacted(3, 1)
    assert tables.delta.compact(SWEEPS) == Compacted(0, 0)
    tables.delta.vacuum(SWEEPS, 168)
    # A process may still read files that are a moment old.
    assert lock.exists() and files <= set(Path(location, "sweeps").rglob("part-*.parquet"))
    assert len(tables.rows(SWEEPS)) == 3
