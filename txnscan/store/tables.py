"""The Delta tables: create, append, merge, read. Their columns are in `schema.py`, the operations in `delta.py`.

A sweep becomes visible when its row in `sweeps` is written, which is last; readers here join with it. Two sweeps may
write at the same time: appends do not conflict, and the merge of incidents is tried again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from txnscan.config import ConfigError, local_path, printable
from txnscan.engine.rows import from_row
from txnscan.findings import Incident, Incidents, KnownImpact, Scan, Sighting, Sightings
from txnscan.judge.outcome import TOGETHER
from txnscan.model import Cause, Judged, KnownOutcome, Outcome, Siblings, TransactionKey, Verdict
from txnscan.store.damage import cause, damaged_commit
from txnscan.store.delta import (
    REVISION_PROPERTY,
    VERSION_PROPERTY,
    By,
    Condition,
    Delta,
    Is,
    Matched,
    NotMatched,
    OneOf,
    Renewal,
    Row,
    arrow_rows,
    tried_again,
)
from txnscan.store.schema import (
    CANDIDATES,
    FIRST_SEEN,
    FIRST_SEEN_MAX,
    INCIDENTS,
    KNOWN,
    OPEN_TRANSACTIONS,
    RESOLUTIONS,
    SCAN_ERRORS,
    SCHEMA_REVISION,
    SCHEMA_VERSION,
    SWEEPS,
    TABLES,
    Column,
    Table,
    epoch_ms,
    incident_id,
    scope_key,
    timestamp,
)

Answer = TypeVar("Answer")

_BEGUN_MAX = 100
# What a sweep needs to know of an incident's impact.
_IMPACT = ("last_stable_offset", "lso_since", "cause", "cause_reason", "owner_id")
# Last the one that makes a sweep visible.
OF_SWEEPS = (OPEN_TRANSACTIONS, CANDIDATES, SCAN_ERRORS, SWEEPS)


class Tables:
    """The tables of one location."""

    def __init__(self, delta: Delta) -> None:
        self.delta = delta
        # Whether an earlier version made the tables.
        self._is_older = False
        # Open incidents, by cluster, as the sweep under way found them.
        self._unresolved: dict[str, list[Row]] = {}
        # The sweeps that this object began to write, and may have written in part: the last few, in a process that runs
        # for ever.
        self._begun: deque[str] = deque(maxlen=_BEGUN_MAX)

    def create(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Creates what is missing, and adds columns and constraints that are new, before anything is asked of the
        cluster.

        say: called with a sentence for each table that got columns, and one where constraints were renewed. Raises
        ConfigError when the location cannot be written, when a table is damaged or not of this schema, and when one is
        gone while the others are in use: if it were silently created again, it would be empty where there were rows.
        """
        self._check_commits()
        try:
            absent = [table for table in _at_once(partial(self._absent, table, say) for table in TABLES) if table]
            if all(table.made_anew for table in absent):
                for table in absent:
                    name = self.delta.name(table)
                    say(f"{name} is made anew: what is open and does not hang counts its age from now on")
            elif len(absent) < len(TABLES):
                self._check_unused(absent)
            if absent:
                _at_once(partial(self.delta.create, table) for table in absent)
            if len(absent) < len(TABLES) and (SWEEPS in absent or self._is_older):
                self._renew(say)
        except ConfigError:
            raise
        except Exception as error:
            # Storage fails in as many ways as there are kinds of it.
            raise ConfigError("--tables", f"{self._shown} cannot be written: {self.why_failed(error)}") from None

    def _absent(self, table: Table, say: Callable[[str], None]) -> Table | None:
        """The table if it does not exist; else None, and columns that it lacks are added."""
        columns = self._columns(table)
        if columns is None:
            return table
        missing = [column for column in table.columns if column.name not in columns]
        if table is SWEEPS:
            self._check_version()
        if any(column.required for column in missing):
            name = next(column.name for column in missing if column.required)
            raise ConfigError(
                "--tables", f"{self.delta.name(table)} has no column {name}; it is not of this version of txnscan"
            )
        if missing:
            self._add(table, missing)
            names = ", ".join(column.name for column in missing)
            say(f"{self.delta.name(table)} is of an earlier version of txnscan: added {names}")
        return None

    def _columns(self, table: Table) -> frozenset[str] | None:
        """Its columns, None where it is not there. Raises ConfigError where it is damaged."""
        try:
            return self.delta.columns(table)
        except Exception as error:
            raise ConfigError(
                "--tables", f"the table {table.name} of {self._shown} cannot be read: {self.why_failed(error)}"
            ) from None

    def _add(self, table: Table, columns: Sequence[Column]) -> None:
        try:
            self.delta.add_columns(table, columns)
        except Exception:
            # Another sweep may have done so at the same time.
            if not {column.name for column in columns} <= (self._columns(table) or frozenset()):
                raise

    def _check_version(self) -> None:
        """Checks that the tables are not of a later schema, and notes whether they are of an earlier revision."""
        has = self.delta.properties(SWEEPS)
        version = _number(has, VERSION_PROPERTY)
        if version > SCHEMA_VERSION:
            raise ConfigError(
                "--tables",
                f"{self._shown} has tables of schema version {version}, and this txnscan writes {SCHEMA_VERSION}; "
                "use the version of txnscan that made them, or a newer one",
            )
        self._is_older = _number(has, REVISION_PROPERTY) < SCHEMA_REVISION

    def _renew(self, say: Callable[[str], None]) -> None:
        """Gives the tables the constraints and properties of this version. `sweeps` is last: its revision shows a sweep
        that all are done.
        """
        *others, sweeps = TABLES
        for table in (*others, sweeps):
            tried_again(self.delta, partial(self._renew_table, table))
        say(f"{self._shown} is of an earlier version of txnscan: renewed its constraints and properties")

    def _renew_table(self, table: Table) -> None:
        renewal = Renewal.of(table, self.delta.properties(table))
        try:
            if renewal:
                self.delta.renew(table, renewal)
        except Exception as error:
            # Another sweep may have done so at the same time. That a condition is written otherwise says nothing:
            # delta-rs does not store it as it was given.
            left = Renewal.of(table, self.delta.properties(table))
            absent = left.constraints.keys() - set(left.dropped)
            if self.delta.is_conflict(error) or left.properties or absent:
                raise

    def _check_unused(self, absent: Sequence[Table]) -> None:
        """Checks that the tables that exist are empty: then their creation was interrupted, or is still going on."""
        for table in TABLES:
            if table not in absent and self.delta.read(table, limit=1):
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
        """Checks that the logs of tables on this machine are whole. Raises a ConfigError that names the file."""
        for table in TABLES:
            broken = damaged_commit(local_path(self.delta.location) / table.name)
            if broken is not None:
                raise ConfigError(
                    "--tables",
                    f"the table {table.name} cannot be read: the file {printable(str(broken))} is damaged; restore it "
                    "from a backup, or name another location",
                )

    @property
    def _shown(self) -> str:
        return printable(self.delta.location)

    def why_failed(self, error: BaseException) -> str:
        """Why tables cannot be written or read, in one line that says what to do where that is known."""
        return cause(str(error)) or self.delta.said(error)

    # --- what a sweep needs to know (`findings.History`)

    def unresolved(self, cluster_id: str) -> Callable[[], Incidents]:
        """See History."""

        def read() -> Incidents:
            self._unresolved[cluster_id] = rows = self._read_unresolved(cluster_id)
            return {
                TransactionKey.of(row): Incident(epoch_ms(row["first_seen_at"]), known_outcome(row), _known_impact(row))
                for row in rows
            }

        return _begun(read)

    def last_seen(self, cluster_id: str) -> Callable[[], Sightings]:
        """See History. Each sweep stores when its transactions were first seen, also by earlier sweeps, so that the
        last sweep of each scope suffices, however long the history is.
        """
        return _begun(lambda: _sightings(self._read_last_seen(cluster_id)))

    def _read_unresolved(self, cluster_id: str) -> list[Row]:
        known = (column.name for column in KNOWN)
        columns = ("incident_id", *TransactionKey._fields, "first_seen_at", *known, *_IMPACT)
        return self.rows(INCIDENTS, Is("cluster_id", cluster_id), Is("resolved_at", None), columns=columns)

    def _read_last_seen(self, cluster_id: str) -> list[Row]:
        columns = (*TransactionKey._fields, "producer_epoch", "first_seen_at")
        return self.rows(FIRST_SEEN, Is("cluster_id", cluster_id), columns=columns)

    # --- what a sweep leaves

    def write(self, scan: Scan) -> None:
        """Stores a sweep. It is visible whole when this returns, and not at all when it raises. Twice stores it once.

        A sweep's id is made by the process that writes it, so this object knows whether any of it is written already.
        Delta could find out, too (`txnAppId`), but looks through its whole log for it, which takes as long as a write.
        """
        if scan.sweep_id in self._begun:
            for table in reversed(OF_SWEEPS):
                self.delta.delete(table, Is("sweep_id", scan.sweep_id))
        self._begun.append(scan.sweep_id)
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
        """Stores since when everything that this sweep saw has been open, in the place of what the last sweep of its
        scope stored. Where two sweeps do so at the same time, either result is right.
        """
        still_open = [judged for judged in scan.transactions if judged.judgement.verdict is not Verdict.GONE]
        if not still_open:
            # The stored rows are about transactions that are over, and no new one has the key of one of them.
            return
        oldest_first = sorted(still_open, key=lambda judged: judged.observation.first_seen_ms)
        rows = arrow_rows(FIRST_SEEN.columns, FIRST_SEEN.rows(scan, oldest_first[:FIRST_SEEN_MAX]))
        part = (Is("cluster_id", scan.cluster_id), Is("scope_key", scope_key(scan.scope)))
        tried_again(self.delta, lambda: self.delta.replace(FIRST_SEEN, rows, *part))

    def _count_incidents(self, scan: Scan) -> None:
        hanging = [judged for judged in scan.transactions if judged.judgement.verdict is Verdict.HANGING]
        # Not again when the merge is retried: another sweep may have opened incidents since, about which this one
        # proves nothing.
        over = self._over(scan)
        if hanging or over:
            rows = _of_incidents(scan, hanging, over)
            on = "t.incident_id = s.incident_id"
            tried_again(self.delta, lambda: self.delta.merge(INCIDENTS, rows, on, _COUNTED))

    def _append(self, scan: Scan, table: Table) -> None:
        items = items_of(scan, table)
        if items:
            rows = arrow_rows(table.columns, table.rows(scan, items))
            tried_again(self.delta, lambda: self.delta.append(table, rows))

    def append(self, table: Table, items: Sequence[Any], *, once: str) -> None:
        """Appends a row for each item. What is appended twice with the same `once`, by whatever process, is appended
        once.
        """
        rows = arrow_rows(table.columns, table.rows(None, items))
        tried_again(self.delta, lambda: self.delta.append(table, rows, once=once))

    def remember(self, incident_id: str, known: KnownOutcome) -> None:
        """Adds to what is known of an incident's outcome."""
        judged = _Known(known)
        row = {column.name: column.value(None, judged) for column in KNOWN}
        columns = [next(column for column in INCIDENTS.columns if column.name == "incident_id"), *KNOWN]
        rows = arrow_rows(columns, [{"incident_id": incident_id, **row}])
        on = "t.incident_id = s.incident_id"
        tried_again(self.delta, lambda: self.delta.merge(INCIDENTS, rows, on, [Matched("true", dict(_best_known()))]))

    def _over(self, scan: Scan) -> list[tuple[str, str]]:
        """Open incidents of this cluster that this sweep proved to be over, with how.

        A partition whose leader's answer was not proven proves nothing about its incidents, and neither does a
        transaction that is still open in any way.
        """
        if not scan.proven:
            return []
        # The incidents as this sweep read them at its start, if it did: it proves nothing about later ones.
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
        of = (Is("cluster_id", cluster_id), Is("status", "resolved"))
        written = self.rows(RESOLUTIONS, *of, columns=("incident_id", "marker"))
        return {row["incident_id"]: row["marker"] for row in written}

    # --- what a sweep left

    def rows(
        self,
        table: Table,
        *where: Condition,
        columns: Sequence[str] | None = None,
        order: Sequence[By] = (),
        limit: int | None = None,
    ) -> list[Row]:
        """Rows of a table, as `Delta.read`. Raises ConfigError when there are no tables at the location, when this one
        is gone, and when it is damaged.
        """
        return self._read(table, lambda: self.delta.read(table, *where, columns=columns, order=order, limit=limit))

    def _read(self, table: Table, read: Callable[[], Answer]) -> Answer:
        try:
            return read()
        except Exception as error:
            if self._columns(table) is not None:
                raise ConfigError("--tables", f"{self._shown} cannot be read: {self.why_failed(error)}") from None
        if any(self._columns(other) is not None for other in TABLES):
            raise self._gone([table])
        raise ConfigError("--tables", f"there are no tables of txnscan at {self._shown}")

    def read(self, table: Table, sweep_id: str, columns: Sequence[str] | None = None) -> list[Row]:
        """The rows of one finished sweep; none when it is not finished."""
        finished = self.rows(SWEEPS, Is("sweep_id", sweep_id), columns=("sweep_id",), limit=1)
        return self.rows(table, Is("sweep_id", sweep_id), columns=columns) if finished else []

    def of_finished_sweeps(self, rows: Sequence[Row]) -> list[Row]:
        """Those of the rows that are of a finished sweep."""
        ids = frozenset(row["sweep_id"] for row in rows)
        found = self.rows(SWEEPS, OneOf("sweep_id", ids), columns=("sweep_id",)) if ids else []
        finished = {row["sweep_id"] for row in found}
        return [row for row in rows if row["sweep_id"] in finished]

    def sweep(self, sweep_id: str) -> Row | None:
        """The row of a finished sweep; None where there is none of this id."""
        rows = self.rows(SWEEPS, Is("sweep_id", sweep_id), limit=1)
        return rows[0] if rows else None

    def last_sweeps(self, cluster_id: str | None = None) -> list[Row]:
        """Of each cluster, or this one, the row of the last finished sweep of everything, and of the last one of a part
        of it. Raises ConfigError when there are no tables at the location, or they are damaged.
        """
        self._check_commits()
        of = () if cluster_id is None else (Is("cluster_id", cluster_id),)
        by = ("cluster_id", "scope = 'all'")
        return self._read(SWEEPS, lambda: self.delta.newest(SWEEPS, by, "started_at", *of))

    def last_sweep(self, cluster_id: str | None = None) -> Row | None:
        """The row of the last finished sweep, whatever its scope; None where there is none. Raises as `last_sweeps`."""
        return max(self.last_sweeps(cluster_id), key=lambda row: row["started_at"], default=None)


