"""Plan the reads of partitions in bounded batches per leader, from Metadata. Pure.

A **lane** is a queue of batches for one leader, which are read one after another. A leader has at most `in_flight_max`
lanes. This limits the requests in flight per broker for any number of executors or threads. Engines run lanes in
parallel, and keep the order within a lane.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import lt
from types import MappingProxyType
from typing import TypeVar

from txnscan.kafka.failure import Unobserved, no_leader
from txnscan.kafka.topology import Partition, Topic
from txnscan.reads.rows import LogBatch, ReadBatch, WideBatch

Piece = TypeVar("Piece")


def plan_wide(
    topics: Iterable[Topic],
    *,
    batch_size: int,
    in_flight_max: int,
    producer_ids: Iterable[int] = (),
    with_ended: bool = False,
) -> tuple[tuple[WideBatch, ...], tuple[Unobserved, ...]]:
    """The requests of a wide read, and a failure for each partition without a leader.

    Batches are spread evenly: the lanes of a leader differ by at most one batch. Lanes of different leaders alternate,
    so that the first lanes to run do not all queue at one broker. producer_ids, with_ended: see WideBatch.
    """
    led: dict[int, dict[str, tuple[int, ...]]] = defaultdict(dict)
    errors = []
    for topic in sorted(topics, key=lambda t: t.name):
        by_leader: dict[int, list[int]] = defaultdict(list)
        for index, leader in zip(topic.indexes, topic.leaders, strict=True):
            by_leader[leader].append(index)
        in_order = all(map(lt, topic.indexes, topic.indexes[1:]))
        for leader, indexes in by_leader.items():
            if leader < 0:
                errors += [Unobserved("plan", no_leader(leader), None, topic.name, index) for index in indexes]
            elif in_order and topic.name not in led[leader]:
                led[leader][topic.name] = tuple(indexes)
            else:
                # A broker that names a partition twice is asked for it once.
                led[leader][topic.name] = tuple(sorted({*indexes, *led[leader].get(topic.name, ())}))
    chunks = {leader: list(_filled(owned, batch_size)) for leader, owned in led.items()}
    kept = tuple(sorted(producer_ids))
    batches = tuple(
        WideBatch(lane, leader, chunk, kept, with_ended) for lane, leader, chunk in _lanes(chunks, in_flight_max)
    )
    return batches, tuple(errors)


def plan_proven(partitions: Iterable[Partition], *, batch_size: int, in_flight_max: int) -> tuple[ReadBatch, ...]:
    """The batches of a proven read, spread in the same way. All given partitions have a leader."""
    led: dict[int, list[Partition]] = defaultdict(list)
    for partition in sorted(partitions, key=lambda p: p.key):
        led[partition.leader].append(partition)
    chunks = {
        leader: [tuple(owned[start : start + batch_size]) for start in range(0, len(owned), batch_size)]
        for leader, owned in led.items()
    }
    return tuple(ReadBatch(lane, leader, chunk) for lane, leader, chunk in _lanes(chunks, in_flight_max))


def plan_logs(
    partitions: Mapping[Partition, Iterable[int]],
    *,
    in_flight_max: int,
    known: Mapping[Partition, tuple[int, tuple[str, ...]]] = MappingProxyType({}),
) -> tuple[LogBatch, ...]:
    """A batch for each partition of `__transaction_state`, with the producer ids to search for. known: for partitions
    of which only appended records are searched, the offset to start from, and the ids to search for.
    """
    led: dict[int, list[Partition]] = defaultdict(list)
    for partition in sorted(partitions, key=lambda p: p.key):
        led[partition.leader].append(partition)
    return tuple(
        LogBatch(lane, leader, (partition,), tuple(sorted(partitions[partition])), *known.get(partition, ()))
        for lane, leader, partition in _lanes(led, in_flight_max)
    )


def _filled(owned: Mapping[str, tuple[int, ...]], size: int) -> Iterator[dict[str, tuple[int, ...]]]:
    """The partitions in groups of `size`. A topic may be split between two groups."""
    group: dict[str, tuple[int, ...]] = {}
    room = size
    for topic, rest in owned.items():
        while len(rest) >= room:
            group[topic] = rest[:room]
            yield group
            group, rest, room = {}, rest[room:], size
        if rest:
            group[topic] = rest
            room -= len(rest)
    if group:
        yield group


def _lanes(chunks: Mapping[int, Sequence[Piece]], in_flight_max: int) -> Iterator[tuple[int, int, Piece]]:
    """(lane, leader, chunk), with lanes numbered from 0: the first of every leader, then the second of every leader."""
    used = ((turn, leader) for leader, owned in chunks.items() for turn in range(min(len(owned), in_flight_max)))
    lanes = {lane: number for number, lane in enumerate(sorted(used))}
    for leader, owned in sorted(chunks.items()):
        for number, chunk in enumerate(owned):
            yield lanes[number % in_flight_max, leader], leader, chunk
