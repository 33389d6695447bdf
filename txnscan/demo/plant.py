"""Scenarios: each function creates an open transaction on real brokers. Its docstring tells how.

If a scenario needs a forbidden write, it turns off the verification of transactions on all brokers at run time, and
turns it on again afterwards. `committed_but_hanging`, `live_with_old_timestamps` and `pending_marker` need no forbidden
write. Each function returns only after the transaction is proven to be open.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

from txnscan.demo.admin import create_topic, unverified
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.producer import PRODUCE_V1, Producer
from txnscan.demo.reader import read_values
from txnscan.demo.requests import Wire
from txnscan.demo.traffic import HealthyTraffic, TrafficCount
from txnscan.demo.wait import wait_until
from txnscan.kafka.answers import OpenProducer
from txnscan.kafka.protocol.describe_producers import describe_producers
from txnscan.kafka.protocol.describe_transactions import DescribedTransaction, describe_transactions

__all__ = [
    "HealthyTraffic",
    "Planted",
    "ReadCounts",
    "TornCommit",
    "TrafficCount",
    "committed_but_hanging",
    "coordinated_by",
    "describe_owner",
    "live_epoch",
    "live_with_old_timestamps",
    "open_transaction",
    "orphan",
    "orphan_from_the_future",
    "pending_marker",
    "read_both",
    "stale_epoch",
    "torn_commits",
]

_MINUTE_MS = 60_000
_RECORDS = [b"record %d" % number for number in range(5)]


@dataclass(frozen=True, slots=True)
class Planted:
    """An open transaction that was created on purpose, with a description."""

    what: str
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int
    transactional_id: str | None


@dataclass(frozen=True, slots=True)
class TornCommit:
    """A committed transaction: `hanging` is open on its topic, while `whole_topic` (partition 0) has the commit."""

    hanging: Planted
    whole_topic: str
    records: int


@dataclass(frozen=True, slots=True)
class ReadCounts:
    """How many records of each topic of a TornCommit a consumer reads: read_committed from both, read_uncommitted from
    the torn one.
    """

    whole_committed: int
    torn_committed: int
    torn_uncommitted: int


def committed_but_hanging(cluster: KafkaCluster, prefix: str = "payments") -> TornCommit:
    """A commit that lost a partition, under default settings and without any forbidden request.

    A transaction writes to two topics. The only replica of the second topic is on the last broker, and that broker
    stops before the transaction commits. On Kafka 4.3 the coordinator treats a partition without a leader as deleted:
    it writes the COMMIT marker only to the first topic, and completes the commit. When the broker is back, the
    transaction stays open on the second topic forever. The records are dated 40 minutes back, so that Kafka's own
    find-hanging reports it with its default age limit. When the function returns, the broker is up again.
    """
    (torn,) = torn_commits(cluster, prefix)
    return torn


def torn_commits(cluster: KafkaCluster, *prefixes: str) -> tuple[TornCommit, ...]:
    """A `committed_but_hanging` for each of these prefixes. The last broker stops once for all of them."""
    keeper, victim = cluster.broker_ids[0], cluster.broker_ids[-1]
    with cluster.wire() as wire:
        begun = [_begun_on_both(wire, prefix, keeper, victim) for prefix in prefixes]
        cluster.stop_broker(victim)
        for _, torn in begun:
            cluster.wait_for_leader(torn.hanging.topic, 0, -1)
        for producer, _ in begun:
            producer.end(commit=True)
            _await_state(wire, producer, "CompleteCommit")
        cluster.start_broker(victim)
        for _, torn in begun:
            cluster.wait_for_leader(torn.hanging.topic, 0, victim)
            _await_open(wire, torn.hanging)
    return tuple(torn for _, torn in begun)


def _begun_on_both(wire: Wire, prefix: str, keeper: int, victim: int) -> tuple[Producer, TornCommit]:
    """A transaction with records on one topic of each of these brokers, and its description once it is torn."""
    whole, torn = f"{prefix}-fine", f"{prefix}-solo"
    create_topic(wire, whole, [[keeper]])
    create_topic(wire, torn, [[victim]])
    producer = coordinated_by(wire, keeper, prefix)
    before_ms = _now_ms() - 40 * _MINUTE_MS
    producer.write(whole, 0, _RECORDS, timestamp_ms=before_ms)
    start_offset = producer.write(torn, 0, _RECORDS, timestamp_ms=before_ms)
    planted = _planted("committed on the coordinator, open on the partition", producer, torn, 0, start_offset)
    return producer, TornCommit(planted, whole, len(_RECORDS))


def read_both(wire: Wire, torn: TornCommit) -> ReadCounts:
    """The records that consumers read of a torn commit: all of one topic, and none of the other."""
    hanging = torn.hanging
    return ReadCounts(
        whole_committed=len(read_values(wire, torn.whole_topic, 0, committed=True)),
        torn_committed=len(read_values(wire, hanging.topic, hanging.partition, committed=True)),
        torn_uncommitted=len(read_values(wire, hanging.topic, hanging.partition, committed=False)),
    )


def orphan(wire: Wire, topic: str = "clicks", *, age_ms: int = 50 * _MINUTE_MS) -> Planted:
    """Data of a producer that no coordinator knows: its batch arrived on a broker that did not verify, and its
    partition was never added. No coordinator will ever end it. The records are 50 minutes old.
    """
    create_topic(wire, topic, [_replicas(wire)])
    producer = Producer(wire, v2=False)
    producer.init_producer_id()
    with unverified(wire):
        start_offset = producer.produce(topic, 0, _RECORDS, timestamp_ms=_now_ms() - age_ms, version=PRODUCE_V1)
    return _await_open(wire, _planted("orphan", producer, topic, 0, start_offset))


def orphan_from_the_future(wire: Wire, topic: str = "sensors") -> Planted:
    """An orphan whose producer's clock was 50 minutes fast. A tool that computes ages from record timestamps will not
    report it for over an hour.
    """
    planted = orphan(wire, topic, age_ms=-50 * _MINUTE_MS)
    return replace(planted, what="orphan, dated 50 minutes ahead")


def stale_epoch(wire: Wire, topic: str = "shipments") -> Planted:
    """A late write of a replaced producer: its transactional id was initialised again, at the next epoch, and the
    coordinator does not know the open data at the previous epoch.
    """
    create_topic(wire, topic, [_replicas(wire)])
    producer = Producer(wire, f"{topic}-service", v2=False)
    producer.init_producer_id()
    with unverified(wire):
        start_offset = producer.produce(
            topic, 0, _RECORDS, timestamp_ms=_now_ms() - 30 * _MINUTE_MS, version=PRODUCE_V1
        )
    planted = _planted("open at an epoch that was fenced", producer, topic, 0, start_offset)
    producer.init_producer_id()
    return _await_open(wire, planted)


def live_epoch(wire: Wire, topic: str = "invoices") -> Planted:
    """A live producer that wrote to two partitions, but added only partition 0 to its transaction. Partition 1 hangs
    while its owner still exists and can write at the same epoch.
    """
    create_topic(wire, topic, [_replicas(wire), _replicas(wire)])
    producer = Producer(wire, f"{topic}-service", v2=False)
    producer.init_producer_id()
    with unverified(wire):
        producer.add_partitions([(topic, 0)])
        written_at_ms = _now_ms() - 30 * _MINUTE_MS
        producer.produce(topic, 0, _RECORDS, timestamp_ms=written_at_ms, version=PRODUCE_V1)
        start_offset = producer.produce(topic, 1, _RECORDS, timestamp_ms=written_at_ms, version=PRODUCE_V1)
    return _await_open(wire, _planted("not added by its live owner", producer, topic, 1, start_offset))


def live_with_old_timestamps(wire: Wire, topic: str = "backfill") -> Planted:
    """A healthy transaction that only looks old: it replays records from hours ago. Its coordinator has the partition,
    and ends the transaction after at most 15 minutes.
    """
    create_topic(wire, topic, [_replicas(wire)])
    producer = Producer(wire, f"{topic}-service")
    producer.init_producer_id()
    start_offset = producer.write(topic, 0, _RECORDS, timestamp_ms=_now_ms() - 120 * _MINUTE_MS)
    return _await_open(wire, _planted("a live transaction that replays old records", producer, topic, 0, start_offset))


def pending_marker(cluster: KafkaCluster, topic: str = "ledger") -> Planted:
    """A decided transaction whose marker cannot be written: the partition needs two in-sync replicas, and the last
    broker, which has one of its two replicas, stops before the commit. The coordinator stays in PrepareCommit (under
    transactions v2 one epoch ahead of the partition) and writes the marker when that broker is back. When the function
    returns, the broker is down.
    """
    keeper, victim = cluster.broker_ids[0], cluster.broker_ids[-1]
    with cluster.wire() as wire:
        create_topic(wire, topic, [[keeper, victim]], {"min.insync.replicas": "2"})
        producer = coordinated_by(wire, keeper, topic)
        start_offset = producer.write(topic, 0, _RECORDS)
        planted = _planted("decided, its marker is owed", producer, topic, 0, start_offset)
        cluster.stop_broker(victim)
        cluster.wait_for_brokers(cluster.running)
        producer.end(commit=True)
        _await_state(wire, producer, "PrepareCommit")
        return _await_open(wire, planted)


# --- reading the planted transactions


def open_transaction(wire: Wire, topic: str, partition: int, producer_id: int) -> OpenProducer | None:
    """The producer's open transaction as the partition's leader describes it."""
    read = wire.partition(topic, partition)
    described = describe_producers(wire.send, read.leader, {topic: [partition]})[read.key]
    return next((found for found in described.open_producers if found.producer_id == producer_id), None)


def describe_owner(wire: Wire, transactional_id: str) -> DescribedTransaction:
    """The transactional id as its coordinator describes it."""
    asked = wait_until(lambda: Producer(wire, transactional_id).coordinator(), f"{transactional_id} had a coordinator")
    return describe_transactions(wire.send, asked, [transactional_id])[transactional_id]


# --- inside


def coordinated_by(wire: Wire, broker_id: int, prefix: str) -> Producer:
    """A new producer whose transactional id has this broker as its coordinator."""
    for number in count():
        producer = Producer(wire, f"{prefix}-service-{number}")
        if wait_until(producer.coordinator, "the transactional id had a coordinator") == broker_id:
            producer.init_producer_id()
            return producer
    raise AssertionError("unreachable")


def _planted(what: str, producer: Producer, topic: str, partition: int, start_offset: int) -> Planted:
    identity = producer.known
    return Planted(
        what,
        topic,
        partition,
        identity.producer_id,
        identity.producer_epoch,
        start_offset,
        producer.transactional_id,
    )


def _await_open(wire: Wire, planted: Planted) -> Planted:
    def is_open() -> bool:
        found = open_transaction(wire, planted.topic, planted.partition, planted.producer_id)
        return found is not None and found.start_offset == planted.start_offset

    wait_until(is_open, f"the transaction on {planted.topic}-{planted.partition} was open")
    return planted


def _await_state(wire: Wire, producer: Producer, state: str) -> None:
    name = str(producer.transactional_id)
    wait_until(lambda: describe_owner(wire, name).state == state, f"{name} was in {state}")


def _replicas(wire: Wire) -> Sequence[int]:
    """Up to three running brokers."""
    return [broker.broker_id for broker in wire.view([]).brokers][:3]


def _now_ms() -> int:
    return int(time.time() * 1000)