def _number(properties: Mapping[str, str], key: str) -> int:
    """A property that is a number, 0 where it is not there."""
    value = properties.get(key, "")
    return int(value) if value.isdecimal() else 0


def items_of(scan: Scan, table: Table) -> Sequence[Any]:
    """The items of a sweep that get a row in a table."""
    found: Mapping[str, Sequence[Any]] = {
        OPEN_TRANSACTIONS.name: scan.stored,
        CANDIDATES.name: scan.candidates,
        SCAN_ERRORS.name: scan.errors,
        SWEEPS.name: [scan],
    }
    return found[table.name]


@dataclass(frozen=True, slots=True)
class _Known:
    """Stands in for a Judged: all that the columns of `schema.KNOWN` are taken from."""

    known: KnownOutcome


def _how(incident: str, written: Mapping[str, str]) -> str:
    return f"{written[incident].lower()}_marker" if incident in written else "ended"


def known_outcome(row: Row) -> KnownOutcome | None:
    """The outcome in an incident's row; None where no sweep has looked for it."""
    if row["outcome"] is None:
        return None
    return KnownOutcome(
        outcome=Outcome(row["outcome"]),
        why=row["outcome_reason"] or "",
        settled=bool(row["outcome_settled"]),
        siblings=from_row(Siblings, row["siblings"]) if row["siblings"] is not None else None,
        owner_committed=bool(row["owner_committed"]),
        evidence=tuple(row["outcome_evidence"] or ()),
        producer_epoch=row["outcome_epoch"],
    )


