"""An administrator's changes to topics in use: move leaders and replicas, delete topics."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from kafka.protocol.admin import DeleteTopicsRequest
from kafka.protocol.metadata import MetadataRequest

from tests.prove.moves import elect, reassign
from txnscan.demo.errors import DemoError
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.errors import ErrorCode, error_name
from txnscan.kafka.topology import Key

# Later versions also name topics by their ids.
_DELETE_TOPICS = 5


def rotate(wire: Wire, keys: Collection[Key]) -> None:
    """Gives each partition another leader: the next of its replicas, or the next broker if it has only one replica."""
    brokers = [broker.broker_id for broker in wire.view([]).brokers]
    wanted = {key: _rotated(replicas, brokers) for key, (_, replicas) in _placed(wire).items() if key in keys}
    if not wanted:
        return
    reassign(wire, wanted)

    def moved() -> bool:
        placed = _placed(wire)
        return all(placed[key][1] == replicas for key, replicas in wanted.items())

    def led() -> bool:
        placed = _placed(wire)
        if all(placed[key][0] == replicas[0] for key, replicas in wanted.items()):
            return True
        elect(wire, wanted)
        return False

    wait_until(moved, "replicas had moved")
    wait_until(led, "leaders had moved")


def delete_topic(wire: Wire, topic: str) -> None:
    """Deletes a topic, and waits until no broker knows it any more."""
    request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000, max_version=_DELETE_TOPICS)
    (answer,) = wire.send(wire.any_broker(), request).responses
    if answer.error_code != ErrorCode.NONE:
        raise DemoError(f"topic {topic} could not be deleted: {error_name(answer.error_code)}")
    for broker in wire.brokers:
        wait_until(partial(_is_gone, wire, broker.broker_id, topic), f"{topic} was gone on broker {broker.broker_id}")


def _rotated(replicas: Sequence[int], brokers: Sequence[int]) -> list[int]:
    if len(replicas) == 1:
        return [brokers[(brokers.index(replicas[0]) + 1) % len(brokers)]]
    return [*replicas[1:], replicas[0]]


def _placed(wire: Wire) -> dict[Key, tuple[int, list[int]]]:
    """Leader and replicas of every partition."""
    answer = wire.send(wire.any_broker(), MetadataRequest(topics=None))
    return {
        (t.name, p.partition_index): (p.leader_id, list(p.replica_nodes)) for t in answer.topics for p in t.partitions
    }


def _is_gone(wire: Wire, broker_id: int, topic: str) -> bool:
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    return all(t.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for t in wire.send(broker_id, request).topics)
