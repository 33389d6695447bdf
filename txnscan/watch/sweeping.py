"""Sweeps one cluster repeatedly. A scrape reads one frozen value, which is replaced after each sweep."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from txnscan.config import ScanConfig
from txnscan.engine.spark.errors import in_one_line
from txnscan.errors import TxnscanError
from txnscan.kafka.client.deadline import sweep_limit_ms
from txnscan.reads.observation import TransactionKey
from txnscan.report.metrics import Stuck, Watched, stuck_since
from txnscan.report.notifications import not_observed, sentence, swept
from txnscan.sweeps.history import DiskReads, Ended, History, Incidents, Sightings, together_facts
from txnscan.sweeps.news import EventNews, News
from txnscan.sweeps.restored import Past, latest_of
from txnscan.sweeps.result import Scan
from txnscan.txnlog.facts import Facts
from txnscan.waiting.complete_up_to import TopicRead
from txnscan.waiting.disk import PartitionId
from txnscan.watch.incident_tracker import INCIDENTS_MAX, IncidentTracker, TrackedHistory, remember, together

Answer = TypeVar("Answer")

# Sweeps a cluster once, with the results of earlier sweeps. Raises TxnscanError.
Sweep = Callable[[ScanConfig, History], Scan]


# A sweep is overdue five minutes after its time limit, in which it can end and be stored.
AFTER_TIMEOUT_S = 300.0
# The time that a sweep is expected to take at least, for its limit without --timeout. The cluster may have grown.
EXPECTED_S_MIN = 180.0


class NotSwept(TxnscanError):
    """The cluster is not swept. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class Store:
    """Tables, or another store of sweeps. If `history` or `write` raises, the cluster is still swept."""

    history: History
    write: Callable[[Scan], None]


class SweptClusters:
    """The name under which each cluster is swept. Prevents two sweeps of one cluster under two names."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}

    def claim(self, cluster_id: str, name: str) -> None:
        """Reserves the cluster for this name. Raises NotSwept if another name has it."""
        with self._lock:
            owner = self._names.setdefault(cluster_id, name)
            if owner != name:
                raise NotSwept(f"this is the cluster that '{owner}' watches already; keep one of the two")
            # A name has one cluster. If the name now leads to another cluster, its former cluster is free again.
            for other in [one for one, by in self._names.items() if by == name and one != cluster_id]:
                del self._names[other]


class _Given:
    """The history of a sweep: the state of this process, and the store's data if the store can be read."""

    def __init__(
        self,
        name: str,
        memory: IncidentTracker,
        swept: SweptClusters,
        store: Store | None,
        complain: Callable[[str], None],
    ) -> None:
        self._name = name
        self._memory = memory
        self._own = TrackedHistory(memory)
        self._claims = swept
        self._store = store
        self._complain = complain
        # Whether the store lacks the history of this process, because it could not be written.
        self._store_is_behind = False
        # The store's incidents when the sweep began; None if they were not read.
        self.stored: Incidents | None = None

    def unresolved(self, cluster_id: str) -> Callable[[], Incidents]:
        """See History. Raises NotSwept before the first read if another name has the cluster."""
        self._claims.claim(cluster_id, self._name)
        own = self._own.unresolved(cluster_id)
        if self._store is None:
            return own
        begun = self._caught(partial(self._store.history.unresolved, cluster_id))

        def read() -> Incidents:
            self.stored = self._caught(begun) if begun is not None else None
            return together(own(), self.stored or {})

        return read

    def past(self, cluster_id: str) -> Callable[[], Past]:
        """See History. The latest history that this process or the store knows."""
        own = self._own.past(cluster_id)
        if self._store is None:
            return own
        begun = self._caught(partial(self._store.history.past, cluster_id))

        def read() -> Past:
            stored = (self._caught(begun) if begun is not None else None) or Past()
            latest = latest_of([own(), stored])
            self._store_is_behind = stored.history < latest.history
            return latest

        return read

    def ended(self, cluster_id: str, transactions: Collection[TransactionKey]) -> Callable[[], Ended]:
        """See History. This process keeps no incidents that ended."""
        if self._store is None or self._store_is_behind:
            return dict
        begun = self._caught(partial(self._store.history.ended, cluster_id, transactions))
        return lambda: (self._caught(begun) if begun is not None else None) or {}

    def vetoes(self, cluster_id: str) -> int:
        """See History."""
        return self._own.vetoes(cluster_id)

    def last_seen(self, cluster_id: str) -> Callable[[], Sightings]:
        """See History. The sightings of this process are newer than those in the store."""
        own = self._own.last_seen(cluster_id)
        if self._store is None or self._memory.cluster_id == cluster_id:
            return own
        begun = self._caught(partial(self._store.history.last_seen, cluster_id))
        return lambda: (self._caught(begun) if begun is not None else None) or {}

    def facts(self, cluster_id: str, producer_ids: Collection[int]) -> Callable[[], Facts]:
        """See History. Combines the facts of this process with the stored facts."""
        own = self._own.facts(cluster_id, producer_ids)
        if self._store is None:
            return own
        begun = self._caught(partial(self._store.history.facts, cluster_id, producer_ids))

        def read() -> Facts:
            stored = (self._caught(begun) if begun is not None else None) or {}
            if self._store_is_behind:
                stored = {one: facts.only_vetoes() for one, facts in stored.items()}
            return together_facts(own(), stored)

        return read

    def topic_reads(self, cluster_id: str, topics: Collection[str]) -> Callable[[], Sequence[TopicRead]]:
        """See History. The reads of this process, and the stored ones."""
        own = self._own.topic_reads(cluster_id, topics)
        if self._store is None or self._store_is_behind:
            return own
        begun = self._caught(partial(self._store.history.topic_reads, cluster_id, topics))
        return lambda: (*own(), *((self._caught(begun) if begun is not None else None) or ()))

    def disk_reads(self, cluster_id: str, partitions: Collection[PartitionId], now_ms: int) -> Callable[[], DiskReads]:
        """See History. The reads of this process, and the stored ones if it has none yet."""
        own = self._own.disk_reads(cluster_id, partitions, now_ms)()
        if self._store is None or own:
            return lambda: own
        begun = self._caught(partial(self._store.history.disk_reads, cluster_id, partitions, now_ms))
        return lambda: (self._caught(begun) if begun is not None else None) or {}

    def _caught(self, call: Callable[[], Answer]) -> Answer | None:
        try:
            return call()
        except Exception as error:
            # Each kind of storage fails in its own ways. The cluster is still swept.
            self._complain(f"what earlier processes left cannot be read: {in_one_line(error, names_option=False)}")
            return None


