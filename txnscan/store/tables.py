"""The Delta tables: create, append, merge, read. What they hold stands in `schema.py`.

A sweep becomes visible when its row in `sweeps` is written, which is last; readers here join with it. Two sweeps may
write at the same time: appends do not conflict, and the merge of incidents is tried again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import stamina
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, Row, SparkSession
from pyspark.sql import functions as F

from txnscan.config import ConfigError, is_catalog_schema, local_path, parse_location, printable
from txnscan.engine.rows import arrow_type, from_row, plain, spark_type
from txnscan.engine.session import in_one_line
from txnscan.findings import Incident, Incidents, Scan, Sighting, Sightings
from txnscan.judge.outcome import TOGETHER
from txnscan.model import Judged, KnownOutcome, Outcome, Siblings, TransactionKey, Verdict
from txnscan.store.damage import cause, damaged_commit
from txnscan.store.schema import (
    CANDIDATES,
    FIRST_SEEN,
    FIRST_SEEN_MAX,
    INCIDENTS,
    KNOWN,
    OPEN_TRANSACTIONS,
    RESOLUTIONS,
    SCAN_ERRORS,
    SCHEMA_VERSION,
    SWEEPS,
    TABLES,
    Column,
    Table,
    incident_id,
    scope_key,
    timestamp,
)

Answer = TypeVar("Answer")

# What Spark and Delta say where there is no table.
_ABSENT = ("DELTA_TABLE_NOT_FOUND", "PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE")
_ARROW = {
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "ARRAY<STRING>": pa.list_(pa.string()),
}
_FIRST_SEEN_MS = "unix_millis(first_seen_at) AS first_seen_ms"
_VERSION_PROPERTY = "txnscan.schemaVersion"
CONFLICT_TRIES = 5
# Commits from one checkpoint of a table's log to the next. Delta's own 10 makes every tenth sweep take twice as long,
# and fifty small commits are read as quickly as ten.
CHECKPOINT_INTERVAL = 50
# Last the one that makes a sweep visible.
OF_SWEEPS = (OPEN_TRANSACTIONS, CANDIDATES, SCAN_ERRORS, SWEEPS)


class Tables:
    """The tables of one location: a path, or catalog.schema (`config.parse_location`). Raises ConfigError."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._spark = spark
        self._location = parse_location(location)
        # Open incidents, by cluster, as the sweep under way found them.
        self._unresolved: dict[str, list[Row]] = {}
        self._begun: set[str] = set()

    def name(self, table: Table) -> str:
        """The table's name in SQL."""
        if is_catalog_schema(self._location):
            return f"{self._location}.{table.name}"
        path = f"{self._location.rstrip('/')}/{table.name}".replace("`", "``")
        return f"delta.`{path}`"

    def create(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Creates what is missing, and adds columns that are new, before anything is asked of the cluster.

        say: told in one sentence of each table that got columns. Raises ConfigError when the location cannot be
        written, when a table is damaged or of another make, and when one is gone while the others are in use: made
        anew in silence, it would tell of nothing where there was something.
        """
        self._check_commits()
        try:
            absent = [table for table in _at_once(partial(self._absent, table, say) for table in TABLES) if table]
            if all(table.made_anew for table in absent):
                for table in absent:
                    say(f"{self.name(table)} is made anew: what is open and does not hang counts its age from now on")
            elif len(absent) < len(TABLES):
                self._check_unused(absent)
            if absent:
                _at_once(partial(self._create, table) for table in absent)
        except ConfigError:
            raise
        except Exception as error:
            # Storage fails in as many ways as there are kinds of it, and Py4J passes most of them on as they are.
            raise ConfigError("--tables", f"{self._shown} cannot be written: {why_failed(error)}") from None

    def _create(self, table: Table) -> None:
        self._spark.sql(_create_statement(self.name(table), table))

    def _absent(self, table: Table, say: Callable[[str], None]) -> Table | None:
        """The table, where it is not there; where it is, it has all columns from now on."""
        columns = self._columns(table)
        if columns is None:
            return table
        missing = [column for column in table.columns if column.name not in columns]
        if table is SWEEPS:
            self._check_version(columns)
        if any(column.required for column in missing):
            name = next(column.name for column in missing if column.required)
            raise ConfigError(
                "--tables", f"{self.name(table)} has no column {name}; it is not of this version of txnscan"
            )
        if missing:
            self._add(table, missing)
            names = ", ".join(column.name for column in missing)
            say(f"{self.name(table)} is of an earlier version of txnscan: added {names}")
        return None

    def _columns(self, table: Table) -> frozenset[str] | None:
        found = self._table(table)
        return None if found is None else frozenset(found.columns)

    def _table(self, table: Table) -> DataFrame | None:
        """The table, None where it is not there. Raises ConfigError where it is damaged."""
        try:
            found = self._spark.table(self.name(table))
            # Spark Connect looks for it no sooner than this.
            _ = found.columns
            return found
        except Exception as error:
            if any(name in str(error) for name in _ABSENT):
                return None
            raise ConfigError(
                "--tables", f"the table {table.name} of {self._shown} cannot be read: {why_failed(error)}"
            ) from None

    def _add(self, table: Table, columns: Sequence[Column]) -> None:
        added = ", ".join(_column_definition(column) for column in columns)
        try:
            self._spark.sql(f"ALTER TABLE {self.name(table)} ADD COLUMNS ({added})")
        except PySparkException:
            # Another sweep may have done so at the same time.
            if not {column.name for column in columns} <= (self._columns(table) or frozenset()):
                raise

    def _check_version(self, columns: frozenset[str]) -> None:
        """That the tables are not of a later schema. One has columns that are not known here."""
        if columns <= {column.name for column in SWEEPS.columns}:
            return
        (row, *_) = self._spark.sql(f"SHOW TBLPROPERTIES {self.name(SWEEPS)} ('{_VERSION_PROPERTY}')").collect()
        if row["value"].isdecimal() and int(row["value"]) > SCHEMA_VERSION:
            raise ConfigError(
                "--tables",
                f"{self._shown} has tables of schema version {row['value']}, and this txnscan writes {SCHEMA_VERSION}; "
                "use the version of txnscan that made them, or a newer one",
            )

    def _check_unused(self, absent: Sequence[Table]) -> None:
        """That the tables that are there hold nothing: then their creation broke off, or goes on elsewhere."""
        for table in TABLES:
            if table not in absent and self._spark.table(self.name(table)).take(1):
                raise self._gone(absent)

    def _gone(self, absent: Sequence[Table]) -> ConfigError:
        names = " and ".join(table.name for table in absent)
        verb = "is" if len(absent) == 1 else "are"
        return ConfigError(
            "--tables",
            f"{names} of {self._shown} {verb} gone or without a _delta_log, though other tables are there; restore "
            "what is missing, or name another location",
        )

    def _check_commits(self) -> None:
        """That the logs of tables on this machine are whole. Raises ConfigError that names the file."""
        for table in TABLES:
            broken = damaged_commit(local_path(self._location) / table.name)
            if broken is not None:
                raise ConfigError(
                    "--tables",
                    f"the table {table.name} cannot be read: the file {printable(str(broken))} is damaged; restore it "
                    "from a backup, or name another location",
                )

    @property
    def _shown(self) -> str:
        return printable(self._location)

    # --- what a sweep needs to know (`scan.History`)

    def unresolved(self, cluster_id: str) -> Callable[[], Incidents]:
        """See History."""

        def read() -> Incidents:
            self._unresolved[cluster_id] = rows = self._read_unresolved(cluster_id)
            return {_key_of(row): Incident(row["first_seen_ms"], known_outcome(row)) for row in rows}

        return _begun(read)

    def last_seen(self, cluster_id: str) -> Callable[[], Sightings]:
        """See History. A sweep hands on when a transaction was first seen, so that the last sweep of each scope
        suffices, however long the history is.
        """
        return _begun(lambda: _sightings(self._read_last_seen(cluster_id)))

    def _read_unresolved(self, cluster_id: str) -> list[Row]:
        rows = self._spark.table(self.name(INCIDENTS))
        unresolved = rows.where((F.col("cluster_id") == cluster_id) & F.col("resolved_at").isNull())
        known = (column.name for column in KNOWN)
        return self._collected(unresolved.selectExpr("incident_id", *TransactionKey._fields, _FIRST_SEEN_MS, *known))

    def _read_last_seen(self, cluster_id: str) -> list[Row]:
        rows = self._spark.table(self.name(FIRST_SEEN)).where(F.col("cluster_id") == cluster_id)
        return self._collected(rows.selectExpr(*TransactionKey._fields, "producer_epoch", _FIRST_SEEN_MS))

    # --- what a sweep leaves

    def write(self, scan: Scan) -> None:
        """Stores a sweep. It is visible whole when this returns, and not at all when it raises; twice is once.

        A sweep's id is made by the process that writes it, so this object knows whether any of it is written already.
        Delta could tell, too (`txnAppId`), but looks through its whole log for it, which takes as long as the write.
        """
        if scan.sweep_id in self._begun:
            for table in reversed(OF_SWEEPS):
                self._withdraw(scan, table)
        self._begun.add(scan.sweep_id)
        *others, sweeps = OF_SWEEPS
        _at_once(
            (
                *(partial(self._append, scan, table) for table in others),
                partial(self._hand_on, scan),
                partial(self._count_incidents, scan),
            )
        )
        self._append(scan, sweeps)

    def _hand_on(self, scan: Scan) -> None:
        """Writes down since when everything is open that this sweep saw, in the place of what the last one of its scope
        wrote. Where another sweep does so at the same time, the later one's word is as good.
        """
        still_open = [judged for judged in scan.transactions if judged.judgement.verdict is not Verdict.GONE]
        if not still_open:
            # What stands there is of transactions that are over, and no other is taken for one of these.
            return
        oldest_first = sorted(still_open, key=lambda judged: judged.observation.first_seen_ms)
        rows = frame(self._spark, scan, FIRST_SEEN, oldest_first[:FIRST_SEEN_MAX]).coalesce(1)
        part = f"cluster_id = '{_quoted(scan.cluster_id)}' AND scope_key = '{scope_key(scan.scope)}'"
        for attempt in stamina.retry_context(on=is_conflict, attempts=CONFLICT_TRIES, timeout=None):
            with attempt:
                self._save(FIRST_SEEN, rows.write.option("replaceWhere", part), mode="overwrite")

    def _count_incidents(self, scan: Scan) -> None:
        hanging = [judged for judged in scan.transactions if judged.judgement.verdict is Verdict.HANGING]
        # Once, whatever conflicts: another sweep may have opened incidents since, about which this one proves nothing.
        over = self._over(scan)
        if not hanging and not over:
            return
        for attempt in stamina.retry_context(on=is_conflict, attempts=CONFLICT_TRIES, timeout=None):
            with attempt:
                self._merge_incidents(scan, hanging, over)

    def _withdraw(self, scan: Scan, table: Table) -> None:
        # A sweep's id is a UUID, and the name of a table is its own.
        self._spark.sql(f"DELETE FROM {self.name(table)} WHERE sweep_id = '{scan.sweep_id}'")

    def _append(self, scan: Scan, table: Table) -> None:
        items = _items(scan, table)
        if items:
            self._save(table, frame(self._spark, scan, table, items).coalesce(1).write)

    def append(self, table: Table, items: Sequence[Any], *, once: str) -> None:
        """Appends a row for each item. What is appended twice with the same `once`, by whatever process, is appended
        once.
        """
        writer = frame(self._spark, None, table, items).coalesce(1).write
        self._save(table, writer.option("txnAppId", f"txnscan-{once}").option("txnVersion", 1))

    def _save(self, table: Table, writer: DataFrameWriter, mode: str = "append") -> None:
        writer = writer.format("delta").mode(mode)
        if is_catalog_schema(self._location):
            writer.saveAsTable(self.name(table))
        else:
            writer.save(f"{self._location.rstrip('/')}/{table.name}")

    def _merge_incidents(self, scan: Scan, hanging: Sequence[Judged], over: Sequence[tuple[str, str]]) -> None:
        """Counts the hanging transactions, and closes what is over, with how. Twice is the same as once."""
        resolved_at = timestamp(scan.finished_at_ms)
        resolved = [{"incident_id": one, "resolved_how": how, "resolved_at": resolved_at} for one, how in over]
        view = f"txnscan_incidents_{re.sub(r'[^0-9a-zA-Z]', '_', scan.sweep_id)}"
        rows = [*INCIDENTS.rows(scan, hanging), *resolved]
        _frame(self._spark, INCIDENTS.columns, rows).createOrReplaceTempView(view)
        names = [column.name for column in INCIDENTS.columns]
        updated = [
            n
            for n in names
            if n not in ("incident_id", "sweeps", "first_seen_at", "sweep_date", "resolved_at", "resolved_how")
            and n not in {column.name for column in KNOWN}
        ]
        # Names of columns and of tables only; what came from outside is in the view.
        self._spark.sql(
            f"MERGE INTO {self.name(INCIDENTS)} AS t USING {view} AS s "
            "ON t.incident_id = s.incident_id "
            "WHEN MATCHED AND s.resolved_how IS NOT NULL AND t.resolved_at IS NULL THEN "
            "UPDATE SET t.resolved_at = s.resolved_at, t.resolved_how = s.resolved_how "
            "WHEN MATCHED AND s.resolved_how IS NULL AND t.last_sweep_id <> s.last_sweep_id "
            "AND t.last_seen_at < s.last_seen_at THEN "
            "UPDATE SET t.sweeps = t.sweeps + 1, t.resolved_at = NULL, t.resolved_how = NULL, "
            + ", ".join((*(f"t.{name} = s.{name}" for name in updated), *_best_known()))
            + " WHEN NOT MATCHED AND s.resolved_how IS NULL THEN "
            f"INSERT ({', '.join(names)}) VALUES ({', '.join(f's.{name}' for name in names)})"
        )

    def remember(self, incident_id: str, known: KnownOutcome) -> None:
        """Adds to what is known of an incident's outcome."""
        view = f"txnscan_known_{re.sub(r'[^0-9a-zA-Z]', '_', incident_id)}"
        judged = _Known(known)
        row = {column.name: column.value(None, judged) for column in KNOWN}
        columns = [next(column for column in INCIDENTS.columns if column.name == "incident_id"), *KNOWN]
        _frame(self._spark, columns, [{"incident_id": incident_id, **row}]).createOrReplaceTempView(view)
        for attempt in stamina.retry_context(on=is_conflict, attempts=CONFLICT_TRIES, timeout=None):
            with attempt:
                self._spark.sql(
                    f"MERGE INTO {self.name(INCIDENTS)} AS t USING {view} AS s ON t.incident_id = s.incident_id "
                    f"WHEN MATCHED THEN UPDATE SET {', '.join(_best_known())}"
                )

    def _over(self, scan: Scan) -> list[tuple[str, str]]:
        """Open incidents of this cluster that this sweep proved to be over, with how.

        A partition whose leader's answer was not proven proves nothing about its incidents, and neither does a
        transaction that is still open in any way.
        """
        if not scan.proven:
            return []
        # As they were when this sweep began, if it asked: it proves nothing about one that is newer than that.
        rows = self._unresolved.pop(scan.cluster_id, None)
        if rows is None:
            rows = self._read_unresolved(scan.cluster_id)
        still_open = {
            incident_id(scan.cluster_id, judged)
            for judged in scan.transactions
            if judged.judgement.verdict is not Verdict.GONE
        }
        over = [
            row
            for row in rows
            if (row["topic"], row["partition"]) in scan.proven and row["incident_id"] not in still_open
        ]
        ours = self._resolved_by_apply(scan.cluster_id) if over else {}
        return [
            (
                row["incident_id"],
                _how(row["incident_id"], ours)
                if scan.proven[row["topic"], row["partition"]] == row["topic_id"]
                else "topic_recreated",
            )
            for row in over
        ]

    def _resolved_by_apply(self, cluster_id: str) -> Mapping[str, str]:
        """The markers that apply has written, by incident."""
        written = self.rows(RESOLUTIONS).where((F.col("cluster_id") == cluster_id) & (F.col("status") == "resolved"))
        return {row["incident_id"]: row["marker"] for row in written.select("incident_id", "marker").collect()}

    def rows(self, table: Table) -> DataFrame:
        """The table. Raises ConfigError when there are no tables at the location, when this one is gone, and when its
        log is damaged.
        """
        found = self._table(table)
        if found is not None:
            return found
        if any(self._table(other) is not None for other in TABLES):
            raise self._gone([table])
        raise ConfigError("--tables", f"there are no tables of txnscan at {self._shown}")

    @property
    def spark(self) -> SparkSession:
        return self._spark

    # --- what a sweep left

    def read(self, table: Table, sweep_id: str) -> DataFrame:
        """The rows of one finished sweep; none when it is not finished."""
        finished = self.rows(SWEEPS).where(F.col("sweep_id") == sweep_id).select("sweep_id")
        rows = self.rows(table).where(F.col("sweep_id") == sweep_id)
        return rows.join(F.broadcast(finished), "sweep_id", "left_semi")

    def sweep(self, sweep_id: str) -> Mapping[str, Any] | None:
        """The row of a finished sweep; None where there is none of this id."""
        rows = self._collected(self.rows(SWEEPS).where(F.col("sweep_id") == sweep_id).limit(1))
        return rows[0].asDict() if rows else None

    def last_sweeps(self, cluster_id: str | None = None) -> list[Mapping[str, Any]]:
        """Of each cluster, or this one, the row of the last finished sweep of everything, and of the last one of a part
        of it. Raises ConfigError when there are no tables at the location, or they are damaged.
        """
        self._check_commits()
        sweeps = self.rows(SWEEPS)
        if cluster_id is not None:
            sweeps = sweeps.where(F.col("cluster_id") == cluster_id)
        last = sweeps.groupBy("cluster_id", F.col("scope") == "all").agg(F.max("started_at").alias("started_at"))
        rows = self._collected(sweeps.join(F.broadcast(last), ["cluster_id", "started_at"], "left_semi"))
        return [row.asDict() for row in rows]

    def last_sweep(self, cluster_id: str | None = None) -> Mapping[str, Any] | None:
        """The row of the last finished sweep, whatever its scope; None where there is none. Raises as `last_sweeps`."""
        return max(self.last_sweeps(cluster_id), key=lambda row: row["started_at"], default=None)

    def _collected(self, rows: DataFrame) -> list[Row]:
        try:
            return rows.collect()
        except Exception as error:
            raise ConfigError("--tables", f"{self._shown} cannot be read: {why_failed(error)}") from None


def why_failed(error: BaseException) -> str:
    """Why tables cannot be written or read, in one line that says what to do where that is known."""
    return cause(str(error)) or in_one_line(error)


def frame(spark: SparkSession, scan: Scan | None, table: Table, items: Sequence[Any]) -> DataFrame:
    """The rows of a sweep as a DataFrame with the table's columns."""
    return _frame(spark, table.columns, table.rows(scan, items))


def unstored(spark: SparkSession, scan: Scan, table: Table) -> DataFrame:
    """What a sweep found of what a table holds, healthy transactions too."""
    return frame(spark, scan, table, scan.transactions if table is OPEN_TRANSACTIONS else _items(scan, table))


def _items(scan: Scan, table: Table) -> Sequence[Any]:
    found: Mapping[str, Sequence[Any]] = {
        OPEN_TRANSACTIONS.name: scan.stored,
        CANDIDATES.name: scan.candidates,
        SCAN_ERRORS.name: scan.errors,
        SWEEPS.name: [scan],
    }
    return found[table.name]


def _frame(spark: SparkSession, columns: Iterable[Column], rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """The rows as a DataFrame; what a row lacks is null. From Arrow, which needs no job to get into Spark."""
    schema = pa.schema([pa.field(column.name, _arrow(column)) for column in columns])
    plain_rows = [{name: plain(value) for name, value in row.items()} for row in rows]
    return spark.createDataFrame(pa.Table.from_pylist(plain_rows, schema=schema))


@dataclass(frozen=True, slots=True)
class _Known:
    """What the columns of `schema.KNOWN` are taken from."""

    known: KnownOutcome


def _how(incident: str, written: Mapping[str, str]) -> str:
    return f"{written[incident].lower()}_marker" if incident in written else "ended"


def _key_of(row: Row) -> TransactionKey:
    return TransactionKey(*(row[name] for name in TransactionKey._fields))


def known_outcome(row: Row) -> KnownOutcome | None:
    """What an incident's row says of its outcome; None where no sweep has looked for it."""
    if row["outcome"] is None:
        return None
    return KnownOutcome(
        outcome=Outcome(row["outcome"]),
        why=row["outcome_reason"] or "",
        settled=bool(row["outcome_settled"]),
        siblings=from_row(Siblings, row["siblings"].asDict()) if row["siblings"] is not None else None,
        owner_committed=bool(row["owner_committed"]),
        evidence=tuple(row["outcome_evidence"] or ()),
    )


def _best_known() -> Iterable[str]:
    """The assignments with which a MERGE keeps what is known of an outcome, as `outcome.best_known` does.

    A sweep has taken what it knew of the incident into account already. But it knows of no incident that was resolved,
    nor what another sweep has written since.
    """
    pairs = (
        f"WHEN t.outcome = '{earlier}' AND s.outcome = '{found}' THEN '{together}'"
        for (earlier, found), together in TOGETHER.items()
    )
    outcome = f"CASE {' '.join(pairs)} ELSE coalesce(s.outcome, t.outcome) END"
    yield f"t.outcome = {outcome}"
    for name in ("outcome_reason", "outcome_evidence"):
        yield f"t.{name} = CASE WHEN t.outcome IS NULL OR {outcome} = s.outcome THEN s.{name} ELSE t.{name} END"
    for name in ("outcome_settled", "owner_committed"):
        yield f"t.{name} = coalesce(t.{name}, false) OR coalesce(s.{name}, false)"
    yield "t.siblings = coalesce(t.siblings, s.siblings)"


def _sightings(rows: Iterable[Row]) -> Sightings:
    """Scopes overlap, and of two rows of one transaction the earlier counts."""
    first: dict[TransactionKey, Sighting] = {}
    for row in rows:
        which, seen = _key_of(row), Sighting(row["first_seen_ms"], row["producer_epoch"])
        first[which] = min(seen, first.get(which, seen), key=lambda one: one.first_seen_ms)
    return first


def _quoted(text: str) -> str:
    """Text within the quotes of an SQL literal."""
    return text.replace("\\", "\\\\").replace("'", "\\'")


def _begun(call: Callable[[], Answer]) -> Callable[[], Answer]:
    """Starts the call in a thread of its own, and gives what waits for its answer."""
    with_one_thread = ThreadPoolExecutor(1, thread_name_prefix="txnscan-tables")
    answer = with_one_thread.submit(call)
    with_one_thread.shutdown(wait=False)
    return answer.result


def _at_once(calls: Iterable[Callable[[], Answer]]) -> list[Answer]:
    """Makes all the calls, each in a thread of its own: a small table is written in steps that wait for one another,
    and tables do not wait for other tables. Raises what one of them raised, after all have ended.
    """
    waiting = tuple(calls)
    with ThreadPoolExecutor(len(waiting), thread_name_prefix="txnscan-tables") as pool:
        running = [pool.submit(call) for call in waiting]
    return [one.result() for one in running]


def _sql_type(column: Column) -> str:
    return column.type if isinstance(column.type, str) else spark_type(column.type)


def _arrow(column: Column) -> pa.DataType:
    return _ARROW[column.type] if isinstance(column.type, str) else arrow_type(column.type)


def _column_definition(column: Column) -> str:
    required = " NOT NULL" if column.required else ""
    return f"{column.name} {_sql_type(column)}{required} COMMENT '{_quoted(column.meaning)}'"


def _create_statement(name: str, table: Table) -> str:
    def quoted(text: str) -> str:
        return f"'{_quoted(text)}'"

    columns = ", ".join(map(_column_definition, table.columns))
    properties = {
        _VERSION_PROPERTY: str(SCHEMA_VERSION),
        "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
        **{f"delta.constraints.{check}": condition for check, condition in table.checks},
    }
    listed = ", ".join(f"{quoted(key)} = {quoted(value)}" for key, value in properties.items())
    # Not clustered: that takes writer features which not every writer of Delta has, and which cannot be dropped again.
    layout = f"PARTITIONED BY ({', '.join(table.partitioned_by)}) " if table.partitioned_by else ""
    return (
        f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING DELTA COMMENT {quoted(table.meaning)} "
        f"{layout}TBLPROPERTIES ({listed})"
    )


def is_conflict(error: Exception) -> bool:
    """Somebody else wrote at the same time."""
    return "Concurrent" in type(error).__name__ or "DELTA_CONCURRENT" in str(error)
