"""Offsets of consumer groups: committed alone, as the demo does, or within a transaction."""

from __future__ import annotations

from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import AddOffsetsToTxnRequest, TxnOffsetCommitRequest

from txnscan.demo.producer import Producer
from txnscan.demo.reader import commit_offset
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.errors import RequestFailed

__all__ = ["commit_offset", "commit_offset_within"]


def commit_offset_within(
    wire: Wire, group: str, topic: str, *, transactional_id: str | None = None, added: bool = True
) -> Producer:
    """Writes offset 1 of a group into a transaction. If the group is not added to it, the transaction hangs."""
    name = transactional_id or f"{group}-service"
    producer = Producer(wire, name, v2=False)
    who = producer.init_producer_id()
    names = {"transactional_id": name, "group_id": group}
    identity = {"producer_id": who.producer_id, "producer_epoch": who.producer_epoch}
    kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    partition = kind.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")

    def committed() -> bool:
        found = wire.send(1, FindCoordinatorRequest(key_type=0, coordinator_keys=[group], min_version=4))
        if found.coordinators[0].error_code:
            raise RequestFailed("the group has no coordinator yet")
        if added:
            answer = wire.send(producer.coordinator(), AddOffsetsToTxnRequest(**names, **identity, max_version=3))
            if answer.error_code:
                return False
        topics = [kind(name=topic, partitions=[partition])]
        request = TxnOffsetCommitRequest(**names, **identity, generation_id=-1, topics=topics, max_version=3)
        return not wire.send(found.coordinators[0].node_id, request).topics[0].partitions[0].error_code

    wait_until(committed, "the offset was written")
    return producer
