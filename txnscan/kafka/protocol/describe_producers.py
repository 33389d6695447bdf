"""DescribeProducers (api key 61, v0, since Kafka 2.8): the producers that a replica of a partition knows.

ACLs: Read on the topic. The request has no leader epoch, and followers answer without an error. So an answer alone does
not prove that it came from the leader (`proven_read.py` does). Brokers return all producers, also those without a
transaction, and without paging. Only open transactions (start offset >= 0) are kept here. Source:
`KafkaApis.handleDescribeProducersRequest`, `UnifiedLog.activeProducers`.

These answers are most of the data that a sweep receives, so they are decoded here, and not producer by producer. A
producer without tagged fields takes 37 bytes. So start offsets are 37 bytes apart, and the first byte of each shows
whether the producer has an open transaction. A partition with many producers is read in slices, and only its open
transactions are kept. Only a slice with tagged fields is read entry by entry.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from kafka.protocol.admin import DescribeProducersRequest

from txnscan.kafka.answers import OpenProducer
from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import ANSWERED_TWICE, LEFT_OUT, ErrorCode, answered
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.kafka.protocol.frames import AsBytes, Body, Cursor, undecodable
from txnscan.kafka.protocol.primitives import NO_TAGS, items, numbers, string, unsigned
from txnscan.kafka.topology import Key

# A partition's number and error, followed by two lengths if it has no error message.
_PARTITION = struct.Struct(">ih")
# Producer id, producer epoch, last sequence, last timestamp, coordinator epoch, start offset; then the tagged fields.
_PRODUCER = struct.Struct(">qiiqiq")
_START_OFFSET_AT, _TAGS_AT = _PRODUCER.size - 8, _PRODUCER.size
_WIDTH = _PRODUCER.size + 1
# Behind the producer id, its epoch and the last sequence; and behind the timestamp.
_TIMESTAMP = struct.Struct(">q")
_TIMESTAMP_AT, _COORDINATOR_EPOCH_AT = 16, 24
_PRODUCER_ID = struct.Struct(">q")
_PRODUCER_ID_BYTES = _PRODUCER_ID.size
# The ids of producers without tagged fields that follow one another.
_IDS = struct.Struct(f">q{_WIDTH - _PRODUCER_ID_BYTES}x")
# The number of producers in a slice.
_SLICE = 4_096
# Producer ids, each as `_IDS` unpacks it.
Wanted = frozenset[tuple[int]]
# If a partition was not asked for, or comes twice, only that partition fails. Above this limit the answer is refused.
_UNASKED_MAX = 1_000
# The limit per answer. This number of open transactions takes about 100 MB.
_OPEN_MAX = 500_000
# The number of encoded topic names that are kept, which take about 10 MB.
_TOPICS_KEPT = 65_536
# The highest first byte of a number that is not negative.
_NOT_NEGATIVE_MAX = 0x7F
# The longest list whose length takes one byte.
_PRODUCERS_MAX = 126
# By number of producers: the first bytes of their start offsets if all are -1, and their tagged fields if no producer
# has any.
_NONE_OPEN = tuple(b"\xff" * producers for producers in range(_PRODUCERS_MAX + 1))
_NONE_TAGGED = tuple(NO_TAGS * producers for producers in range(_PRODUCERS_MAX + 1))


@dataclass(frozen=True, slots=True)
class DescribedPartition:
    """One partition's answer: the number of its producers and its open transactions, or the failure."""

    producers: int = 0
    open_producers: tuple[OpenProducer, ...] = ()
    failure: Failure | None = None

    @property
    def is_notable(self) -> bool:
        """Whether it has an open transaction or a failure."""
        return bool(self.open_producers) or self.failure is not None


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """A whole answer. answered: the number of partitions without a failure. producers: the number of their producers.
    partitions: those that have open transactions or a failure. closed: the requested producers without an open
    transaction, by partition. ended: of each partition that has any, the producers that have ended a transaction there.
    """

    answered: int
    producers: int
    partitions: Mapping[Key, DescribedPartition]
    closed: Mapping[Key, tuple[OpenProducer, ...]] = field(default_factory=dict)
    ended: Mapping[Key, EndedProducers] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EndedProducers:
    """The producers of a partition that have ended a transaction there: they have a coordinator epoch, which only
    markers write (`ProducerAppendInfo.appendEndTxnMarker`). They may begin another transaction at any moment.

    newest_ms: the newest last timestamp. For a producer without an open transaction it is the time of its last marker,
    by the clock of the leader at that time.
    """

    count: int
    newest_ms: int


