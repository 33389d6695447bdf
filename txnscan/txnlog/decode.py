"""Decode the records of `__transaction_state`: what a coordinator has written about a transactional id. Pure.

Keys and values follow `TransactionLogKey.json` and `TransactionLogValue.json`. Value version 1 (written from
transaction.version 1 on) is flexible, and has the client's transactions version in a tagged field. A Prepare* record
has the whole list of partitions, and its epoch is already raised if the end raises it. A Complete* record has no
partitions.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from dataclasses import replace

from txnscan.kafka.answers import State
from txnscan.kafka.protocol.metadata import NAME_LENGTH_MAX
from txnscan.kafka.protocol.primitives import Reader
from txnscan.kafka.topology import Key
from txnscan.txnlog.facts import LoggedTransaction, RawRecord

_KEY_VERSION = 0
VALUE_VERSION_MAX = 1
_FLEXIBLE = 1
# PreviousProducerId, NextProducerId, and ClientTransactionVersion, whose values are 0, 1 and 2.
_TAGS = (0, 1, 2)
_CLIENT_VERSION_TAG, _CLIENT_VERSION_MAX = 2, 2
_PRODUCER_ID = struct.Struct(">hq")
# Positions in a record batch of version 2.
_COUNT_AT, _RECORDS_AT = 57, 61
_ONE = (1).to_bytes(4)
_NULL = 1


# In a record: more than fit into the 1 MB of Kafka's default. And in all records of a read, if their lists differ: each
# partition takes about 60 bytes, and 4 in a record. Coordinators write the growing list of a transaction again with
# each partition, so a busy id with 100 partitions names thousands in each transaction.
_PARTITIONS_OF_RECORD_MAX, PARTITIONS_MAX = 250_000, 3_000_000
_STATES = tuple(State)


class UnknownRecord(ValueError):
    """A record that this version cannot read. The message gives the reason."""


class DamagedRecord(UnknownRecord):
    """A record that no version can read. A coordinator stops loading there (`TransactionStateManager`)."""


def transactional_id(key: bytes) -> str | None:
    """The id that a record is about. None for keys of another kind, which brokers also skip. Raises UnknownRecord."""
    record = _Record(key)
    if record.int16() != _KEY_VERSION:
        return None
    return record.text(record.int16())


def transactional_id_key(name: str) -> bytes:
    """The key of an id's records (`TransactionLogKey.json`)."""
    encoded = name.encode()
    return struct.pack(">hh", _KEY_VERSION, len(encoded)) + encoded


def producer_id_bytes(one: int) -> bytes:
    """The bytes of a producer id in a value."""
    return one.to_bytes(8)


def peeked(batch: bytes) -> tuple[bytes, bytes] | None:
    """The key of a batch's only record, and the bytes of the producer id in its value (empty if it has no value). Takes
    half a microsecond, without decoding the batch. Returns None if the batch does not look as coordinators write it, or
    if the value has an unknown version.
    """
    try:
        at = _RECORDS_AT
        while batch[at] & 0x80:  # the record's length
            at += 1
        # Next come its attributes, and the deltas of timestamp and offset, which are 0 for the first record of a batch.
        if batch[_COUNT_AT:_RECORDS_AT] != _ONE or batch[at + 2] or batch[at + 3]:
            return None
        size, at = batch[at + 4], at + 5
        if size & 0x80:
            size, at = size & 0x7F | batch[at] << 7, at + 1
        # Lengths are zigzag-encoded: an odd number is a negative length. All ids are shorter than this limit.
        if size & 1 or size >= 1 << 14:
            return None
        key, at = batch[at : at + (size >> 1)], at + (size >> 1)
        if batch[at] == _NULL:
            return key, b""
        if batch[at] & 0x80:
            at += 1
        elif batch[at] >> 1 < _PRODUCER_ID.size:
            return None
        if batch[at] & 0x80 or batch[at + 1] or batch[at + 2] > VALUE_VERSION_MAX:
            return None
    except IndexError:
        return None
    return key, batch[at + 3 : at + 11]


def producer_id(value: bytes) -> int:
    """The producer id of a value, without decoding the rest. Raises UnknownRecord."""
    if len(value) < _PRODUCER_ID.size:
        raise DamagedRecord("a record cannot be decoded: it is cut short")
    version, found = _PRODUCER_ID.unpack_from(value)
    _check_version(version)
    return int(found)


def tombstone(offset: int, contiguous_from: int, name: str) -> LoggedTransaction:
    """The record of an expired id, which has no value."""
    return LoggedTransaction(offset, contiguous_from, name, -1, -1, State.DEAD, frozenset(), 0, -1, -1)


