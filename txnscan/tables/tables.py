"""The Delta tables: append, fold, read. Their columns are in `schema.py`, the operations in `delta.py`. `creation.py`
creates them.

A sweep becomes visible when its row in `sweeps` is written, which is last; readers here join with it. Records
of the transaction log count at once: they are facts, even if their sweep fails. Two sweeps may write at the same time:
appends do not conflict, and the fold of incidents is tried again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from txnscan.config import ConfigError
from txnscan.engine.rows import from_row
from txnscan.reads.observation import TransactionKey
from txnscan.sweeps.column import epoch_ms, timestamp
from txnscan.sweeps.history import TOPIC_READS_MAX, DiskReads, Ended, Incident, Incidents, Sighting, Sightings
from txnscan.sweeps.restored import LogPosition, Past, latest_of
from txnscan.sweeps.result import COMPLETED, ENDED, Scan
from txnscan.tables.conditions import Condition, Is, IsNot, NotBefore, OneOf
from txnscan.tables.creation import Changes, check_files, create, shown, to_create, unreadable, why_failed
from txnscan.tables.damage import cause
from txnscan.tables.delta import By, Delta, Row, arrow_rows, tried_again
from txnscan.tables.facts import KINDS, known, learned, vetoes_in
from txnscan.tables.incidents import folded
from txnscan.tables.schema import (
    CANDIDATES,
    FACTS,
    FIRST_SEEN,
    FIRST_SEEN_MAX,
    INCIDENTS,
    OPEN_TRANSACTIONS,
    RESOLUTIONS,
    SCAN_ERRORS,
    SWEEPS,
    TOPIC_READS,
    Table,
    scope_key,
)
from txnscan.tables.versions import check_readable, check_writable, upgrade
from txnscan.txnlog.facts import NO_FACTS, Facts, ProducerFacts, SentMarker
from txnscan.verdict.evidence import Verdict
from txnscan.waiting.cause import Cause
from txnscan.waiting.complete_up_to import PartitionRead, TopicRead
from txnscan.waiting.disk import GROWTH_OVER_MS_MAX, READS_MAX, DiskRead, PartitionId
from txnscan.waiting.impact import CarriedImpact

Answer = TypeVar("Answer")

_BEGUN_MAX = 100
# The positions of this many sweeps are compared.
_POSITIONS_OF_SWEEPS = 20
# The columns of an incident's impact that a sweep reads.
_SENT = ("topic", "partition", "producer_id", "producer_epoch")
_IMPACT = ("last_stable_offset", "lso_since", "cause", "cause_reason", "owner_id", "event_id")
# The last table makes a sweep visible.
OF_SWEEPS = (FACTS, OPEN_TRANSACTIONS, CANDIDATES, SCAN_ERRORS, TOPIC_READS, SWEEPS)


class Tables:
    """The tables of one location."""

    def __init__(self, delta: Delta) -> None:
        self.delta = delta
        # Open incidents, by cluster, as the sweep under way found them.
        self._unresolved: dict[str, list[Row]] = {}
        # The history of each cluster and the first one whose facts veto, as the sweep under way found them.
        self._histories: dict[str, tuple[int, int]] = {}
        # The sweeps that this object began to write, and may have written in part: the last few, in a process that runs
        # for ever.
        self._begun: deque[str] = deque(maxlen=_BEGUN_MAX)
        # Whether this release may read the tables, by their version. Asked once: it takes a read of a table.
        self._is_readable = False

    def create(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Creates missing tables, before any request to the cluster. See `creation.create`."""
        create(self.delta, self._at_once, say)
        self._is_readable = True

    def to_create(self) -> Changes:
        """The changes that a sweep would make. Only reads. Raises the errors of `creation.to_create`."""
        return to_create(self.delta, self._at_once)

    def upgrade(self, say: Callable[[str], None]) -> list[str]:
        """See `versions.upgrade`. Raises ConfigError without tables."""
        with self.writing():
            return self._read(SWEEPS, lambda: upgrade(self.delta, say))

    def check_writable(self) -> None:
        """Raises ConfigError without tables, and if this release cannot write them by their version."""
        self._read(SWEEPS, lambda: check_writable(self.delta))

    def check_readable(self) -> None:
        """Raises ConfigError without tables, and if this release cannot read them by their version. Each read begins
        with this: a row of an unknown form must not open a gate.
        """
        if not self._is_readable:
            self._read(SWEEPS, lambda: check_readable(self.delta))
            self._is_readable = True

    def why_failed(self, error: BaseException) -> str:
        """Why tables cannot be written or read, in one line, with the remedy if it is known."""
        return why_failed(self.delta, error)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Raises a ConfigError in place of an error that a full disk or a missing permission causes in here."""
        try:
            yield
        except Exception as error:
            why = None if isinstance(error, ConfigError) else cause(str(error))
            if why is None:
                raise
            raise ConfigError("--tables", f"{shown(self.delta)} cannot be written: {why}") from None

    # --- what a sweep needs to know (`result.History`)

    def unresolved(self, cluster_id: str) -> Callable[[], Incidents]:
        """See History."""

        def read() -> Incidents:
            self._unresolved[cluster_id] = rows = self._read_unresolved(cluster_id)
            return incidents_of(rows)

        return self._begun_read(read)

    def past(self, cluster_id: str) -> Callable[[], Past]:
        """See History. Positions only rise within a history, so the last sweeps suffice."""
        return self._begun_read(partial(self._past_and_history, cluster_id))

    def _past_and_history(self, cluster_id: str) -> Past:
        found = self._past(cluster_id)
        self._histories[cluster_id] = (found.history, found.vetoes_from)
        return found

    def _past(self, cluster_id: str) -> Past:
        of, columns = Is("cluster_id", cluster_id), ("history", "vetoes_from", "image_offset", "positions")
        last = (By("history", descending=True), By("started_at", descending=True))
        rows = self.rows(SWEEPS, of, columns=columns, order=last, limit=_POSITIONS_OF_SWEEPS)
        # A sweep that was not finished may have stored incidents of a history that no finished sweep has.
        newest = self.rows(INCIDENTS, of, columns=("history",), order=(By("history", descending=True),), limit=1)
        return latest_of([Past(row["history"]) for row in newest] + [_past_of(row) for row in rows])

    def _history(self, cluster_id: str) -> tuple[int, int]:
        """The present history, and the first one whose facts veto. In a sweep, as it was at its start."""
        known = self._histories.get(cluster_id)
        if known is not None:
            return known
        found = self._past(cluster_id)
        return found.history, found.vetoes_from

    def vetoes(self, cluster_id: str) -> int:
        """The number of stored facts that can forbid an ABORT."""
        vetoes_from = self._history(cluster_id)[1]
        rows = self.rows(
            FACTS, Is("cluster_id", cluster_id), columns=("history", "reads", "markers", "commits", "closed")
        )
        return vetoes_in(rows, vetoes_from)

    def ended(self, cluster_id: str, transactions: Collection[TransactionKey]) -> Callable[[], Ended]:
        """See History."""
        return self._begun_read(partial(self._ended, cluster_id, frozenset(transactions)))

    def _ended(self, cluster_id: str, transactions: frozenset[TransactionKey]) -> Ended:
        ids = {which.incident_id(cluster_id): which for which in transactions}
        of = (
            *(Is("cluster_id", cluster_id), Is("is_open", False), Is("history", self._history(cluster_id)[0])),
            OneOf("incident_id", frozenset(ids)),
        )
        rows = self.rows(INCIDENTS, *of, columns=("incident_id", "leader_epoch")) if ids else []
        return {ids[row["incident_id"]]: row["leader_epoch"] for row in rows}

    def last_seen(self, cluster_id: str) -> Callable[[], Sightings]:
        """See History. Each sweep stores when its transactions were first seen, also by earlier sweeps, so that the
        last sweep of each scope suffices, however long the history is.
        """
        return self._begun_read(lambda: _sightings(self._read_last_seen(cluster_id)))

    def _read_unresolved(self, cluster_id: str) -> list[Row]:
        known = (
            *("first_seen_at", "producer_epoch", "last_sequence", "high_watermark", "history", "leader_epoch"),
            "outcome",
        )
        columns = ("incident_id", *TransactionKey._fields, *known, *_IMPACT)
        return self.rows(INCIDENTS, Is("cluster_id", cluster_id), Is("is_open", True), columns=columns)

    def facts(self, cluster_id: str, producer_ids: Collection[int]) -> Callable[[], Facts]:
        """See History."""
        return self._begun_read(partial(self._facts, cluster_id, frozenset(producer_ids)))

    def _facts(self, cluster_id: str, producer_ids: frozenset[int]) -> Facts:
        if not producer_ids:
            return {}
        of = (Is("cluster_id", cluster_id), OneOf("producer_id", producer_ids))
        rows, sent = self._at_once(
            (
                lambda: self.rows(FACTS, *of, columns=("producer_id", "history", *KINDS)),
                lambda: self.rows(RESOLUTIONS, *of, Is("step", "intent"), columns=_SENT),
            )
        )
        found = known(rows, *self._history(cluster_id))
        markers = [SentMarker(*(row[name] for name in _SENT)) for row in sent]
        return {
            one: found.get(one, NO_FACTS) + ProducerFacts(sent=tuple(m for m in markers if m.producer_id == one))
            for one in producer_ids
        }

    def _read_last_seen(self, cluster_id: str) -> list[Row]:
        columns = (*TransactionKey._fields, "producer_epoch", "first_seen_at")
        of = (Is("cluster_id", cluster_id), Is("history", self._history(cluster_id)[0]))
        return self.rows(FIRST_SEEN, *of, columns=columns)

    def topic_reads(self, cluster_id: str, topics: Collection[str]) -> Callable[[], Sequence[TopicRead]]:
        """See History. A row is a fact, even if its sweep was never finished."""
        return self._begun_read(lambda: [read for _, read in self.last_topic_reads(topics, cluster_id)])

    def last_topic_reads(self, topics: Collection[str], cluster_id: str | None = None) -> list[tuple[str, TopicRead]]:
        """The last reads of each topic in the cluster's present history, newest first, each with its cluster's id.
        Raises ConfigError without tables.
        """
        of = () if cluster_id is None else (Is("cluster_id", cluster_id), Is("history", self._history(cluster_id)[0]))
        columns = ("cluster_id", "topic", "topic_id", "read_at", "partitions", "code", "history")
        newest = (By("read_at", descending=True),)
        found = []
        for topic in dict.fromkeys(topics):
            where = (*of, Is("topic", topic))
            found += self.rows(TOPIC_READS, *where, columns=columns, order=newest, limit=TOPIC_READS_MAX)
        # Of several clusters, the histories are known only now.
        return [
            (row["cluster_id"], _topic_read(row))
            for row in found
            if cluster_id is not None or row["history"] == self._history(row["cluster_id"])[0]
        ]

    def disk_reads(self, cluster_id: str, partitions: Collection[PartitionId], now_ms: int) -> Callable[[], DiskReads]:
        """See History. A row is a fact, even if its sweep was never finished."""
        return self._begun_read(partial(self._disk_reads, cluster_id, frozenset(partitions), now_ms))

    def _disk_reads(self, cluster_id: str, partitions: frozenset[PartitionId], now_ms: int) -> DiskReads:
        where = (
            Is("cluster_id", cluster_id),
            NotBefore("sweep_date", timestamp(now_ms - GROWTH_OVER_MS_MAX).date()),
            OneOf("topic", frozenset(topic for topic, _, _ in partitions)),
            IsNot("partition_bytes", None),
        )
        columns = ("topic", "topic_id", "partition", "disk_read")
        newest, most = (By("started_at", descending=True),), READS_MAX * len(partitions)
        rows = self.rows(OPEN_TRANSACTIONS, *where, columns=columns, order=newest, limit=most)
        found: dict[PartitionId, dict[DiskRead, None]] = {}
        for row in rows:
            which = (row["topic"], row["topic_id"], row["partition"])
            if which in partitions:
                # Transactions on one partition have the same read.
                found.setdefault(which, {})[from_row(DiskRead, row["disk_read"])] = None
        return {which: tuple(reads)[:READS_MAX] for which, reads in found.items()}

    # --- what a sweep leaves

    def write(self, scan: Scan) -> None:
        """Stores a sweep. It is visible whole when this returns, and not at all when it raises. Twice stores it once.

        A sweep's id is made by the process that writes it, so this object knows whether any of it is written already.
        Delta could find out, too (`txnAppId`), but looks through its whole log for it, which takes as long as a write.
        """
        unwritten = list(OF_SWEEPS)
        if scan.sweep_id in self._begun:
            of_sweep = Is("sweep_id", scan.sweep_id)
            for table in reversed(OF_SWEEPS):
                if table is not FACTS:
                    self.delta.delete(table, Is("cluster_id", scan.cluster_id), of_sweep)
                # Facts count already, and this process may end before it has written them again.
                elif self.delta.read(table, of_sweep, columns=("sweep_id",), limit=1):
                    unwritten.remove(table)
        self._begun.append(scan.sweep_id)
        *others, sweeps = unwritten
        self._at_once(
            (
                *(partial(self._append, scan, table) for table in others),
                partial(self._hand_on, scan),
                partial(self._fold_incidents, scan),
            )
        )
        self._append(scan, sweeps)

    def _hand_on(self, scan: Scan) -> None:
        """Stores the first observation of each transaction of this sweep, and replaces those of the last sweep of its
        scope. If two sweeps do so at the same time, either result is right.
        """
        still_open = [judged for judged in scan.transactions if judged.judgement.verdict is not Verdict.GONE]
        if not still_open:
            # The stored rows are about transactions that are over, and no new one has the key of one of them.
            return
        oldest_first = sorted(still_open, key=lambda judged: judged.observation.first_seen_ms)
        rows = arrow_rows(FIRST_SEEN.columns, FIRST_SEEN.rows(scan, oldest_first[:FIRST_SEEN_MAX]))
        part = (Is("cluster_id", scan.cluster_id), Is("scope_key", scope_key(scan.scope)))
        tried_again(self.delta, lambda: self.delta.replace(FIRST_SEEN, rows, *part))

    def _fold_incidents(self, scan: Scan) -> None:
        """Folds the observations of this sweep into the incidents. If two sweeps do so at once, the fold of one may be
        lost, as if that sweep had not seen the incident.
        """
        open_now = [judged for judged in scan.transactions if judged.is_incident]
        seen = [*INCIDENTS.rows(scan, open_now), *self._over(scan)]
        if not seen:
            return
        tried_again(self.delta, partial(self._fold, scan.cluster_id, {row["incident_id"]: row for row in seen}))

    def _fold(self, cluster_id: str, seen: Mapping[str, Row]) -> None:
        """Folds these rows, by incident, into the stored rows."""
        of, is_open = Is("cluster_id", cluster_id), Is("is_open", True)
        still_open = {row["incident_id"]: row for row in self.delta.read(INCIDENTS, of, is_open)}
        closed: dict[str, Row] = {}
        if others := frozenset(seen) - still_open.keys():
            rows = self.delta.read(INCIDENTS, of, Is("is_open", False), OneOf("incident_id", others))
            closed = {row["incident_id"]: row for row in rows}
        before = closed | still_open
        after = {which: folded(before.get(which), one) for which, one in seen.items()}
        changed = {which: row for which, row in after.items() if row is not None and row != before.get(which)}
        if not changed:
            return
        stays_open = all(row["is_open"] for row in changed.values()) and not changed.keys() & closed.keys()
        # Delta replaces the files of a whole partition without a look at their rows.
        these = (
            is_open if stays_open and changed.keys() >= still_open.keys() else OneOf("incident_id", frozenset(changed))
        )
        self.delta.replace(INCIDENTS, arrow_rows(INCIDENTS.columns, changed.values()), of, these)

    def _append(self, scan: Scan, table: Table) -> None:
        items = items_of(scan, table)
        if items:
            rows = arrow_rows(table.columns, table.rows(scan, items))
            tried_again(self.delta, lambda: self.delta.append(table, rows))

    def append(self, table: Table, items: Sequence[Any], *, once: str) -> None:
        """Appends a row for each item. A second append with the same `once`, by any process, has no effect."""
        rows = arrow_rows(table.columns, table.rows(None, items))
        tried_again(self.delta, lambda: self.delta.append(table, rows, once=once))

    def _over(self, scan: Scan) -> list[Row]:
        """The open incidents of this cluster whose end this sweep proved: see `incidents.folded`."""
        if not scan.proven and not scan.topics_gone:
            return []
        # The incidents as this sweep read them at its start, if it did. It is no proof about later incidents.
        rows = self._unresolved.pop(scan.cluster_id, None)
        if rows is None:
            rows = self._read_unresolved(scan.cluster_id)
        over = scan.over(incidents_of(rows))
        by_marker = {ENDED, COMPLETED} & set(over.values())
        ours = self.resolved_by_apply(scan.cluster_id) if by_marker else {}
        return [_closed(scan, which, how, ours) for which, how in over.items()]

    def resolved_by_apply(self, cluster_id: str) -> Mapping[str, Row]:
        """The last marker that apply has written for each incident, by the incident's id, and when (`at`)."""
        of = (Is("cluster_id", cluster_id), Is("status", "resolved"))
        written = self.rows(RESOLUTIONS, *of, columns=("incident_id", "marker", "at"), order=(By("at"),))
        return {row["incident_id"]: row for row in written}

    def _begun_read(self, call: Callable[[], Answer]) -> Callable[[], Answer]:
        """Starts the call in a thread of its own, and returns a function that waits for its result."""
        with_one_thread = ThreadPoolExecutor(1, thread_name_prefix="txnscan-tables")
        answer = with_one_thread.submit(self.delta.for_thread(call))
        with_one_thread.shutdown(wait=False)
        return answer.result

    def _at_once(self, calls: Iterable[Callable[[], Answer]]) -> list[Answer]:
        """Makes all the calls, each in a thread of its own: a small table is written in steps that wait for one
        another, and tables do not wait for other tables. Raises an error of one of them, after all have ended.
        """
        waiting = tuple(map(self.delta.for_thread, calls))
        with ThreadPoolExecutor(len(waiting), thread_name_prefix="txnscan-tables") as pool:
            running = [pool.submit(call) for call in waiting]
        return [one.result() for one in running]

    # --- what a sweep left

    def rows(
        self,
        table: Table,
        *where: Condition,
        columns: Sequence[str] | None = None,
        order: Sequence[By] = (),
        limit: int | None = None,
    ) -> list[Row]:
        """Rows of a table, as `Delta.read`. Raises ConfigError without tables at the location, if this table is gone or
        damaged, and if this release cannot read the tables by their version.
        """
        self.check_readable()
        return self._read(table, lambda: self.delta.read(table, *where, columns=columns, order=order, limit=limit))

    def _read(self, table: Table, read: Callable[[], Answer]) -> Answer:
        try:
            return read()
        except ConfigError:
            raise
        except Exception as error:
            raise unreadable(self.delta, table, error) from None

    def read(self, table: Table, sweep_id: str, columns: Sequence[str] | None = None) -> list[Row]:
        """The rows of a finished sweep; empty if it is not finished."""
        finished = self.rows(SWEEPS, Is("sweep_id", sweep_id), columns=("sweep_id",), limit=1)
        return self.rows(table, Is("sweep_id", sweep_id), columns=columns) if finished else []

    def of_finished_sweeps(self, rows: Sequence[Row]) -> list[Row]:
        """The rows of finished sweeps among these."""
        finished = self.sweeps({row["sweep_id"] for row in rows}, ())
        return [row for row in rows if row["sweep_id"] in finished]

    def sweeps(self, sweep_ids: Collection[str], columns: Sequence[str]) -> Mapping[str, Row]:
        """These columns of the finished sweeps among these, by sweep id."""
        these = OneOf("sweep_id", frozenset(sweep_ids))
        found = self.rows(SWEEPS, these, columns=("sweep_id", *columns)) if sweep_ids else []
        return {row["sweep_id"]: row for row in found}

    def sweep(self, sweep_id: str) -> Row | None:
        """The row of a finished sweep. None without a sweep of this id."""
        rows = self.rows(SWEEPS, Is("sweep_id", sweep_id), limit=1)
        return rows[0] if rows else None

    def last_sweeps(self, cluster_id: str | None = None) -> list[Row]:
        """The rows of the last finished sweep of everything, and of a part, for each cluster or for this cluster.
        Raises ConfigError when there are no tables at the location, or they are damaged, or of a version that this
        release cannot read.
        """
        check_files(self.delta)
        self.check_readable()
        of = () if cluster_id is None else (Is("cluster_id", cluster_id),)
        by = ("cluster_id", "scope = 'all'")
        return self._read(SWEEPS, lambda: self.delta.newest(SWEEPS, by, "started_at", *of))

    def last_sweep(self, cluster_id: str | None = None) -> Row | None:
        """The row of the last finished sweep, of any scope. None without sweeps. Raises as `last_sweeps`."""
        return max(self.last_sweeps(cluster_id), key=lambda row: row["started_at"], default=None)


