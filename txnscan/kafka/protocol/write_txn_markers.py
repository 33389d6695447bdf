"""WriteTxnMarkers (api key 27): one marker that ends a transaction on a partition. The only request that writes to it.

ACLs: Alter or ClusterAction on the Cluster (3.8 and newer). Before 3.8 only ClusterAction is enough. The broker checks
little: the producer epoch must not be below the partition's (INVALID_PRODUCER_EPOCH), the coordinator epoch must not be
below the last marker's (TRANSACTION_COORDINATOR_FENCED), and the broker must lead the partition. It does not compare
the start offset, so this is no compare-and-set. A higher producer epoch would fence a live producer. A higher
coordinator epoch would make the real coordinator's markers fail. So the request has exactly the observed epochs.
Source: `KafkaApis.handleWriteTxnMarkersRequest`, `ProducerAppendInfo.checkProducerEpoch`, `.checkCoordinatorEpoch`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafka.protocol.producer.transaction import WriteTxnMarkersRequest

from txnscan.kafka.errors import RequestFailed, present

# The transaction version of Kafka's own tool. A marker of version 0 may have the partition's own epoch.
_TRANSACTION_VERSION = 0


@dataclass(frozen=True, slots=True)
class MarkerToWrite:
    """A marker for one partition. coordinator_epoch: as the partition shows it, -1 if it has had no marker yet."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool

    def fields(self) -> dict[str, Any]:
        """The fields of the request, for people to read."""
        return {
            "api": "WriteTxnMarkers",
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "coordinator_epoch": max(self.coordinator_epoch, 0),
            "transaction_version": _TRANSACTION_VERSION,
            "marker": "COMMIT" if self.commit else "ABORT",
            "topic": self.topic,
            "partition": self.partition,
        }

    def request(self) -> Any:
        """The request, with one marker for one partition."""
        marker = WriteTxnMarkersRequest.WritableTxnMarker
        return WriteTxnMarkersRequest(
            markers=[
                marker(
                    producer_id=self.producer_id,
                    producer_epoch=self.producer_epoch,
                    transaction_result=self.commit,
                    topics=[marker.WritableTxnMarkerTopic(name=self.topic, partition_indexes=[self.partition])],
                    coordinator_epoch=max(self.coordinator_epoch, 0),
                    transaction_version=_TRANSACTION_VERSION,
                )
            ]
        )

    def answered(self, response: Any) -> int:
        """The error code of the answer. Raises RequestFailed if the answer is not about exactly this marker."""
        codes = [
            partition.error_code
            for marker in present(response.markers)
            for topic in present(marker.topics)
            for partition in present(topic.partitions)
            if (marker.producer_id, topic.name, partition.partition_index)
            == (self.producer_id, self.topic, self.partition)
        ]
        if len(codes) != 1:
            raise RequestFailed("the broker's answer to WriteTxnMarkers is not about the marker that was sent")
        return int(codes[0])
