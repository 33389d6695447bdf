"""The stored results of sweeps and applies of a simulated cluster, in the form of the tables.

Facts are only added. The product's own functions fold and close the incidents.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from txnscan.reads.observation import TransactionKey
from txnscan.sweeps.column import timestamp
from txnscan.sweeps.history import DiskReads, Ended, Incidents, NoHistory, Sightings, together_facts
from txnscan.sweeps.restored import Past, latest_of
from txnscan.sweeps.result import Scan, news_of
from txnscan.tables.facts import counted
from txnscan.tables.incidents import Row, folded
from txnscan.tables.schema import INCIDENTS
from txnscan.tables.tables import incidents_of
from txnscan.txnlog.facts import Facts, ProducerFacts, SeenMarker
from txnscan.waiting.complete_up_to import TopicRead
from txnscan.waiting.disk import PartitionId


class Memory(NoHistory):
    """The `History` of a sweep. learned: facts, by the number of the cluster's history. incidents: the row of each
    incident, by its id. pasts: the positions that each sweep stored.
    """

    def __init__(self) -> None:
        self.learned: dict[int, Facts] = {}
        self.incidents: dict[str, Row] = {}
        self.pasts: list[Past] = []

    def keep(self, found: Scan, at_start: Sequence[Row] | None = None) -> None:
        """Adds the result of a sweep. at_start: the incidents that were open when it began; None means the
        incidents that are open now.
        """
        began_with = self.open_incidents if at_start is None else at_start
        incidents = [judged for judged in found.transactions if judged.is_incident]
        for row in (*INCIDENTS.rows(found, incidents), *_over(found, began_with)):
            after = folded(self.incidents.get(row["incident_id"]), row)
            if after is not None:
                self.incidents[row["incident_id"]] = after
        self._learn(found.history, news_of(found))
        self.pasts.append(Past(found.history, found.vetoes_from, found.image_offset, found.positions))

    def remember(self, marker: SeenMarker) -> None:
        """Adds the marker that an apply saw."""
        self._learn(self._past().history, {marker.producer_id: ProducerFacts(markers=(marker,))})

    def _learn(self, history: int, news: Facts) -> None:
        self.learned[history] = together_facts(self.learned.get(history, {}), news)

    def _past(self) -> Past:
        return latest_of([*(Past(row["history"]) for row in self.incidents.values()), *self.pasts])

    def past(self, cluster_id: str) -> Callable[[], Past]:
        """See History."""
        return self._past

    def ended(self, cluster_id: str, transactions: Collection[TransactionKey]) -> Callable[[], Ended]:
        """See History."""
        of = {which.incident_id(cluster_id): which for which in transactions}
        history = self._past().history
        found = {
            of[name]: row["leader_epoch"]
            for name, row in self.incidents.items()
            if name in of and row["resolved_how"] is not None and row["history"] == history
        }
        return lambda: found

    @property
    def open_incidents(self) -> Sequence[Row]:
        return tuple(row for row in self.incidents.values() if row["resolved_how"] is None)

    def unresolved(self, cluster_id: str) -> Callable[[], Incidents]:
        """See History."""
        found = incidents_of(self.open_incidents)
        return lambda: found

    def last_seen(self, cluster_id: str) -> Callable[[], Sightings]:
        """See History."""
        return dict

    def facts(self, cluster_id: str, producer_ids: Collection[int]) -> Callable[[], Facts]:
        """See History."""
        past = self._past()
        found: Facts = {}
        for learned_in, news in self.learned.items():
            what_counts = {
                one: counted(facts, learned_in, past.history, past.vetoes_from) for one, facts in news.items()
            }
            found = together_facts(found, what_counts)
        return lambda: found

    def topic_reads(self, cluster_id: str, topics: Collection[str]) -> Callable[[], Sequence[TopicRead]]:
        """See History."""
        return tuple

    def disk_reads(self, cluster_id: str, partitions: Collection[PartitionId], now_ms: int) -> Callable[[], DiskReads]:
        """See History."""
        return dict


def _over(found: Scan, began_with: Iterable[Row]) -> list[dict[str, Any]]:
    """The open incidents that a sweep proved to be over (`Tables.write`)."""
    return [
        {
            "incident_id": which.incident_id(found.cluster_id),
            "resolved_at": timestamp(found.finished_at_ms),
            "resolved_how": how,
            "leader_epoch": found.ends[which.topic, which.partition][0],
            "high_watermark": found.ends[which.topic, which.partition][1],
            "history": found.history,
        }
        for which, how in found.over(incidents_of(began_with)).items()
    ]