def decoded(raw: RawRecord) -> LoggedTransaction:
    """The decoded record of an id, with the leader epoch of its batch. Raises UnknownRecord."""
    where = (raw.offset, raw.contiguous_from, raw.transactional_id)
    found = tombstone(*where) if raw.value is None else decode(*where, raw.value)
    return replace(found, leader_epoch=raw.leader_epoch)


def all_decoded(raws: Iterable[RawRecord]) -> list[LoggedTransaction]:
    """The decoded records, whose equal partitions and lists of partitions are kept once. Raises UnknownRecord, also if
    they have too many partitions.
    """
    found, lists, keys, free = [], dict[frozenset[Key], frozenset[Key]](), dict[Key, Key](), PARTITIONS_MAX
    for raw in raws:
        one = decoded(raw)
        known = lists.get(one.partitions)
        if known is None:
            known = frozenset([keys.setdefault(key, key) for key in one.partitions])
            lists[known] = known
            free -= len(known)
        one = replace(one, partitions=known)
        if free < 0:
            raise UnknownRecord(f"its records of the ids in question name more than {PARTITIONS_MAX:,} partitions")
        found.append(one)
    return found


def decode(offset: int, contiguous_from: int, name: str, value: bytes) -> LoggedTransaction:
    """The decoded record of an id. Raises UnknownRecord if it is damaged, or of a version that this code lacks."""
    record = _Record(value)
    version = record.int16()
    _check_version(version)
    flexible = version >= _FLEXIBLE
    pid, epoch, timeout_ms, status = record.int64(), record.int16(), record.int32(), record.int8()
    if not 0 <= status < len(_STATES):
        raise UnknownRecord(f"a status of {status} is not known")
    partitions = record.partitions(flexible)
    updated_ms, start_time_ms = record.int64(), record.int64()
    tags = record.tags() if flexible else {}
    client_version = _Record(tags[_CLIENT_VERSION_TAG]).int16() if _CLIENT_VERSION_TAG in tags else 0
    return LoggedTransaction(
        offset=offset,
        contiguous_from=contiguous_from,
        transactional_id=name,
        producer_id=pid,
        producer_epoch=epoch,
        state=_STATES[status],
        partitions=partitions,
        client_version=client_version,
        start_time_ms=start_time_ms,
        updated_ms=updated_ms,
        timeout_ms=timeout_ms,
        unknown_fields=_unknown(tags, client_version),
    )


def _unknown(tags: Collection[int], client_version: int) -> tuple[str, ...]:
    """The fields of a record that this version does not know. Brokers ignore unknown tags (KIP-915), which is safe for
    a downgraded broker. Here it is not safe, because records are judged by the transitions that they allow (KIP-939:
    tag 3, NextProducerEpoch).
    """
    fields = [f"a field of tag {tag}" for tag in sorted(tags) if tag not in _TAGS]
    later = [f"transactions version {client_version}"] if client_version > _CLIENT_VERSION_MAX else []
    return (*fields, *later)


def _check_version(version: int) -> None:
    if not 0 <= version <= VALUE_VERSION_MAX:
        raise UnknownRecord(f"a value of version {version} is not known")


class _Record(Reader):
    """Reads a key or a value. Raises DamagedRecord."""

    def error(self, why: str) -> DamagedRecord:
        """See Reader."""
        return DamagedRecord(f"a record cannot be decoded: {why}")

    def topic(self, flexible: bool) -> str:
        name = self.text(self.uvarint() - 1 if flexible else self.int16())
        # It is repeated for each partition wherever they are shown.
        if len(name) > NAME_LENGTH_MAX:
            raise self.error("the name of a topic is too long")
        return name

    def count(self, flexible: bool) -> int:
        """The length of an array; -1 for null, which counts as empty."""
        return self.uvarint() - 1 if flexible else self.int32()

    def partitions(self, flexible: bool) -> frozenset[Key]:
        found: set[Key] = set()
        for _ in range(self.count(flexible)):
            topic, count = self.topic(flexible), self.count(flexible)
            # With fewer bytes than that it is damaged.
            if len(found) + count > _PARTITIONS_OF_RECORD_MAX and 4 * count <= len(self.data) - self.at:
                raise UnknownRecord(f"a record has more than {_PARTITIONS_OF_RECORD_MAX:,} partitions")
            found |= {(topic, self.int32()) for _ in range(count)}
            if flexible:
                self.tags()
        return frozenset(found)
