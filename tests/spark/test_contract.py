"""The contract of the tables: every test runs on Spark and on delta-rs.

A test belongs here if a store does the work: it creates or alters a table, converts values, evaluates a condition,
merges, replaces, deletes, or detects a second writer. tests/tables has the others, on delta-rs alone.
"""

from __future__ import annotations

import itertools
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import NOW_MS, known, plan, scan, stored
from tests.tables.stored import (
    DOUBTFUL,
    ONGOING,
    ORPHAN,
    STALE,
    YOUNG,
    After,
    Prepared,
    hanging,
    incidents,
    next_sweep,
    versions,
)
from txnscan.config import ConfigError
from txnscan.judge.outcome import best_known
from txnscan.model import (
    BlockedGroup,
    Cause,
    Impact,
    KnownOutcome,
    Outcome,
    Owner,
    ScanError,
    Siblings,
    Standing,
)
from txnscan.resolve.apply import ApplyRunning, Status
from txnscan.resolve.plan import PlanRefused
from txnscan.store.open import open_tables
from txnscan.store.schema import (
    APPLY_LOCKS,
    FIRST_SEEN,
    INCIDENTS,
    OPEN_TRANSACTIONS,
    RESOLUTIONS,
    SCAN_ERRORS,
    SCHEMA_REVISION,
    SWEEPS,
    TABLES,
    incident_id,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.conftest import Opens
    from txnscan.store.delta import Condition
    from txnscan.store.tables import Tables

WAIT_S = 120


@pytest.fixture(scope="module", params=["spark", "delta-rs"])
def opens(request: pytest.FixtureRequest) -> Opens:
    """Opens a location through this store."""
    spark: SparkSession | None = request.getfixturevalue("spark") if request.param == "spark" else None
    return lambda location: open_tables(location, spark)


@pytest.fixture(scope="module")
def prepared(opens: Opens, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Many tests begin with the same sweeps, and Spark needs seconds to write one."""
    return Prepared(opens, tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def after(prepared: Prepared, location: str) -> After:
    """Tables to which these sweeps were written, in a process that has ended since."""
    return lambda *sweeps: prepared.copy(location, *sweeps)


@pytest.fixture
def tables(after: After) -> Tables:
    """Tables without rows."""
    return after()


BOTH = next_sweep(1, ORPHAN, STALE)
BOTH_AGAIN = next_sweep(2, ORPHAN, STALE)
ONE_ENDED = next_sweep(3, ORPHAN)


# --- to create and to alter -------------------------------------------------------------------------------------------


# The features of writer version 4, which every writer of Delta has.
FEATURES = {"appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants"}


def test_a_created_table_has_its_columns_comments_partitions_and_properties(tables: Tables, location: str) -> None:
    """As delta-rs reads them. The protocol asks for no feature that only Spark can write."""
    import pyarrow as pa
    from deltalake import DeltaTable

    from txnscan.store.delta import arrow_of, properties

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
    from txnscan.store.delta import arrow_rows

    rows = [{**row, **broken} for row in OPEN_TRANSACTIONS.rows(scan(), [ORPHAN])]
    with pytest.raises(Exception, match="|".join([*broken, "validation"])):  # Each library has its own exception.
        tables.delta.append(OPEN_TRANSACTIONS, arrow_rows(OPEN_TRANSACTIONS.columns, rows))
    assert tables.rows(OPEN_TRANSACTIONS) == []


def test_a_creation_that_broke_off_is_taken_up_again_and_not_repeated(tables: Tables, location: str) -> None:
    for name in ("candidates", "sweeps"):
        shutil.rmtree(f"{location}/{name}")
    tables.create()
    created = versions(location)
    tables.create()
    assert len(created) == len(TABLES) and versions(location) == created


def test_tables_of_an_earlier_version_get_the_new_columns(opens: Opens, tables: Tables, location: str) -> None:
    """Existing rows have null there."""
    from txnscan.store.delta import arrow_rows

    new = ("warnings", "read_bytes")
    before = replace(SWEEPS, columns=tuple(column for column in SWEEPS.columns if column.name not in new))
    shutil.rmtree(f"{location}/sweeps")
    tables.delta.create(before)
    tables.delta.append(before, arrow_rows(before.columns, before.rows(next_sweep(1), [None])))
    lines: list[str] = []
    tables = opens(location)
    tables.create(lines.append)
    assert len(lines) == 1 and all(name in lines[0] for name in new)
    tables._append(next_sweep(2, warnings=("w",)), SWEEPS)
    assert {row["sweep_id"]: row["warnings"] for row in tables.rows(SWEEPS)} == {"sweep-1": None, "sweep-2": ["w"]}
    opens(location).create(lines.append)
    assert len(lines) == 1


def test_tables_of_an_earlier_revision_get_the_constraints_and_properties_of_this_revision(
    opens: Opens, tables: Tables, location: str
) -> None:
    """Once: a store need not keep a condition as it was written."""
    from txnscan.store.delta import CHECKPOINT_INTERVAL, REVISION_PROPERTY, Renewal

    narrow = {"verdict_known": "verdict IN ('hanging')", "no_more": "partition < 1000"}
    tables.delta.renew(OPEN_TRANSACTIONS, Renewal(["verdict_known"], narrow, {"delta.checkpointInterval": "10"}))
    tables.delta.renew(SWEEPS, Renewal([], {}, {REVISION_PROPERTY: "0"}))
    with pytest.raises(Exception, match=r"verdict|validation"):
        tables._append(scan(ONGOING, store_all=True), OPEN_TRANSACTIONS)
    lines: list[str] = []
    renewed = opens(location)
    renewed.create(lines.append)
    assert len(lines) == 1
    has = renewed.delta.properties(OPEN_TRANSACTIONS)
    checks = {key.removeprefix("delta.constraints.") for key in has if key.startswith("delta.constraints.")}
    assert checks == {check for check, _ in OPEN_TRANSACTIONS.checks}
    assert has["delta.checkpointInterval"] == str(CHECKPOINT_INTERVAL)
    assert renewed.delta.properties(SWEEPS)[REVISION_PROPERTY] == str(SCHEMA_REVISION)
    renewed._append(scan(ONGOING, store_all=True), OPEN_TRANSACTIONS)
    assert [row["verdict"] for row in renewed.rows(OPEN_TRANSACTIONS)] == ["ongoing"]
    renewed_at = versions(location)
    opens(location).create(lines.append)
    assert len(lines) == 1 and versions(location) == renewed_at


def test_two_processes_may_renew_the_tables_at_the_same_time(opens: Opens, tables: Tables, location: str) -> None:
    from txnscan.store.delta import REVISION_PROPERTY, Renewal

    tables.delta.renew(OPEN_TRANSACTIONS, Renewal(["verdict_known"], {"verdict_known": "verdict = 'hanging'"}, {}))
    tables.delta.renew(SWEEPS, Renewal([], {}, {REVISION_PROPERTY: "0"}))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: opens(location).create(), range(2)))
    tables._append(scan(ONGOING, store_all=True), OPEN_TRANSACTIONS)
    assert [row["verdict"] for row in tables.rows(OPEN_TRANSACTIONS)] == ["ongoing"]


def test_tables_of_a_later_schema_are_refused(tables: Tables) -> None:
    """A later column alone is no reason to refuse them."""
    from txnscan.store.delta import VERSION_PROPERTY, Renewal

    tables.delta.add_columns(SWEEPS, [replace(SWEEPS.columns[0], name="later", required=False)])
    tables.create()
    tables.delta.renew(SWEEPS, Renewal([], {}, {VERSION_PROPERTY: "2"}))
    with pytest.raises(ConfigError, match="schema version 2"):
        tables.create()


def test_a_location_without_tables_or_that_cannot_be_written_is_a_config_error(opens: Opens, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--tables: "):
        opens(str(tmp_path / "nowhere")).last_sweep()
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(ConfigError, match=r"^--tables: [^\n]*$"):
        opens(str(tmp_path / "file" / "tables")).create()


# --- to append and to read --------------------------------------------------------------------------------------------

GROUP = BlockedGroup("billing", Standing.AT_LSO, "Stable", 100, 5)
IMPACT = Impact(Cause.NEVER_ADDED, 'it\'s \\ \n "so" ✓', Owner("sink-3-17", "Flink", "ask"), groups=(GROUP,))


def test_values_are_read_back_as_they_were_written(tables: Tables) -> None:
    from txnscan.store.delta import By, arrow_rows, from_arrow
    from txnscan.store.tables import OF_SWEEPS, items_of

    sweep = scan(
        ORPHAN, YOUNG, ONGOING,
        errors=(ScanError("read", "it's \\ broker 3\n✓", 3, "p", 1), ScanError("configs", "")),
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
    from txnscan.store.delta import Before, By, Is, IsNot, NoneOf, OneOf, StartsWith

    texts = {1: "it's", 2: "it's \\' more", None: "100% of it_s"}
    errors = tuple(ScanError("read", text, broker) for broker, text in texts.items())
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
        (NoneOf("error", frozenset({"it's"})), {2, None}),
        (NoneOf("error", frozenset()), {1, 2, None}),
        (Before("sweep_date", day), set()),
        (Before("sweep_date", date(2023, 11, 15)), {1, 2, None}),
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


def test_a_sweep_that_broke_off_before_its_last_row_is_invisible(tables: Tables) -> None:
    tables._append(scan(ORPHAN), OPEN_TRANSACTIONS)
    assert (tables.read(OPEN_TRANSACTIONS, "sweep-1"), tables.last_sweep()) == ([], None)
    assert len(tables.rows(OPEN_TRANSACTIONS)) == 1


def test_a_sweep_that_is_written_twice_is_stored_once(tables: Tables) -> None:
    for _ in range(2):
        tables.write(scan(ORPHAN))
    counts = [len(tables.rows(table)) for table in (OPEN_TRANSACTIONS, FIRST_SEEN, INCIDENTS, SWEEPS)]
    assert (counts, tables.rows(INCIDENTS)[0]["sweeps"]) == ([1, 1, 1, 1], 1)


def test_two_sweeps_may_write_at_the_same_time(after: After, opens: Opens, location: str) -> None:
    """Each in its own process, as far as the store can tell."""
    after()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda sweep: opens(location).write(sweep), [BOTH, BOTH_AGAIN]))
    tables = opens(location)
    counts = [len(tables.rows(table)) for table in (SWEEPS, OPEN_TRANSACTIONS, FIRST_SEEN, INCIDENTS)]
    assert counts == [2, 4, 2, 2]


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
    assert (after.action.incident_id, after.action.where, after.action.marker) == (
        action.incident_id,
        action.where,
        action.marker,
    )
    assert sorted(row["step"] for row in tables.rows(RESOLUTIONS)) == ["intent", "outcome", "planned"]


def test_one_of_two_gets_the_lock(opens: Opens, tables: Tables, location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the row alone, as in an object store: without the lock on a file."""
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


# --- to merge and to replace ------------------------------------------------------------------------------------------


def test_an_incident_is_opened_counted_and_closed(after: After) -> None:
    rows = incidents(after(BOTH, BOTH_AGAIN, ONE_ENDED))
    counted, closed = rows[incident_id("cluster-1", ORPHAN)], rows[incident_id("cluster-1", STALE)]
    assert (counted["sweeps"], counted["last_sweep_id"], counted["resolved_at"]) == (3, "sweep-3", None)
    assert (closed["sweeps"], closed["last_sweep_id"], closed["resolved_how"]) == (2, "sweep-2", "ended")
    assert closed["resolved_at"] == datetime.fromtimestamp(ONE_ENDED.finished_at_ms / 1_000, UTC)


def test_a_closed_incident_is_opened_again(after: After) -> None:
    tables = after(BOTH, BOTH_AGAIN, ONE_ENDED)
    tables.write(next_sweep(4, STALE))
    row = incidents(tables)[incident_id("cluster-1", STALE)]
    assert (row["sweeps"], row["resolved_at"], row["resolved_how"]) == (3, None, None)


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


def test_the_best_known_outcome_is_kept(tables: Tables) -> None:
    """`best_known` is a rule in Python and an expression in the merge. They agree on every pair, at one epoch and two.

    As if the incident was resolved in between, the second sweep did not know the outcome of the first.
    """
    pairs = {100 + n: pair for n, pair in enumerate(itertools.product(Outcome, Outcome, (3, 4)))}
    first = {at: known(one, "first", settled=True, producer_epoch=3) for at, (one, _, _) in pairs.items()}
    second = {at: known(two, "second", settled=False, producer_epoch=epoch) for at, (_, two, epoch) in pairs.items()}
    tables.write(next_sweep(1, *(hanging(at, one) for at, one in first.items())))
    tables.write(next_sweep(2, *(hanging(at, one) for at, one in second.items())))
    kept = {row["start_offset"]: row for row in incidents(tables).values()}
    for at, (*_, epoch) in pairs.items():
        best = best_known(first[at], second[at])
        found = (kept[at]["outcome"], kept[at]["outcome_settled"], kept[at]["outcome_epoch"])
        assert found == (best.outcome.value, epoch == 3, epoch), pairs[at]
        assert kept[at]["outcome_reason"] in best.why, pairs[at]


COMMITTED = known(
    "committed",
    "it committed",
    siblings=Siblings(("q-0", "r-1"), (4,), NOW_MS),
    owner_committed=True,
    evidence=("offset 1: PrepareCommit",),
)


def test_a_known_outcome_outlives_its_incident_and_is_added_to(after: After) -> None:
    def outcome(tables: Tables) -> KnownOutcome | None:
        (incident,) = tables.unresolved("cluster-1")().values()
        return incident.known

    sweep = next_sweep(1, hanging(100, COMMITTED))
    tables = after(sweep)
    assert outcome(tables) == COMMITTED
    tables.write(next_sweep(2))
    assert tables.unresolved("cluster-1")() == {}
    tables.write(next_sweep(3, hanging(100, known("unknown", "the log is empty"))))
    assert outcome(tables) == COMMITTED
    tables.remember(incident_id("cluster-1", sweep.transactions[0]), known("not_committed", "q-0 has an ABORT marker"))
    kept = outcome(tables)
    assert kept is not None and (kept.outcome, kept.siblings) == (Outcome.MAYBE_COMMITTED, COMMITTED.siblings)


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


# --- to delete, compact and vacuum ------------------------------------------------------------------------------------


def test_rows_are_deleted_files_compacted_and_a_lock_s_file_is_kept(tables: Tables, location: str) -> None:
    from txnscan.store.delta import Before, Compacted, NoneOf

    for number, name in enumerate(("it's", "b\\", "c", "d")):
        tables._append(replace(next_sweep(number * 300), sweep_id=name), SWEEPS)
    old = Before("sweep_date", date(2023, 11, 16))
    assert tables.delta.delete(SWEEPS, old, NoneOf("sweep_id", frozenset({"it's", "x\\"}))) == 1
    assert {row["sweep_id"] for row in tables.rows(SWEEPS)} == {"it's", "c", "d"}
    lock = Path(location, "sweeps", "_cluster.lock")
    lock.write_text("host process 1")
    files = set(Path(location, "sweeps").glob("*.parquet"))
    assert tables.delta.compact(SWEEPS) == Compacted(3, 1)
    assert tables.delta.compact(SWEEPS) == Compacted(0, 0)
    tables.delta.vacuum(SWEEPS, 168)
    # A process may still be reading the files of a moment ago.
    assert lock.exists() and files <= set(Path(location, "sweeps").glob("*.parquet"))
    assert len(tables.rows(SWEEPS)) == 3