_MISSING = DescribedPartition(failure=LEFT_OUT)
_DOUBLED = DescribedPartition(failure=ANSWERED_TWICE)
_NEGATIVE_ID = Failure("the broker's answer holds a negative producer id", FailureCode.UNUSABLE_ANSWER)
_PRODUCER_TWICE = Failure("the broker's answer holds a producer id twice", FailureCode.UNUSABLE_ANSWER)
_TOO_MANY_OPEN = Failure(
    f"the broker's answer holds more than {_OPEN_MAX:,} open transactions", FailureCode.UNUSABLE_ANSWER
)


def describe_producers(
    send: Send, broker_id: int, partitions: Mapping[str, Sequence[int]]
) -> dict[Key, DescribedPartition]:
    """These partitions, given as numbers by topic, as that broker describes them.

    Raises RequestFailed if the request as a whole fails. If a partition is left out of the answer, or answered twice,
    only that partition fails.
    """
    body: Body = send(broker_id, _request(partitions))
    return _all_of(partitions, decode(body, _partitions_max(partitions)))


def describe_open(
    send: Send,
    broker_id: int,
    partitions: Mapping[str, Sequence[int]],
    producer_ids: Collection[int] = (),
    *,
    with_ended: bool = False,
) -> OpenTransactions:
    """The same as `describe_producers`, for many partitions: only those with open transactions or a failure are kept,
    and these producer ids, also without an open transaction. with_ended: whether producers that have ended a
    transaction are counted.

    Brokers answer in the order of the request. If this answer is in another order, it is decoded as a whole.
    """
    body: Body = send(broker_id, _request(partitions))
    found = _open_of(body, partitions, _as_unpacked(producer_ids))
    ended = ended_producers(body, _partitions_max(partitions)) if with_ended else {}
    if not (found.closed or ended):
        return found
    failed = {key for key, one in found.partitions.items() if one.failure is not None}
    return replace(
        found,
        closed={key: one for key, one in found.closed.items() if key not in failed},
        ended={key: one for key, one in ended.items() if key not in failed},
    )


def _as_unpacked(producer_ids: Iterable[int]) -> Wanted:
    return frozenset((producer_id,) for producer_id in producer_ids)


def _open_of(body: Body, partitions: Mapping[str, Sequence[int]], wanted: Wanted) -> OpenTransactions:
    in_order = _in_request_order(body.data, partitions, wanted)
    if in_order is not None:
        return in_order
    described = _all_of(partitions, decode(body, _partitions_max(partitions)))
    return OpenTransactions(
        answered=sum(partition.failure is None for partition in described.values()),
        producers=sum(partition.producers for partition in described.values()),
        partitions={key: partition for key, partition in described.items() if partition.is_notable},
        closed=_closed_producers(body, wanted, _partitions_max(partitions)) if wanted else {},
    )


def _request(partitions: Mapping[str, Sequence[int]]) -> AsBytes:
    return AsBytes(DescribeProducersRequest(topics=[]), lambda _: encode(partitions))


def _all_of(
    partitions: Mapping[str, Sequence[int]], described: Mapping[Key, DescribedPartition]
) -> dict[Key, DescribedPartition]:
    return {
        (topic, index): described.get((topic, index), _MISSING) for topic in partitions for index in partitions[topic]
    }


def _closed_producers(body: Body, wanted: Wanted, partitions_max: int) -> dict[Key, tuple[OpenProducer, ...]]:
    """Those of these producers that have no open transaction, by partition. Raises RequestFailed as `decode`."""
    answer, found = Cursor(body.data), dict[Key, tuple[OpenProducer, ...]]()
    for topic, count in _topics(answer, partitions_max):
        for _ in range(count):
            index, here = _decode_closed(answer, wanted)
            if here:
                found[topic, index] = here
    return found


