"""The offsets of a streaming query, from the files of its checkpoint. Pure.

Spark Structured Streaming commits no offsets to Kafka. A query keeps its offsets in files of its checkpoint:

- `metadata` has the id of the query: {"id": "..."}.
- `offsets/N` has the end of batch N, which Spark writes before it runs the batch (`OffsetSeqLog`). The first line is
  the version: "v1" or "v2". The second line has the time of the batch. Each further line is the offset of a source, in
  version 2 with the name of the source and a colon before it. "-" is no offset.
- `commits/N` exists if batch N is done.

The offset of a Kafka source is {"topic": {"partition": offset}}: the next offset to read (`KafkaSourceOffset`). Sources
of other kinds have other JSON. No file has the bootstrap servers or the isolation level of a source. So a checkpoint
does not name its cluster, and topic and partition alone identify a partition.

Checked with checkpoints of Spark 4.2.0 (`tests/unit/test_checkpoint.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from txnscan.kafka.failure import Failure, FailureCode
from txnscan.kafka.topology import Key

_VERSION = re.compile(r"v([0-9]{1,9})")
_BY_POSITION, _BY_NAME = 1, 2
_NO_OFFSET = "-"
_PARTITION = re.compile(r"[0-9]{1,10}")
_ID_CHARACTERS_MAX = 200
_OFFSET_MAX = 2**63 - 1
# The end of 2099: a table could not store every time.
_TIME_MAX_MS = 4_102_444_799_999


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The end of a batch. timestamp_ms: when Spark planned the batch, by the driver's clock. offsets: on each
    partition, the next offset to read, of each source that reads the partition.
    """

    timestamp_ms: int | None
    offsets: Mapping[Key, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class QueryPosition:
    """A streaming query at the end of its last batch. path: of the checkpoint, without secrets. stream_id: of the
    query. committed: whether the batch is done.
    """

    path: str
    stream_id: str
    batch_id: int
    committed: bool
    batch: MicroBatch


@dataclass(frozen=True, slots=True)
class Positions:
    """The streaming queries of the named checkpoints, and why some are missing."""

    queries: tuple[QueryPosition, ...] = ()
    failures: tuple[Failure, ...] = ()


class CheckpointFailed(Exception):
    """A checkpoint, or a file of it, cannot be used."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


def unusable(why: str) -> CheckpointFailed:
    """A checkpoint with such content cannot be used."""
    return CheckpointFailed(Failure(why, FailureCode.FILE_UNUSABLE))


def parse_stream_id(text: str) -> str:
    """The id of the query, from `metadata`. Raises CheckpointFailed."""
    found = _json(text, "metadata")
    stream_id = found.get("id") if isinstance(found, dict) else None
    if not isinstance(stream_id, str) or not 0 < len(stream_id) <= _ID_CHARACTERS_MAX or not stream_id.isprintable():
        raise unusable("metadata has no id of a streaming query")
    return stream_id


def parse_batch(text: str, name: str, wanted: Collection[Key] | None) -> MicroBatch:
    """The end of a batch, from a file of `offsets/`. name: of the file, for messages. wanted: the partitions whose
    offsets are kept, None for all. Raises CheckpointFailed, also if no source has offsets of Kafka.
    """
    version, *lines = text.split("\n")
    match = _VERSION.fullmatch(version.rstrip("\r"))
    if match is None:
        raise unusable(f"{name} does not begin with a version")
    if int(match[1]) not in (_BY_POSITION, _BY_NAME):
        raise unusable(f"{name} has version {int(match[1])}, and txnscan knows versions 1 and 2")
    if not lines:
        raise unusable(f"{name} ends after its version")
    sources = [_offset(line, name, named=int(match[1]) == _BY_NAME) for line in lines[1:]]
    of_kafka = [source for source in map(_kafka_offsets, sources) if source is not None]
    if not of_kafka:
        raise unusable(f"{name} has no offsets of a Kafka source")
    offsets: dict[Key, list[int]] = {}
    for topics in of_kafka:
        for key, offset in _partitions(topics, name):
            if wanted is None or key in wanted:
                offsets.setdefault(key, []).append(offset)
    return MicroBatch(_timestamp_ms(lines[0], name), {key: tuple(sorted(of_key)) for key, of_key in offsets.items()})


def _offset(line: str, name: str, *, named: bool) -> Any:
    """The offset of a source. None for a source without an offset."""
    line = line.rstrip("\r")
    if named:
        source, colon, line = line.partition(":")
        if not source or not colon:
            raise unusable(f"{name} has a source without a name")
    return None if line == _NO_OFFSET else _json(line, name)


def _kafka_offsets(source: Any) -> Mapping[str, Mapping[str, int]] | None:
    """The offset of a source, if it has the form of Kafka's. Other sources have other forms."""
    if not isinstance(source, dict):
        return None
    for partitions in source.values():
        if not isinstance(partitions, dict):
            return None
        for partition, offset in partitions.items():
            if not _PARTITION.fullmatch(partition) or type(offset) is not int:
                return None
    return source


def _partitions(topics: Mapping[str, Mapping[str, int]], name: str) -> Iterator[tuple[Key, int]]:
    for topic, partitions in topics.items():
        for partition, offset in partitions.items():
            if not 0 <= offset <= _OFFSET_MAX:
                raise unusable(f"{name} has an impossible offset")
            yield (topic, int(partition)), offset


def _timestamp_ms(line: str, name: str) -> int | None:
    if not line.strip():
        return None
    metadata = _json(line, name)
    at_ms = metadata.get("batchTimestampMs") if isinstance(metadata, dict) else None
    return at_ms if type(at_ms) is int and 0 < at_ms <= _TIME_MAX_MS else None


def _json(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    # RecursionError: deep nesting. ValueError: no JSON, or a number with thousands of digits.
    except (ValueError, RecursionError):
        raise unusable(f"{name} is damaged: a line is no JSON") from None
