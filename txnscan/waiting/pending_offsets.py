"""Find the committed offsets in an open transaction on `__consumer_offsets`. Pure except for `send`.

The key of a committed offset has version 0 or 1, group, topic and partition (`OffsetCommitKey.json`). Keys of other
versions are about groups. A coordinator writes the offsets of a transaction with its producer id, and always with
sequence 0 (`CoordinatorRuntime`). So the sequence does not show whether offsets are missing, and the read must go to
the end of the log.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.kafka.protocol.fetch import fetch_undecoded
from txnscan.kafka.protocol.offset_fetch import GroupOffsets
from txnscan.kafka.protocol.primitives import Reader
from txnscan.kafka.protocol.record_batch import HEADER
from txnscan.kafka.protocol.search import Wanted, searched
from txnscan.kafka.topology import Key, Partition
from txnscan.reads.observation import Observation
from txnscan.waiting.impact import BlockReason
from txnscan.waiting.relation import NotBlocked, Pair, relation

_OFFSET_KEY_VERSIONS = (0, 1)
_PIECE_BYTES = 1024 * 1024
PIECES_MAX = 4


@dataclass(slots=True)
class TransactionOffsets:
    """The partitions whose offsets are in a transaction, by group. failure: why there may be more."""

    groups: dict[str, set[Key]] = field(default_factory=dict)
    failure: Failure | None = None

    def withheld(self, group: str, answer: GroupOffsets | None) -> tuple[BlockReason | NotBlocked, Collection[Key]]:
        """Whether the group waits for its offsets, and for which. answer: of its coordinator with requireStable, about
        the offsets in this transaction, or about all if the transaction does not name the group.
        """
        named = self.groups.get(group)
        has_offsets = bool(named) or (None if self.failure is not None else False)
        if answer is None or answer.failure is not None:
            return relation(Pair(has_offsets=has_offsets)), named or ()
        keys = answer.unstable if named is None else answer.unstable & named
        return relation(Pair(has_offsets=has_offsets, withheld=bool(keys))), keys


class _Cut(ValueError):
    """A key is shorter than its format."""


class _Key(Reader):
    def error(self, why: str) -> Exception:
        return _Cut(why)


def offset_key(key: bytes) -> tuple[str, Key] | None:
    """The group and the partition of a committed offset. None for a record of another kind."""
    record = _Key(key)
    try:
        if record.int16() not in _OFFSET_KEY_VERSIONS:
            return None
        group = record.text(record.int16())
        return group, (record.text(record.int16()), record.int32())
    except _Cut:
        return None


def pending_offsets(send: Send, o: Observation) -> TransactionOffsets:
    """The offsets in this transaction. Reads from its start to the high watermark, or up to a limit."""
    partition = Partition(o.topic, o.topic_id, o.partition, o.leader, o.leader_epoch)
    found, offset = TransactionOffsets(), o.start_offset
    try:
        for _ in range(PIECES_MAX):
            batches, high_watermark = fetch_undecoded(send, partition, offset, _PIECE_BYTES)
            for batch in searched(batches, _of_producer(o.producer_id)):
                if batch.producer_id == o.producer_id and not batch.is_control:
                    for at, key, _ in batch.records or ():
                        named = offset_key(key) if key is not None and at >= o.start_offset else None
                        if named is not None:
                            found.groups.setdefault(named[0], set()).add(named[1])
            reached = batches.next_offset(offset)
            if reached >= high_watermark or reached == offset:
                return found
            offset = reached
    except RequestFailed as failed:
        found.failure = failed.failure.within("the offsets in the transaction could not be read")
        return found
    cut = f"the offsets in the transaction were read only up to offset {offset}"
    found.failure = Failure(cut, FailureCode.NOT_ASKED)
    return found


def _of_producer(producer_id: int) -> Wanted:
    """Selects the batches of this producer."""
    return lambda data, bounds: [HEADER.unpack_from(data, at)[9] == producer_id for at in bounds[:-1]]