def ended_producers(body: Body, partitions_max: int) -> dict[Key, EndedProducers]:
    """The producers that have ended a transaction, by partition. Pure. Raises RequestFailed as `decode`."""
    data, answer, found = body.data, Cursor(body.data), dict[Key, EndedProducers]()
    for topic, partitions in _topics(answer, partitions_max):
        for _ in range(partitions):
            index, _, producers = _decode_head(answer)
            count, newest_ms = 0, -1
            for begins in _slices(answer, producers):
                if isinstance(begins, range):
                    marks = data[begins.start + _COORDINATOR_EPOCH_AT : begins.stop : _WIDTH]
                    if marks == b"\xff" * len(begins):
                        continue
                ended = [at for at in begins if data[at + _COORDINATOR_EPOCH_AT] <= _NOT_NEGATIVE_MAX]
                count += len(ended)
                times = (_TIMESTAMP.unpack_from(data, at + _TIMESTAMP_AT)[0] for at in ended)
                newest_ms = max(newest_ms, max(times, default=-1))
            answer.tags()
            if count:
                found[topic, index] = EndedProducers(count, newest_ms)
    return found


@dataclass(frozen=True, slots=True)
class AllProducers:
    """One partition's answer: all producers that the broker knows, sorted by id, or the failure. A start offset of -1
    means that the producer has no open transaction.
    """

    producers: tuple[OpenProducer, ...] = ()
    failure: Failure | None = None


def describe_all_producers(
    send: Send, broker_id: int, partitions: Mapping[str, Sequence[int]]
) -> dict[Key, AllProducers]:
    """The same as `describe_producers`, also with the producers that have no open transaction."""
    body: Body = send(broker_id, _request(partitions))
    answer = Cursor(body.data)
    found: dict[Key, AllProducers] = {}
    for topic, count in _topics(answer, _partitions_max(partitions)):
        for _ in range(count):
            index, failure, producers = _decode_all(answer)
            doubled = (topic, index) in found
            found[topic, index] = AllProducers((), ANSWERED_TWICE) if doubled else AllProducers(producers, failure)
    missing = AllProducers(failure=LEFT_OUT)
    return {(topic, index): found.get((topic, index), missing) for topic in partitions for index in partitions[topic]}


def by_topic(keys: Iterable[Key]) -> dict[str, list[int]]:
    """Partition numbers by topic."""
    indexes: dict[str, list[int]] = defaultdict(list)
    for topic, index in keys:
        indexes[topic].append(index)
    return indexes


def encode(partitions: Mapping[str, Sequence[int]]) -> bytes:
    """The body of a request for these partitions, in v0, which is the only version. Pure."""
    return items([_head(topic) + numbers(partitions[topic]) + NO_TAGS for topic in partitions]) + NO_TAGS


# Each broker is asked about nearly every topic, and answers with its name.
_head = lru_cache(_TOPICS_KEPT)(string)


def _partitions_max(asked: Mapping[str, Sequence[int]]) -> int:
    return sum(map(len, asked.values())) + _UNASKED_MAX


def decode(body: Body, partitions_max: int) -> dict[Key, DescribedPartition]:
    """The partitions of an answer. Pure. Raises RequestFailed if the bytes make no sense, or have more partitions."""
    answer = Cursor(body.data)
    described: dict[Key, DescribedPartition] = {}
    room = _OPEN_MAX
    for topic, count in _topics(answer, partitions_max):
        for _ in range(count):
            index, partition = _decode_partition(answer, room)
            room -= len(partition.open_producers)
            described[topic, index] = partition if (topic, index) not in described else _DOUBLED
    return described


