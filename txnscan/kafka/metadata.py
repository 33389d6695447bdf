"""Metadata (api key 3): brokers, partitions with leader and leader epoch, topic ids.

Versions: leader epochs since v7 (Kafka 2.1), topic ids since v10 (2.8). ACLs: Describe on each topic; topics that the
principal may not describe are left out of a listing of all, and answered with TOPIC_AUTHORIZATION_FAILED when asked
for by name. The answer is what *that* broker believes; a broker cut off from the controller goes on believing.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable
from typing import Any

from kafka.protocol.metadata import MetadataRequest

from txnscan.kafka.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed, error_name, present
from txnscan.model import Broker, ClusterView, Partition


def read_metadata(send: Send, broker_id: int, topics: Iterable[str] | None = None) -> ClusterView:
    """What one broker believes, of the named topics or of all. Raises RequestFailed."""
    wanted = (
        None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(set(topics))]
    )
    response = send(broker_id, MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
    brokers = tuple(
        sorted((Broker(b.node_id, b.host, b.port) for b in present(response.brokers)), key=lambda b: b.broker_id)
    )
    if not brokers:
        raise RequestFailed(f"broker {broker_id} answered Metadata without any broker")
    partitions = [
        p for topic in present(response.topics) if topic.error_code == ErrorCode.NONE for p in _partitions(topic)
    ]
    errors = [
        (t.name or "", error_name(t.error_code)) for t in present(response.topics) if t.error_code != ErrorCode.NONE
    ]
    return ClusterView(
        answered_by=broker_id,
        cluster_id=response.cluster_id or "",
        brokers=brokers,
        partitions=tuple(sorted(partitions, key=lambda p: p.key)),
        topic_errors=tuple(sorted(errors)),
    )


def _partitions(topic: Any) -> list[Partition]:
    topic_id = topic_id_text(getattr(topic, "topic_id", None))
    return [
        Partition(topic.name, topic_id, p.partition_index, p.leader_id, p.leader_epoch)
        for p in present(topic.partitions)
    ]


def topic_id_text(topic_id: uuid.UUID | None) -> str:
    """A topic id as Kafka prints it (`Uuid.toString`: URL-safe base64, no padding), or "" where there is none."""
    if topic_id is None or topic_id.int == 0:
        return ""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode("ascii")