def _known_impact(row: Row) -> KnownImpact | None:
    """The impact in an incident's row; None where no sweep has looked for it."""
    if row["cause"] is None:
        return None
    return KnownImpact(
        last_stable_offset=row["last_stable_offset"],
        lso_since_ms=epoch_ms(row["lso_since"]) if row["lso_since"] is not None else None,
        cause=Cause(row["cause"]),
        cause_reason=row["cause_reason"] or "",
        owner_id=row["owner_id"],
    )


def _of_incidents(scan: Scan, hanging: Sequence[Judged], over: Sequence[tuple[str, str]]) -> Any:
    """What a sweep merges into the incidents: what hangs, and what is over, with how."""
    resolved_at = timestamp(scan.finished_at_ms)
    resolved = [{"incident_id": one, "resolved_how": how, "resolved_at": resolved_at} for one, how in over]
    return arrow_rows(INCIDENTS.columns, [*INCIDENTS.rows(scan, hanging), *resolved])


def _best_known() -> Iterable[tuple[str, str]]:
    """The assignments with which a merge keeps what is known of an outcome, as `outcome.best_known` does.

    A sweep has taken what it knew of the incident into account already. But it does not know incidents that were
    resolved, nor what another sweep has written since.
    """
    pairs = (
        f"WHEN t.outcome = '{earlier}' AND s.outcome = '{found}' THEN '{together}'"
        for (earlier, found), together in TOGETHER.items()
    )
    at_another_epoch = "t.outcome_epoch <> s.outcome_epoch"
    veto = "t.outcome IN ('committed', 'maybe_committed') AND s.outcome <> 'committed'"
    outcome = (
        f"CASE WHEN {at_another_epoch} AND {veto} THEN 'maybe_committed' WHEN {at_another_epoch} THEN s.outcome "
        f"{' '.join(pairs)} ELSE coalesce(s.outcome, t.outcome) END"
    )
    yield "outcome", outcome
    yield "outcome_epoch", "coalesce(s.outcome_epoch, t.outcome_epoch)"
    either_settled = "coalesce(t.outcome_settled, false) OR coalesce(s.outcome_settled, false)"
    yield "outcome_settled", f"CASE WHEN {at_another_epoch} THEN s.outcome_settled ELSE {either_settled} END"
    for name in ("outcome_reason", "outcome_evidence"):
        yield name, f"CASE WHEN t.outcome IS NULL OR {outcome} = s.outcome THEN s.{name} ELSE t.{name} END"
    yield "owner_committed", "coalesce(t.owner_committed, false) OR coalesce(s.owner_committed, false)"
    yield "siblings", f"CASE WHEN {at_another_epoch} OR t.siblings IS NULL THEN s.siblings ELSE t.siblings END"