def _topics(answer: Cursor, partitions_max: int) -> Iterator[tuple[str, int]]:
    """Each topic, and the number of its partitions, which the caller must read next."""
    answer.skip(4)  # the throttle time, which the client waits out
    topics, partitions = answer.length(), 0
    for _ in range(topics):
        topic, count = answer.string() or "", answer.length()
        partitions += count
        if max(topics, partitions) > partitions_max:
            raise undecodable("it holds too many partitions that were not asked for")
        yield topic, count
        answer.tags()
    answer.tags()
    answer.end()


def _in_request_order(data: bytes, partitions: Mapping[str, Sequence[int]], wanted: Wanted) -> OpenTransactions | None:
    """The answer if it has exactly these partitions, in this order. None for any other answer. wanted: the producers of
    which those without an open transaction are kept, too.

    The hot loop: about a microsecond for each topic, each partition, and each open transaction. To look for wanted
    producers takes about 50 nanoseconds for each producer, however many are wanted.
    """
    answer, size, unpack = Cursor(data, 4), len(data), _PARTITION.unpack_from
    if answer.length() != len(partitions):
        return None
    at, producers, room, found = answer.at, 0, _OPEN_MAX, dict[Key, DescribedPartition]()
    closed = dict[Key, tuple[OpenProducer, ...]]()
    for topic, indexes in partitions.items():
        head = _head(topic) + unsigned(len(indexes) + 1)
        if not data.startswith(head, at):
            return None
        at += len(head)
        for index in indexes:
            begins = at
            # The fast path: number, no error, no message, count of producers without tagged fields, no tagged fields.
            first = at + _PARTITION.size + 2
            count = data[first - 1] - 1 if first < size else -1
            end = first + count * _WIDTH
            if (
                0 <= count <= _PRODUCERS_MAX
                and end < size
                and unpack(data, at) == (index, ErrorCode.NONE)
                and not data[first - 2]
                and not data[end]
                and data[first + _TAGS_AT : end : _WIDTH] == _NONE_TAGGED[count]
            ):
                at = end + 1
                if wanted and not wanted.isdisjoint(_IDS.iter_unpack(data[first:end])):
                    closed[topic, index] = _decode_closed(Cursor(data, begins), wanted)[1]
                if data[first + _START_OFFSET_AT : end : _WIDTH] == _NONE_OPEN[count]:
                    producers += count
                    continue
                partition = _some_open(data, first, end)
            else:
                answer.at = at
                number, partition = _decode_partition(answer, room)
                if number != index:
                    return None
                at = answer.at
                room -= len(partition.open_producers)
                if wanted:
                    closed[topic, index] = _decode_closed(Cursor(data, begins), wanted)[1]
            producers += partition.producers
            if partition.is_notable:
                found[topic, index] = partition
        if at < size and not data[at]:
            at += 1
        else:
            answer.at = at
            answer.tags()
            at = answer.at
    answer.at = at
    answer.tags()
    answer.end()
    failed = sum(partition.failure is not None for partition in found.values())
    answered_count = sum(map(len, partitions.values())) - failed
    return OpenTransactions(answered_count, producers, found, {key: here for key, here in closed.items() if here})


def _some_open(data: bytes, first: int, end: int) -> DescribedPartition:
    """The partition whose producers, all without tagged fields, are between these two positions."""
    begins = range(first, end, _WIDTH)
    if len({data[at : at + _PRODUCER_ID_BYTES] for at in begins}) < len(begins):
        return DescribedPartition(failure=_PRODUCER_TWICE)
    return _opened(data, len(begins), [at for at in begins if data[at + _START_OFFSET_AT] <= _NOT_NEGATIVE_MAX])


def _opened(data: bytes, count: int, positions: Iterable[int]) -> DescribedPartition:
    """A partition with so many producers, of which those at these positions have open transactions."""
    found = tuple(sorted((_producer(data, at) for at in positions), key=lambda p: p.producer_id))
    # Nothing can own the transaction of such a producer, nor end it.
    return DescribedPartition(failure=_NEGATIVE_ID) if _first_negative(found) else DescribedPartition(count, found)


def _first_negative(found: Sequence[OpenProducer]) -> bool:
    """Whether the first of these producers, which are sorted by id, has a negative one."""
    return bool(found) and found[0].producer_id < 0


