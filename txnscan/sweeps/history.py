"""The results of earlier sweeps that a sweep uses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from txnscan.reads.observation import TransactionKey
from txnscan.sweeps.restored import LogPosition, Past
from txnscan.txnlog.facts import NO_FACTS, Facts, ProducerFacts
from txnscan.waiting.complete_up_to import TopicRead
from txnscan.waiting.disk import DiskRead, PartitionId
from txnscan.waiting.impact import CarriedImpact


@dataclass(frozen=True, slots=True)
class Sighting:
    """When a transaction was first seen (epoch milliseconds), and the producer epoch of its partition then."""

    first_seen_ms: int
    producer_epoch: int


# At most this many reads of a topic are used. Each read keeps the mark that it rests on, so that the time from before a
# long block is not lost.
TOPIC_READS_MAX = 100

# The transactions that were open at the last sweep of each scope.
Sightings = Mapping[TransactionKey, Sighting]

# The leader epoch at which a sweep proved the end of a transaction.
Ended = Mapping[TransactionKey, int]

# The sizes of replicas by earlier sweeps.
DiskReads = Mapping[PartitionId, Sequence[DiskRead]]


@dataclass(frozen=True, slots=True)
class Incident:
    """A hanging transaction as earlier sweeps know it.

    impact: None until a sweep looks for it. producer_epoch, last_sequence: from the partition at the last sighting; -1
    if not known. end_offset: the high watermark of the partition then, None if not known. outcome: by all facts then.
    leader_epoch: of the partition then, -1 if not known. history: the history of the cluster at the last sighting. In
    another history, only its partition matters.
    """

    first_seen_ms: int
    impact: CarriedImpact | None = None
    producer_epoch: int = -1
    last_sequence: int = -1
    end_offset: int | None = None
    history: int = 0
    leader_epoch: int = -1
    outcome: str | None = None

    def position(self, which: TransactionKey) -> LogPosition:
        """The position of its partition at the last sighting. which: its key."""
        return LogPosition(which.topic, which.topic_id, which.partition, self.leader_epoch, self.end_offset)


Incidents = Mapping[TransactionKey, Incident]


class KnowsFacts(Protocol):
    """A store of facts from earlier sweeps and applies."""

    def facts(self, cluster_id: str, producer_ids: Collection[int]) -> Callable[[], Facts]:
        """Starts to read the facts that sweeps and applies have stored about these producer ids."""
        ...

    def past(self, cluster_id: str) -> Callable[[], Past]:
        """Starts to read the stored positions of the cluster, and the number of its history."""
        ...


class History(KnowsFacts, Protocol):
    """The results of earlier sweeps of a cluster.

    They are read at the same time as the cluster: each method starts the read, and returns a function that waits for
    the result.
    """

    def unresolved(self, cluster_id: str) -> Callable[[], Incidents]:
        """The unresolved incidents. A sweep reads their partitions with proof, to see whether they are resolved now."""
        ...

    def ended(self, cluster_id: str, transactions: Collection[TransactionKey]) -> Callable[[], Ended]:
        """Those of these transactions whose end a sweep of this history has proven."""
        ...

    def vetoes(self, cluster_id: str) -> int:
        """The number of stored facts that can forbid an ABORT."""
        ...

    def last_seen(self, cluster_id: str) -> Callable[[], Sightings]:
        """The transactions that were open at the last sweep of each scope."""
        ...

    def topic_reads(self, cluster_id: str, topics: Collection[str]) -> Callable[[], Sequence[TopicRead]]:
        """Reads of these topics by the last sweeps that read them. Fewer of them give an earlier time, never a wrong
        one.
        """
        ...

    def disk_reads(self, cluster_id: str, partitions: Collection[PartitionId], now_ms: int) -> Callable[[], DiskReads]:
        """Reads of the replicas of these partitions by the last sweeps, at most READS_MAX of each. now_ms: the current
        time. Reads of more than a day before need not be among them.
        """
        ...


class NoHistory:
    """The empty history of a scanner without tables."""

    def past(self, cluster_id: str) -> Callable[[], Past]:
        """See History."""
        return Past

    def ended(self, cluster_id: str, transactions: Collection[TransactionKey]) -> Callable[[], Ended]:
        """See History."""
        return dict

    def vetoes(self, cluster_id: str) -> int:
        """See History."""
        return 0

    def unresolved(self, cluster_id: str) -> Callable[[], Incidents]:
        """See History."""
        return dict

    def last_seen(self, cluster_id: str) -> Callable[[], Sightings]:
        """See History."""
        return dict

    def facts(self, cluster_id: str, producer_ids: Collection[int]) -> Callable[[], Facts]:
        """See History."""
        return dict

    def topic_reads(self, cluster_id: str, topics: Collection[str]) -> Callable[[], Sequence[TopicRead]]:
        """See History."""
        return tuple

    def disk_reads(self, cluster_id: str, partitions: Collection[PartitionId], now_ms: int) -> Callable[[], DiskReads]:
        """See History."""
        return dict


class FactsAlone(NoHistory):
    """A history with facts only: no ages, and no incidents. kept: the store of the facts, if any.

    It omits how far earlier sweeps read the transaction log. So before a marker is sent, the whole log is read again.
    seen: facts that are not stored.
    """

    def __init__(self, kept: KnowsFacts | None) -> None:
        self._kept = kept
        self.seen: Facts = {}

    def facts(self, cluster_id: str, producer_ids: Collection[int]) -> Callable[[], Facts]:
        """See History."""
        if self._kept is None:
            return lambda: self.seen
        known = self._kept.facts(cluster_id, producer_ids)
        return lambda: together_facts({one: replace(facts, scans=()) for one, facts in known().items()}, self.seen)

    def past(self, cluster_id: str) -> Callable[[], Past]:
        """See History."""
        return Past if self._kept is None else self._kept.past(cluster_id)


class StoredFacts:
    """The facts that earlier sweeps stored. For producer ids with incidents they are fetched early, while the cluster
    is read; for other hanging producer ids, later. believed: what counts of the facts of a producer id.
    """

    def __init__(self, history: History, cluster_id: str, producer_ids: Collection[int]) -> None:
        self.believed: Callable[[ProducerFacts], ProducerFacts] = lambda facts: facts
        self._history, self._cluster_id = history, cluster_id
        self._early = frozenset(producer_ids)
        self._fetched = history.facts(cluster_id, self._early) if self._early else dict

    def of(self, producer_ids: Collection[int]) -> Facts:
        """The facts of each of these producer ids."""
        news = frozenset(producer_ids) - self._early
        found = self._history.facts(self._cluster_id, news)() if news else {}
        return {one: self.believed(facts) for one, facts in {**self._fetched(), **found}.items()}


def together_facts(one: Facts, other: Facts) -> Facts:
    """The facts of both, by producer id."""
    return {which: one.get(which, NO_FACTS) + other.get(which, NO_FACTS) for which in {*one, *other}}
