"""Metadata to bounded batches per leader. Pure.

A **lane** is a queue of batches for one leader that are read one after another; a leader has at most `lanes_per_leader`
of them, which caps what is in flight per broker whatever the number of executors or threads. Engines run lanes in
parallel and keep the order within a lane.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import count

from txnscan.model import Partition, ReadBatch, ScanError


def plan_reads(
    partitions: Iterable[Partition], *, batch_size: int, lanes_per_leader: int
) -> tuple[tuple[ReadBatch, ...], tuple[ScanError, ...]]:
    """The batches to read, and an error for each partition that nobody leads.

    Batches are spread evenly: no lane of a leader is longer than another by more than one batch, and lanes of
    different leaders alternate, so that the first lanes to run do not all queue at one broker.
    """
    by_leader: dict[int, list[Partition]] = defaultdict(list)
    errors = []
    for partition in sorted(partitions, key=lambda p: p.key):
        if partition.leader < 0:
            errors.append(ScanError("plan", "the partition has no leader", None, partition.topic, partition.partition))
        else:
            by_leader[partition.leader].append(partition)
    chunks = [
        (chunk_number % lanes_per_leader, leader, tuple(chunk))
        for leader, owned in sorted(by_leader.items())
        for chunk_number, chunk in enumerate(_chunks(owned, batch_size))
    ]
    lane_numbers: dict[tuple[int, int], int] = defaultdict(count().__next__)
    for turn, leader, _ in sorted(chunks, key=lambda chunk: (chunk[0], chunk[1])):
        lane_numbers[turn, leader]
    batches = tuple(ReadBatch(lane_numbers[turn, leader], leader, chunk) for turn, leader, chunk in chunks)
    return batches, tuple(errors)


def _chunks(partitions: list[Partition], size: int) -> list[list[Partition]]:
    return [partitions[start : start + size] for start in range(0, len(partitions), size)]
