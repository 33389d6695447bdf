"""What a sweep takes from earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from txnscan.impact.impact import KnownImpact
from txnscan.reads.observation import TransactionKey
from txnscan.txnlog.facts import NO_FACTS, Facts


@dataclass(frozen=True, slots=True)
class Sighting:
    """When a transaction was first seen, in epoch milliseconds, and the producer epoch that its partition had then."""

    first_seen_ms: int
    producer_epoch: int


# What was open at the last sweep of each scope.
Sightings = Mapping[TransactionKey, Sighting]


@dataclass(frozen=True, slots=True)
class Incident:
    """What earlier sweeps know of a hanging transaction. impact: None where none of them looked for that.
    producer_epoch, last_sequence: what the partition showed when it was seen last, -1 where that is not known.
    """

    first_seen_ms: int
    impact: KnownImpact | None = None
    producer_epoch: int = -1
    last_sequence: int = -1


Incidents = Mapping[TransactionKey, Incident]


class KnowsFacts(Protocol):
    """Where facts of earlier sweeps and applies are kept."""

    def facts(self, cluster_id: str, producer_ids: Collection[int]) -> Callable[[], Facts]:
        """What sweeps and applies have seen of these producer ids."""
        ...


class History(KnowsFacts, Protocol):
    """What earlier sweeps of a cluster left. It is read while the cluster is read: each method starts the read, and
    returns a function that waits for the result.
    """

    def unresolved(self, cluster_id: str) -> Callable[[], Incidents]:
        """The incidents that are not resolved. A sweep reads their partitions with proof, to see whether they are."""
        ...

    def last_seen(self, cluster_id: str) -> Callable[[], Sightings]:
        """The transactions that were open at the last sweep of each scope."""
        ...


class NoHistory:
    """The history of a scanner that keeps none."""

    def unresolved(self, cluster_id: str) -> Callable[[], Incidents]:
        """See History."""
        return dict

    def last_seen(self, cluster_id: str) -> Callable[[], Sightings]:
        """See History."""
        return dict

    def facts(self, cluster_id: str, producer_ids: Collection[int]) -> Callable[[], Facts]:
        """See History."""
        return dict


class FactsAlone(NoHistory):
    """A history of facts, and of nothing else: no ages, and no incidents. kept: where the facts are; None for nowhere.

    How far sweeps read the transaction log is left out. So whoever is about to send a marker reads all of the log.
    """

    def __init__(self, kept: KnowsFacts | None) -> None:
        self._kept = kept

    def facts(self, cluster_id: str, producer_ids: Collection[int]) -> Callable[[], Facts]:
        """See History."""
        if self._kept is None:
            return dict
        known = self._kept.facts(cluster_id, producer_ids)
        return lambda: {one: replace(facts, scans=()) for one, facts in known().items()}


class StoredFacts:
    """What earlier sweeps have seen. It is fetched early, while the cluster is read, for producer ids with incidents,
    and later for others that hang.
    """

    def __init__(self, history: History, cluster_id: str, producer_ids: Collection[int]) -> None:
        self._history, self._cluster_id = history, cluster_id
        self._early = frozenset(producer_ids)
        self._fetched = history.facts(cluster_id, self._early) if self._early else dict

    def of(self, producer_ids: Collection[int]) -> Facts:
        """The facts by producer id."""
        news = frozenset(producer_ids) - self._early
        found = self._history.facts(self._cluster_id, news)() if news else {}
        return {**self._fetched(), **found}


def together_facts(one: Facts, other: Facts) -> Facts:
    """All that two histories know of producer ids."""
    return {which: one.get(which, NO_FACTS) + other.get(which, NO_FACTS) for which in {*one, *other}}