class ClusterWatch:
    """Sweeps a cluster at each call of `once`, which never raises. Call it from one thread only. `is_overdue` and
    `scraped` are for other threads.

    tell: called with the news; it must not wait. say: called with a sentence for the operator.
    """

    def __init__(
        self,
        name: str,
        config: ScanConfig,
        *,
        sweep: Sweep,
        swept: SweptClusters,
        tell: Callable[[Sequence[EventNews]], None],
        say: Callable[[str], None],
        store: Store | None = None,
    ) -> None:
        self.name = name
        self._config = config
        self._sweep = sweep
        self._claims = swept
        self._store = store
        self._tell = tell
        self._to_say = say
        self._memory = IncidentTracker()
        self._stuck: Stuck = {}
        self._seeded = False
        # A counter that begins at 0 shows its first failure as an increase.
        self._sweeps: Counter[str] = Counter(done=0, failed=0)
        self._writes: Counter[str] = Counter(done=0, failed=0) if store is not None else Counter()
        self._said: dict[str, object] = {}
        self._lock = threading.Lock()
        # Of the sweep under way: when it is overdue, None between sweeps; whether it was; and whether it is counted.
        self._overdue_at_s: float | None = None
        self._was_overdue = False
        self._counted = False
        self._took_s = 0.0
        # Always replaced as a whole, under the lock.
        self.watched = Watched(name, None, up=False, sweeps=dict(self._sweeps), writes=dict(self._writes))

    @property
    def attempted(self) -> bool:
        """Whether a sweep has ended, with any result."""
        return any(self.watched.sweeps.values())

    def run(self, stop: threading.Event, interval_s: float) -> None:
        """Sweeps until stopped. A sweep begins `interval_s` after the last one began, or as soon as that has ended."""
        while not stop.is_set():
            began_s = time.monotonic()
            self.once()
            stop.wait(max(0.0, began_s + interval_s - time.monotonic()))

    def is_overdue(self) -> bool:
        """Whether the sweep under way, or its storing, should have ended by now. Such a sweep counts as failed. If it
        ends after all, its values are shown.
        """
        with self._lock:
            if self._overdue_at_s is None or time.monotonic() < self._overdue_at_s:
                return False
            if not self._was_overdue:
                self._was_overdue = True
                self._count("failed")
                self.watched = replace(self.watched, up=False, sweeps=dict(self._sweeps))
                self._say_once("sweep", "this sweep is overdue: it neither ended nor failed; restart this process")
            return True

    def scraped(self) -> Watched:
        """The state of the cluster now."""
        self.is_overdue()
        return self.watched

    def once(self) -> None:
        """Sweeps once. If the sweep fails, the values of the last successful sweep stay."""
        with self._lock:
            self._counted = self._was_overdue = False
            self._overdue_at_s = time.monotonic() + self._allowed_s()
        self._once()
        with self._lock:
            self._overdue_at_s = None

    def _allowed_s(self) -> float:
        """The seconds after which a sweep that begins now is overdue."""
        limit_ms = self._config.timeout_ms or sweep_limit_ms(max(EXPECTED_S_MIN, self._took_s))
        return limit_ms / 1_000 + AFTER_TIMEOUT_S

    def _count(self, result: str) -> None:
        """Counts this sweep, unless it is counted already."""
        if not self._counted:
            self._counted = True
            self._sweeps[result] += 1

    def _once(self) -> None:
        began_s = time.monotonic()
        given = _Given(self.name, self._memory, self._claims, self._store, partial(self._say_once, "store"))
        try:
            found = self._sweep(self._config, given)
            self._took_s = time.monotonic() - began_s
            self._finished(found, given.stored)
        except Exception as error:
            # After any failure, the next sweep may succeed.
            with self._lock:
                self._count("failed")
                self.watched = replace(self.watched, up=False, sweeps=dict(self._sweeps))
            self._say_once("sweep", f"this sweep failed: {in_one_line(error, names_option=False)}")

    def _finished(self, found: Scan, stored: Incidents | None) -> None:
        new_id = self._memory.cluster_id != found.cluster_id
        self._stuck = stuck_since(found, {} if new_id else self._stuck)
        left = None if self._seeded or stored is None else self._in_scope(stored)
        self._memory, news, events = remember(self._memory, self.name, found, left)
        if stored is not None:
            self._seeded = True
            self._said.pop("store", None)
        with self._lock:
            self._count("done")
            self.watched = Watched(
                self.name,
                found,
                up=True,
                last_complete_ms=found.finished_at_ms if found.complete else self.watched.last_complete_ms,
                stuck=self._stuck,
                open_incidents=len(self._memory.incidents) + self._memory.unwatched,
                sweeps=dict(self._sweeps),
                writes=dict(self._writes),
            )
        self._report(found, news)
        if events:
            self._tell(events)
        if self._store is not None:
            self._write(self._store, found)

    def _in_scope(self, stored: Incidents) -> Incidents:
        """The incidents on the topics that this watch sweeps. It would never see the end of others."""
        wanted = self._config.wanted_topics(which.topic for which in stored)
        return {which: one for which, one in stored.items() if which.topic in wanted}

    def _write(self, store: Store, found: Scan) -> None:
        try:
            store.write(found)
        except Exception as error:
            # The same as for reads from the store.
            self._writes["failed"] += 1
            self._say_once("write", f"the sweep was not stored: {in_one_line(error, names_option=False)}")
        else:
            self._writes["done"] += 1
            self._said.pop("write", None)
        with self._lock:
            self.watched = replace(self.watched, writes=dict(self._writes))

    def _report(self, found: Scan, news: Sequence[News]) -> None:
        self._say_once("sweep", swept(found), unless_as=found.cluster_id)
        self._say_once("seen", not_observed(found), unless_as=found.complete)
        # Warnings that differ only in their numbers, such as an age, count as the same warning.
        warnings = {f"warning {re.sub('[0-9]+', '', warning)}": warning for warning in found.warnings}
        for about, warning in warnings.items():
            self._say_once(about, f"warning: {warning}", unless_as=about)
        for about in [about for about in self._said if about.startswith("warning ") and about not in warnings]:
            del self._said[about]
        if self._memory.unwatched:
            more = f"{self._memory.unwatched:,} hanging transactions more than the {INCIDENTS_MAX:,} that are watched"
            self._say_once("unwatched", f"warning: {more}: there is no notification of them", unless_as=True)
        else:
            self._said.pop("unwatched", None)
        for one in news:
            self._say(sentence(one))

    def _say(self, said: str) -> None:
        self._to_say(f"{self.name}: {said}")

    def _say_once(self, about: str, said: str, unless_as: object = None) -> None:
        """Reports the sentence, unless the last report about this subject was the same. unless_as: compared instead of
        the sentence.
        """
        what = said if unless_as is None else unless_as
        if self._said.get(about) != what:
            self._said[about] = what
            self._say(said)
