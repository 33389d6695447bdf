"""A leader that knows where leader epochs ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.consumer import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

from tests.fakes.cluster import epoch_end

Topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
End = Topic.EpochEndOffset
LOG_END = 100


@dataclass
class Leader:
    """A leader that answers from its epoch cache.

    starts: the first offset of each epoch. edit: spoils the topics of an answer. meanwhile: what happens after each
    request.
    """

    starts: dict[int, int]
    error: int = 0
    edit: Callable[[list[Any]], Any] = lambda topics: topics
    meanwhile: Callable[[Leader], None] = lambda leader: None
    asked: list[tuple[int, OffsetForLeaderEpochRequest]] = field(default_factory=list)

    def send(self, broker_id: int, request: Any) -> Any:
        self.asked.append((broker_id, request))
        (topic,) = request.topics
        (wanted,) = topic.partitions
        epoch, end = (-1, -1) if self.error else epoch_end(self.starts, LOG_END, wanted.leader_epoch)
        shown = End(partition=wanted.partition, error_code=self.error, leader_epoch=epoch, end_offset=end)
        self.meanwhile(self)
        return OffsetForLeaderEpochResponse(topics=self.edit([Topic(topic=topic.topic, partitions=[shown])]))

    @property
    def epochs(self) -> list[int]:
        return [request.topics[0].partitions[0].leader_epoch for _, request in self.asked]