def _decode_partition(answer: Cursor, room: int) -> tuple[int, DescribedPartition]:
    """One partition, with any contents. room: the limit of its open transactions."""
    index, failure, count = _decode_head(answer)
    data, first, positions = answer.data, answer.at, []
    for begins in _slices(answer, count):
        if isinstance(begins, range):
            marks = data[begins.start + _START_OFFSET_AT : begins.stop : _WIDTH]
            if marks == b"\xff" * len(begins):
                continue
        positions += [at for at in begins if data[at + _START_OFFSET_AT] <= _NOT_NEGATIVE_MAX]
        if len(positions) > room:
            failure, positions = failure or _TOO_MANY_OPEN, []
    answer.tags()
    if failure is None and _holds_twice(data, first, count, positions):
        failure = _PRODUCER_TWICE
    if failure is not None:
        return index, DescribedPartition(failure=failure)
    return index, _opened(data, count, positions)


def _holds_twice(data: bytes, first: int, count: int, positions: Sequence[int]) -> bool:
    """Whether a producer id at one of these positions appears again in its partition."""
    ids = {data[at : at + _PRODUCER_ID_BYTES] for at in positions}
    if not ids:
        return False
    slices = _slices(Cursor(data, first), count)
    return sum(data[at : at + _PRODUCER_ID_BYTES] in ids for begins in slices for at in begins) > len(ids)


def _decode_all(answer: Cursor) -> tuple[int, Failure | None, tuple[OpenProducer, ...]]:
    """One partition: its number, its failure, and its producers, sorted by id."""
    index, failure, count = _decode_head(answer)
    producers = [_producer(answer.data, at) for begins in _slices(answer, count) for at in begins]
    answer.tags()
    if failure is not None:
        return index, failure, ()
    if len({p.producer_id for p in producers}) != len(producers):
        return index, _PRODUCER_TWICE, ()
    found = tuple(sorted(producers, key=lambda p: p.producer_id))
    return (index, _NEGATIVE_ID, ()) if _first_negative(found) else (index, None, found)


def _decode_closed(answer: Cursor, wanted: Wanted) -> tuple[int, tuple[OpenProducer, ...]]:
    """One partition: its number, and those of these producers that have no open transaction."""
    index, _, producers = _decode_head(answer)
    data = answer.data
    here = [
        at
        for begins in _slices(answer, producers)
        for at in begins
        if data[at + _START_OFFSET_AT] > _NOT_NEGATIVE_MAX and _PRODUCER_ID.unpack_from(data, at) in wanted
    ]
    answer.tags()
    return index, tuple(_producer(data, at) for at in here)


def _decode_head(answer: Cursor) -> tuple[int, Failure | None, int]:
    """A partition's number, its failure, and the number of its producers, which come next."""
    index, error_code = answer.int32(), answer.int16()
    answer.string()
    count = answer.length()
    if count * _WIDTH > len(answer.data) - answer.at:
        raise undecodable("it holds fewer producers than it says")
    return index, answered(error_code) if error_code != ErrorCode.NONE else None, count


def _slices(answer: Cursor, count: int) -> Iterator[Sequence[int]]:
    """The positions of the next producers, slice by slice. A slice without tagged fields is a range."""
    for number in range(0, count, _SLICE):
        size, first = min(_SLICE, count - number), answer.at
        end = first + size * _WIDTH
        if answer.data[first + _TAGS_AT : end : _WIDTH] == NO_TAGS * size:
            answer.at = end
            yield range(first, end, _WIDTH)
        else:
            yield [_pass_producer(answer) for _ in range(size)]


def _pass_producer(answer: Cursor) -> int:
    """Skips a producer. Returns its position."""
    at = answer.at
    answer.skip(_PRODUCER.size)
    answer.tags()
    return at


def _producer(data: bytes, at: int) -> OpenProducer:
    producer_id, epoch, sequence, timestamp, coordinator_epoch, start_offset = _PRODUCER.unpack_from(data, at)
    return OpenProducer(producer_id, epoch, coordinator_epoch, start_offset, timestamp, sequence)