# The columns of an incident that stay as its first sweep wrote them, or that are set in other ways.
_KEPT = ("incident_id", "sweeps", "first_seen_at", "sweep_date", "resolved_at", "resolved_how")
# Counts what hangs, and closes what is over. Merging the same rows twice is the same as once.
_COUNTED = (
    Matched(
        "s.resolved_how IS NOT NULL AND t.resolved_at IS NULL",
        {"resolved_at": "s.resolved_at", "resolved_how": "s.resolved_how"},
    ),
    Matched(
        "s.resolved_how IS NULL AND t.last_sweep_id <> s.last_sweep_id AND t.last_seen_at < s.last_seen_at",
        {
            "sweeps": "t.sweeps + 1",
            "resolved_at": "NULL",
            "resolved_how": "NULL",
            **{
                column.name: f"s.{column.name}"
                for column in INCIDENTS.columns
                if column.name not in _KEPT and column not in KNOWN
            },
            **dict(_best_known()),
        },
    ),
    NotMatched("s.resolved_how IS NULL", [column.name for column in INCIDENTS.columns]),
)


def _sightings(rows: Iterable[Row]) -> Sightings:
    """The sightings in these rows. Scopes overlap, and of two rows of one transaction the earlier one counts."""
    first: dict[TransactionKey, Sighting] = {}
    for row in rows:
        which, seen = TransactionKey.of(row), Sighting(epoch_ms(row["first_seen_at"]), row["producer_epoch"])
        first[which] = min(seen, first.get(which, seen), key=lambda one: one.first_seen_ms)
    return first


def _begun(call: Callable[[], Answer]) -> Callable[[], Answer]:
    """Starts the call in a thread of its own, and returns a function that waits for its result."""
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