_ITEMS: Mapping[str, Callable[[Scan], Sequence[Any]]] = {
    FACTS.name: learned,
    OPEN_TRANSACTIONS.name: lambda scan: scan.stored,
    CANDIDATES.name: lambda scan: scan.candidates,
    SCAN_ERRORS.name: lambda scan: scan.errors,
    TOPIC_READS.name: lambda scan: scan.topic_reads,
    SWEEPS.name: lambda scan: [scan],
}


def items_of(scan: Scan, table: Table) -> Sequence[Any]:
    """The items of a sweep that get a row in a table."""
    return _ITEMS[table.name](scan)


def _topic_read(row: Row) -> TopicRead:
    partitions = tuple(from_row(PartitionRead, one) for one in row["partitions"])
    return TopicRead(row["topic"], row["topic_id"], epoch_ms(row["read_at"]), partitions, row["code"])


def _past_of(row: Row) -> Past:
    """The positions in the row of a sweep."""
    positions = tuple(from_row(LogPosition, one) for one in row["positions"])
    return Past(row["history"], row["vetoes_from"], row["image_offset"], positions)


def _closed(scan: Scan, which: TransactionKey, how: str, written: Mapping[str, Row]) -> Row:
    """The row of a sweep that proved its end. written: the markers that apply has written, by incident."""
    incident = which.incident_id(scan.cluster_id)
    leader_epoch, high_watermark = scan.ends.get(which.key, (-1, None))
    by_marker = how in (ENDED, COMPLETED)
    return {
        "incident_id": incident,
        "resolved_at": timestamp(scan.finished_at_ms),
        "resolved_how": f"{written[incident]['marker'].lower()}_marker" if by_marker and incident in written else how,
        "leader_epoch": leader_epoch,
        "high_watermark": high_watermark,
        "history": scan.history,
    }


