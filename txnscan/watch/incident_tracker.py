"""The state that a sweep keeps for the next sweep of the same process, and the news in it. Pure.

Incidents open and close by the rules of the tables (`tables/tables.py`): each hanging transaction has an incident, and
each live transaction that endangers a commit. Only a sweep that proves that the partition's leader no longer has it
open closes the incident. The opening becomes news once the transaction is a candidate (hanging, and late). That a
commit is in danger is news at once. The closing is news if the opening was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from txnscan.reads.observation import TransactionKey
from txnscan.sweeps.column import row_of
from txnscan.sweeps.history import (
    TOPIC_READS_MAX,
    DiskReads,
    Ended,
    Incident,
    Incidents,
    Sighting,
    Sightings,
    together_facts,
)
from txnscan.sweeps.news import NEWS_COLUMNS, Announced, Change, EventNews, News, Row, events_of
from txnscan.sweeps.restored import Past, latest_of, together_positions
from txnscan.sweeps.result import Scan, news_of
from txnscan.txnlog.facts import Facts
from txnscan.verdict.evidence import Judged, Reason, Verdict
from txnscan.waiting.complete_up_to import TopicRead
from txnscan.waiting.disk import READS_MAX, DiskRead, PartitionId
from txnscan.waiting.impact import CarriedImpact

Item = TypeVar("Item")

# At most this many are kept, the oldest first. A cluster with more needs another kind of help than incidents.
INCIDENTS_MAX = 10_000
SIGHTINGS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class OpenIncident:
    """A hanging transaction without proof of its end.

    row: see News. notified: whether its opening was news. closing_is_news: whether its closing will be news. It is true
    if the opening was news, and for every incident of an earlier process, because that process may have sent a
    notification.
    """

    first_seen_ms: int
    row: Row = field(default_factory=dict)
    notified: bool = False
    closing_is_news: bool = False
    impact: CarriedImpact | None = None
    producer_epoch: int = -1
    last_sequence: int = -1
    end_offset: int | None = None
    history: int = 0
    leader_epoch: int = -1
    outcome: str | None = None

    @property
    def in_danger(self) -> bool:
        """Whether the last sweep that saw it saw a live transaction that endangers its commit."""
        return self.row.get("reason") == Reason.JOINED_COMMIT

    @property
    def incident(self) -> Incident:
        """The incident as a sweep uses it."""
        seen = self.producer_epoch, self.last_sequence, self.end_offset
        return Incident(self.first_seen_ms, self.impact, *seen, self.history, self.leader_epoch, self.outcome)


@dataclass(frozen=True, slots=True)
class IncidentTracker:
    """The state of the cluster with this id.

    unwatched: the number of transactions that hung in the last sweep and have no incident, because there are too many.
    They cause no news. topic_reads: the last reads of the topics of `complete_up_to`, newest last. disk_reads: of the
    partitions whose compaction was blocked at the last sweep, newest last. past: the positions of the cluster.
    """

    cluster_id: str | None = None
    sightings: Sightings = field(default_factory=dict)
    incidents: Mapping[TransactionKey, OpenIncident] = field(default_factory=dict)
    facts: Facts = field(default_factory=dict)
    unwatched: int = 0
    topic_reads: tuple[TopicRead, ...] = ()
    disk_reads: DiskReads = field(default_factory=dict)
    past: Past = field(default_factory=Past)

    def in_history_of(self, scan: Scan) -> IncidentTracker:
        """What counts of it in the history of this sweep. Incidents have the number of their own."""
        if scan.history == self.past.history:
            return self
        vetoes = {one: facts.only_vetoes() for one, facts in self.facts.items()}
        return replace(
            self,
            sightings={},
            facts=vetoes if self.past.history >= scan.vetoes_from else {},
            topic_reads=(),
            past=Past(scan.history, scan.vetoes_from),
        )


class Remembered(NamedTuple):
    """The state after a sweep, with its news: of each incident, and of the events that the incidents belong to."""

    memory: IncidentTracker
    news: tuple[News, ...]
    events: tuple[EventNews, ...] = ()


class TrackedHistory:
    """A tracker as the `History` of a sweep."""

    def __init__(self, memory: IncidentTracker) -> None:
        self._memory = memory

    def unresolved(self, cluster_id: str) -> Callable[[], Incidents]:
        """See History."""
        if cluster_id != self._memory.cluster_id:
            return dict
        found = {which: one.incident for which, one in self._memory.incidents.items()}
        return lambda: found

    def past(self, cluster_id: str) -> Callable[[], Past]:
        """See History."""
        return lambda: self._memory.past if cluster_id == self._memory.cluster_id else Past()

    def ended(self, cluster_id: str, transactions: Collection[TransactionKey]) -> Callable[[], Ended]:
        """See History. Ended incidents are not kept."""
        return dict

    def vetoes(self, cluster_id: str) -> int:
        """See History. The user of a watch cannot drop them."""
        return 0

    def last_seen(self, cluster_id: str) -> Callable[[], Sightings]:
        """See History."""
        return lambda: self._memory.sightings if cluster_id == self._memory.cluster_id else {}

    def facts(self, cluster_id: str, producer_ids: Collection[int]) -> Callable[[], Facts]:
        """See History."""
        return lambda: self._memory.facts if cluster_id == self._memory.cluster_id else {}

    def topic_reads(self, cluster_id: str, topics: Collection[str]) -> Callable[[], Sequence[TopicRead]]:
        """See History."""
        return lambda: self._memory.topic_reads if cluster_id == self._memory.cluster_id else ()

    def disk_reads(self, cluster_id: str, partitions: Collection[PartitionId], now_ms: int) -> Callable[[], DiskReads]:
        """See History."""
        return lambda: self._memory.disk_reads if cluster_id == self._memory.cluster_id else {}


def remember(memory: IncidentTracker, name: str, scan: Scan, stored: Incidents | None = None) -> Remembered:
    """The state after this sweep. name: the cluster's name in the configuration. stored: the incidents of an earlier
    process in the tables, as they were when this sweep began; given only with the first sweep.
    """
    if memory.cluster_id != scan.cluster_id:
        memory = IncidentTracker(scan.cluster_id)
    memory = memory.in_history_of(scan)
    left = {
        which: OpenIncident(
            one.first_seen_ms,
            closing_is_news=True,
            impact=one.impact,
            producer_epoch=one.producer_epoch,
            last_sequence=one.last_sequence,
            end_offset=one.end_offset,
            history=one.history,
            leader_epoch=one.leader_epoch,
            outcome=one.outcome,
        )
        for which, one in (stored or {}).items()
    }
    before = {**left, **memory.incidents}
    over = scan.over({which: one.incident for which, one in before.items()})
    open_now = {j.observation.transaction_key: j for j in scan.transactions if j.is_incident}

    # A notified incident stays, so that its opening and its end are notified once each.
    incidents = _oldest(
        {which: one for which, one in before.items() if which not in over}, INCIDENTS_MAX, lambda one: one.first_seen_ms
    )
    news, unwatched = [], 0
    for which, judged in sorted(open_now.items(), key=lambda one: one[1].observation.first_seen_ms):
        earlier = incidents.get(which)
        if earlier is None and len(incidents) >= INCIDENTS_MAX:
            unwatched += 1
            continue
        seen = _seen(earlier, judged, scan)
        incidents[which] = seen
        was_notified = earlier is not None and earlier.notified
        # It may have been news as a hanging transaction. That a commit is in danger is more urgent.
        in_danger = judged.endangers_commit and not (earlier is not None and earlier.in_danger)
        if seen.notified and (in_danger or not was_notified):
            news.append(_news(Change.OPENED, name, scan, which, seen))
    for which in sorted(over):
        one = before[which]
        if one.closing_is_news:
            news.append(replace(_news(Change.CLOSED, name, scan, which, one), how=over[which]))
    known = {which.producer_id for which in incidents}
    facts = {one: seen for one, seen in together_facts(memory.facts, news_of(scan)).items() if one in known}
    after = IncidentTracker(
        *(scan.cluster_id, _sightings(memory.sightings, scan), incidents, facts, unwatched),
        topic_reads=(*memory.topic_reads, *scan.topic_reads)[-TOPIC_READS_MAX * len(scan.topic_reads) :],
        disk_reads=_disk_reads(memory.disk_reads, scan),
        past=_past(memory.past, scan),
    )
    events = events_of(
        name, scan.cluster_id, scan.finished_at_ms, news, _announced(scan, before), _announced(scan, incidents)
    )
    return Remembered(after, tuple(news), events)


def together(remembered: Incidents, stored: Incidents) -> Incidents:
    """The incidents of two histories, merged: the earlier first sighting, and the data of both."""
    found = dict(remembered)
    for which, one in stored.items():
        other = found.get(which)
        if other is None or other.history < one.history:
            found[which] = one
            continue
        if other.history > one.history:
            continue
        # The data of this process is newer than the stored data.
        found[which] = replace(
            other, first_seen_ms=min(one.first_seen_ms, other.first_seen_ms), impact=one.impact or other.impact
        )
    return found


def _seen(earlier: OpenIncident | None, judged: Judged, scan: Scan) -> OpenIncident:
    """The incident after a sweep that saw the transaction hanging."""
    o = judged.observation
    same = earlier if earlier is not None and earlier.history == scan.history else None
    notified = judged.candidate or judged.endangers_commit or (earlier is not None and earlier.notified)
    return OpenIncident(
        first_seen_ms=o.first_seen_ms if same is None else min(o.first_seen_ms, same.first_seen_ms),
        row=row_of(NEWS_COLUMNS, scan, judged),
        notified=notified,
        closing_is_news=notified or (earlier is not None and earlier.closing_is_news),
        impact=scan.carried_impact(judged) or (same.impact if same is not None else None),
        producer_epoch=o.producer_epoch,
        last_sequence=o.last_sequence,
        end_offset=o.second.high_watermark,
        history=scan.history,
        leader_epoch=o.leader_epoch,
        outcome=judged.outcome,
    )


def _announced(scan: Scan, incidents: Mapping[TransactionKey, OpenIncident]) -> dict[str, Announced]:
    """The incidents whose closing will be news, by their ids."""
    found = {}
    for which, one in incidents.items():
        if one.closing_is_news:
            incident_id = which.incident_id(scan.cluster_id)
            event_id = one.impact.event_id if one.impact is not None else None
            found[incident_id] = Announced(event_id or incident_id, one.first_seen_ms)
    return found


def _news(kind: Change, name: str, scan: Scan, which: TransactionKey, one: OpenIncident) -> News:
    return News(
        kind=kind,
        cluster=name,
        cluster_id=scan.cluster_id,
        incident_id=which.incident_id(scan.cluster_id),
        where=which,
        first_seen_ms=one.first_seen_ms,
        at_ms=scan.finished_at_ms,
        row=one.row,
        how=None,
    )


def _sightings(before: Sightings, scan: Scan) -> Sightings:
    """The first sightings of transactions that this sweep saw open, and of those that earlier sweeps saw on partitions
    that this sweep could not read.

    A key identifies one transaction, so a younger transaction cannot inherit an age.
    """
    not_seen = {(error.topic, error.partition) for error in scan.errors}
    found = {which: seen for which, seen in before.items() if which.key in not_seen}
    for judged in scan.transactions:
        if judged.judgement.verdict is not Verdict.GONE:
            o = judged.observation
            found[o.transaction_key] = Sighting(o.first_seen_ms, o.producer_epoch)
    return _oldest(found, SIGHTINGS_MAX, lambda one: one.first_seen_ms)


def _past(before: Past, scan: Scan) -> Past:
    """The positions after a sweep of the same history."""
    now = Past(scan.history, scan.vetoes_from, scan.image_offset, scan.positions)
    return replace(latest_of([before, now]), positions=together_positions([*before.positions, *scan.positions]))


def _disk_reads(before: DiskReads, scan: Scan) -> dict[PartitionId, tuple[DiskRead, ...]]:
    """The last reads of the partitions that grow. Their number is limited, as the sweep reads few."""
    blocked = {which[:3]: one.disk.read for which, one in scan.impacts.items() if one.fills_disk}
    news = {where: (read,) if read is not None else () for where, read in blocked.items()}
    found = {where: (*before.get(where, ()), *read)[-READS_MAX:] for where, read in news.items()}
    return {where: reads for where, reads in found.items() if reads}


def _oldest(
    found: dict[TransactionKey, Item], most: int, since_ms: Callable[[Item], int]
) -> dict[TransactionKey, Item]:
    if len(found) <= most:
        return found
    return dict(sorted(found.items(), key=lambda one: since_ms(one[1]))[:most])
