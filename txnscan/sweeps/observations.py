"""Combine the reads into one observation for each open transaction. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from txnscan.coordinators.claims import ClaimedTransaction
from txnscan.kafka.answers import OpenProducer
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.kafka.topology import Key
from txnscan.reads.observation import Observation, ProvenRead
from txnscan.reads.rows import OffsetsRow, ProvenRow, WideRow
from txnscan.verdict.evidence import Judged

RECREATED = Failure("the topic was deleted and created again", FailureCode.TOPIC_RECREATED)
# The leader epoch of a read without proof.
_NO_EPOCH = -1
_NOT_AGAIN = Failure("the partition was not read again", FailureCode.NOT_ASKED)


def observe(
    topic_ids: Mapping[Key, str],
    wide: Mapping[Key, WideRow],
    first: Mapping[Key, ProvenRow],
    second: Mapping[Key, ProvenRow],
) -> list[Observation]:
    """Each transaction that was open at the first read, with both reads.

    If the first read failed, the transactions of the wide read and of the second read are used: they must become
    indeterminate. Without them they would count as ended, because the second read is proven. If a topic was recreated
    since the plan (its id is not the one in `topic_ids`), both reads count as failed.
    """
    observations = []
    for key, one in sorted(first.items()):
        two = second.get(key)
        if two is None:
            two = replace(one, open_producers=(), failure=one.failure or _NOT_AGAIN)
        recreated = {row.topic_id for row in (one, two) if row.failure is None} - {topic_ids[key]}
        if recreated:
            one, two = replace(one, failure=RECREATED), replace(two, failure=RECREATED)
        seen = _seen(wide.get(key), one, two)
        observations += [_observation(topic_ids[key], one, two, producer) for producer in seen]
    return observations


def _seen(row: WideRow | None, one: ProvenRow, two: ProvenRow) -> Iterable[OpenProducer]:
    if one.failure is None:
        return one.open_producers
    unproven = row.open_producers if row is not None else ()
    seen = {producer.producer_id: producer for producer in (*two.open_producers, *unproven, *one.open_producers)}
    return tuple(seen[producer_id] for producer_id in sorted(seen))


def _observation(topic_id: str, one: ProvenRow, two: ProvenRow, producer: OpenProducer) -> Observation:
    last = two if two.failure is None else one
    reads = _read(one, producer.producer_id), _read(two, producer.producer_id)
    return _observed(topic_id, one.key, producer, (last.leader, last.leader_epoch), reads)


def _observed(
    topic_id: str, key: Key, producer: OpenProducer, leader: tuple[int, int], reads: tuple[ProvenRead, ProvenRead]
) -> Observation:
    """leader: the broker and its leader epoch."""
    (topic, partition), (first, second) = key, reads
    return Observation(
        topic=topic,
        topic_id=topic_id,
        partition=partition,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        coordinator_epoch=producer.coordinator_epoch,
        start_offset=producer.start_offset,
        last_timestamp_ms=producer.last_timestamp_ms,
        last_sequence=producer.last_sequence,
        leader=leader[0],
        leader_epoch=leader[1],
        first=first,
        second=second,
        first_seen_ms=first.read_at_ms,
    )


def _read(row: ProvenRow, producer_id: int) -> ProvenRead:
    """The read in a row, for one producer."""
    found = next((one for one in row.open_producers if one.producer_id == producer_id), None)
    return ProvenRead(
        read_at_ms=row.read_at_ms,
        high_watermark=row.high_watermark,
        last_stable_offset=row.last_stable_offset,
        start_offset=found.start_offset if found is not None else None,
        producer_epoch=found.producer_epoch if found is not None else None,
        last_sequence=found.last_sequence if found is not None else None,
        failure=row.failure,
    )


# The failure in place of both reads of a claimed transaction, which needs no proof.
CLAIMED = Failure("its coordinator claims the transaction, so it was not read again", FailureCode.NOT_ASKED)


def claimed_observations(
    topic_ids: Mapping[Key, str], transactions: Iterable[ClaimedTransaction], now_ms: int
) -> list[Observation]:
    """Claimed transactions as the wide read saw them at about this time, without proof."""
    unread = ProvenRead(now_ms, failure=CLAIMED)
    return [
        _observed(topic_ids[one.key], one.key, one.producer, (one.row.leader, _NO_EPOCH), (unread, unread))
        for one in transactions
    ]


def with_offsets(judged: Iterable[Judged], offsets: Mapping[Key, OffsetsRow]) -> list[Judged]:
    """The transactions, with the offsets of their partitions where those were read. They show how much a transaction
    blocks. No verdict depends on them.
    """
    return [_at_offsets(one, offsets.get(one.observation.key)) for one in judged]


def _at_offsets(judged: Judged, row: OffsetsRow | None) -> Judged:
    if row is None:
        return judged
    second = replace(
        judged.observation.second, high_watermark=row.high_watermark, last_stable_offset=row.last_stable_offset
    )
    o = replace(judged.observation, second=second)
    return replace(judged, evidence=replace(judged.evidence, observation=o))


def with_history(
    observations: Iterable[Observation], first_seen_ms: Callable[[Observation], int | None]
) -> list[Observation]:
    """The observations, each with the time at which this scanner first saw the transaction."""
    return [
        replace(o, first_seen_ms=min(o.first_seen_ms, seen)) if (seen := first_seen_ms(o)) is not None else o
        for o in observations
    ]