def incidents_of(rows: Iterable[Row]) -> Incidents:
    """The incidents in these rows, as a sweep knows them."""
    return {
        TransactionKey.of(row): Incident(
            epoch_ms(row["first_seen_at"]),
            _carried_impact(row),
            row["producer_epoch"],
            row["last_sequence"],
            row["high_watermark"],
            row["history"],
            row["leader_epoch"],
            row["outcome"],
        )
        for row in rows
    }


def _carried_impact(row: Row) -> CarriedImpact | None:
    """The impact in an incident's row; None if no sweep examined it."""
    if row["cause"] is None:
        return None
    return CarriedImpact(
        last_stable_offset=row["last_stable_offset"],
        lso_since_ms=epoch_ms(row["lso_since"]) if row["lso_since"] is not None else None,
        cause=Cause(row["cause"]),
        cause_reason=row["cause_reason"] or "",
        owner_id=row["owner_id"],
        event_id=row["event_id"],
    )


def _sightings(rows: Iterable[Row]) -> Sightings:
    """The sightings in these rows. Scopes overlap, and of two rows of one transaction the earlier one counts."""
    first: dict[TransactionKey, Sighting] = {}
    for row in rows:
        which, seen = TransactionKey.of(row), Sighting(epoch_ms(row["first_seen_at"]), row["producer_epoch"])
        first[which] = min(seen, first.get(which, seen), key=lambda one: one.first_seen_ms)
    return first
