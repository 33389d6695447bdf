"""The stored results of sweeps and applies of a simulated cluster, in the form of the tables.

Facts are only added. The product's own functions fold and close the incidents.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from txnscan.impact.complete_up_to import TopicRead
from txnscan.impact.disk import PartitionId
from txnscan.reads.observation import TransactionKey
from txnscan.sweeps.history import DiskReads, Incident, Incidents, NoHistory, Sightings, together_facts
from txnscan.sweeps.result import Scan, news_of
from txnscan.tables.incidents import Row, folded
from txnscan.tables.schema import INCIDENTS, epoch_ms, timestamp
from txnscan.txnlog.facts import Facts, ProducerFacts, SeenMarker


class Memory(NoHistory):
    """The `History` of a sweep. kept: facts. incidents: the row of each incident, by its id."""

    def __init__(self) -> None:
        self.kept: Facts = {}
        self.incidents: dict[str, Row] = {}

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
        self.kept = together_facts(self.kept, news_of(found))

    def remember(self, marker: SeenMarker) -> None:
        """Adds the marker that an apply saw."""
        seen = {marker.producer_id: ProducerFacts(markers=(marker,))}
        self.kept = together_facts(self.kept, seen)

    @property
    def open_incidents(self) -> Sequence[Row]:
        return tuple(row for row in self.incidents.values() if row["resolved_how"] is None)

    def unresolved(self, cluster_id: str) -> Callable[[], Incidents]:
        """See History."""
        found = {
            TransactionKey.of(row): Incident(
                *(epoch_ms(row["first_seen_at"]), None, row["producer_epoch"], row["last_sequence"]),
                row["high_watermark"],
                outcome=row["outcome"],
            )
            for row in self.open_incidents
        }
        return lambda: found

    def last_seen(self, cluster_id: str) -> Callable[[], Sightings]:
        """See History."""
        return dict

    def facts(self, cluster_id: str, producer_ids: Collection[int]) -> Callable[[], Facts]:
        """See History."""
        return lambda: self.kept

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
        for which, how in found.over(map(TransactionKey.of, began_with)).items()
    ]
