"""Records of the log of cluster metadata."""

from __future__ import annotations

import struct

from txnscan.kafka.protocol.primitives import numbers, string, unsigned

ID, OTHER = bytes(15) + b"\1", bytes(15) + b"\2"


def framed(kind: int, version: int, body: bytes) -> bytes:
    return unsigned(1) + unsigned(kind) + unsigned(version) + body


def topic(name: str = "t", topic_id: bytes = ID) -> bytes:
    return framed(2, 0, string(name) + topic_id + b"\0")


def one_replica(topic_id: bytes) -> bytes:
    """Partition 0 of a topic, on broker 1 alone."""
    lists = numbers([1]) + numbers([1]) + numbers([]) + numbers([])
    return framed(3, 1, struct.pack(">i", 0) + topic_id + lists + struct.pack(">iii", 1, 5, 7) + b"\1\0")


def registration(broker_id: int, epoch: int, *directories: bytes, version: int = 3) -> bytes:
    """As of Kafka 3.7: an endpoint, a feature, no rack, and the ids of log directories."""
    endpoint = string("PLAINTEXT") + string("127.0.0.1") + struct.pack(">Hh", 9092, 0) + b"\0"
    feature = string("metadata.version") + struct.pack(">hh", 1, 20) + b"\0"
    flags = b"\0" * (version >= 2) + ID + struct.pack(">q", epoch)
    lists = unsigned(2) + endpoint + unsigned(2) + feature + string(None) + b"\1" + b"\0" * (version >= 1)
    ids = unsigned(len(directories) + 1) + b"".join(directories)
    tags = unsigned(1) + unsigned(0) + unsigned(len(ids)) + ids if directories else b"\0"
    return framed(0, version, struct.pack(">i", broker_id) + flags + lists + tags)
