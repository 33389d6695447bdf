"""A transactional producer at wire level, which can do what a real client never does.

It checks nothing: it writes to partitions that were never added, continues at a fenced epoch, or abandons an open
transaction. It only retries until transient errors are over.

Transactions v2 (Kafka 4.0): Produce v12 adds the partition to the transaction, and EndTxn v5 raises the epoch at every
end. With v1, Produce is at most v11, `add_partitions` adds partitions, and epochs stay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
)
from kafka.record import MemoryRecordsBuilder

from txnscan.demo.errors import DemoError
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.errors import ErrorCode, RequestFailed, error_name
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC

T = TypeVar("T")

PRODUCE_V1 = 11
PRODUCE_V2 = 12
_END_V1 = 4
_END_V2 = 5
# From v4 on, only brokers send AddPartitionsToTxn to each other.
_ADD_PARTITIONS = 3
_FIND_COORDINATOR = 4
_TRANSACTION_KEY = 1
_ALL_IN_SYNC = -1
_PRODUCE_TIMEOUT_MS = 5_000
_BATCH_BYTES_MAX = 1024 * 1024
_DEADLINE_S = 60.0
_PASSING = {
    *(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    *(ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    *(ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR),
    13,  # NETWORK_EXCEPTION
    19,  # NOT_ENOUGH_REPLICAS
    20,  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
    51,  # CONCURRENT_TRANSACTIONS
}


class ProducerError(DemoError):
    """A broker refused a request with a permanent error; `error` is its name in the protocol."""

    def __init__(self, request: str, error: str) -> None:
        super().__init__(f"{request} was refused: {error}")
        self.error = error


@dataclass(frozen=True, slots=True)
class ProducerIdAndEpoch:
    """A producer id at an epoch."""

    producer_id: int
    producer_epoch: int


class Producer:
    """One producer. Its methods return when the broker has accepted a request, and raise ProducerError if it refused.

    identity: the producer id and epoch that it writes with; None before `init_producer_id`; may be set to any value.
    timeout_ms: of its transactions; None means the longest that the brokers allow. v2: whether to use transactions v2;
    None means as the brokers do; may be set between transactions.
    """

    def __init__(
        self,
        wire: Wire,
        transactional_id: str | None = None,
        *,
        timeout_ms: int | None = None,
        v2: bool | None = None,
        deadline_s: float = _DEADLINE_S,
    ) -> None:
        self.transactional_id = transactional_id
        self.identity: ProducerIdAndEpoch | None = None
        self._wire = wire
        self._timeout_ms = timeout_ms if timeout_ms is not None else wire.transaction_timeout_ms
        self.v2 = wire.transactions_v2 if v2 is None else v2
        self._deadline_s = deadline_s
        self._sequences: dict[tuple[str, int], int] = {}

    def init_producer_id(self) -> ProducerIdAndEpoch:
        """Gets a producer id: with a transactional id from its coordinator, which fences earlier epochs; otherwise a
        new one.
        """
        # Build a new request for each try: a sent request keeps the version of the broker that it was sent to.
        identity = self._until_agreed("InitProducerId", self._init)
        self._become(identity)
        return identity

    def _init(self) -> ProducerIdAndEpoch:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms if self.transactional_id is not None else 2**31 - 1,
        )
        asked = self.coordinator() if self.transactional_id is not None else self._wire.any_broker()
        answer = self._wire.send(asked, request)
        _agreed("InitProducerId", answer.error_code)
        return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

    def _become(self, identity: ProducerIdAndEpoch) -> None:
        if identity != self.identity:
            self._sequences.clear()
        self.identity = identity

    def add_partitions(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Adds partitions to the transaction, as clients before Kafka 4.0 do."""
        wanted = tuple(partitions)
        self._until_agreed("AddPartitionsToTxn", lambda: self._add(wanted))

    def _add(self, partitions: Sequence[tuple[str, int]]) -> None:
        topic_type = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        topics = sorted({topic for topic, _ in partitions})
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.known.producer_id,
            v3_and_below_producer_epoch=self.known.producer_epoch,
            v3_and_below_topics=[topic_type(name=t, partitions=[p for u, p in partitions if u == t]) for t in topics],
            max_version=_ADD_PARTITIONS,
        )
        for topic in self._wire.send(self.coordinator(), request).results_by_topic_v3_and_below:
            for answer in topic.results_by_partition:
                _agreed("AddPartitionsToTxn", answer.partition_error_code)

    def write(self, topic: str, partition: int, values: Sequence[bytes], *, timestamp_ms: int | None = None) -> int:
        """Writes as a real client does: under v1, adds the partition to the transaction first."""
        if not self.v2:
            self.add_partitions([(topic, partition)])
        return self.produce(topic, partition, values, timestamp_ms=timestamp_ms)

    def produce(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes],
        *,
        timestamp_ms: int | None = None,
        version: int | None = None,
    ) -> int:
        """Writes one transactional batch, and returns its first offset.

        timestamp_ms: the CreateTime of every record; None means now. version: the highest version of Produce to use.
        """
        written_at_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
        sequence = self._sequences.get((topic, partition), 0)
        batch = self._batch(values, written_at_ms, sequence)
        highest = version or (PRODUCE_V2 if self.v2 else PRODUCE_V1)
        base_offset = self._until_agreed("Produce", lambda: self._produce(topic, partition, batch, highest))
        self._sequences[topic, partition] = sequence + len(values)
        return base_offset

    def _batch(self, values: Sequence[bytes], timestamp_ms: int, sequence: int) -> bytes:
        builder = MemoryRecordsBuilder(
            magic=2,
            compression_type=0,
            batch_size=_BATCH_BYTES_MAX,
            transactional=True,
            producer_id=self.known.producer_id,
            producer_epoch=self.known.producer_epoch,
            base_sequence=sequence,
        )
        for value in values:
            if builder.append(timestamp=timestamp_ms, key=None, value=value) is None:
                raise DemoError(f"the records do not fit into a batch of {_BATCH_BYTES_MAX} bytes")
        builder.close()
        return bytes(builder.buffer())

    def _produce(self, topic: str, partition: int, batch: bytes, highest: int) -> int:
        data = ProduceRequest.TopicProduceData
        request = ProduceRequest(
            # Never None: brokers authorise transactional data by this id, and accept any id.
            transactional_id=self.transactional_id or "none",
            acks=_ALL_IN_SYNC,
            timeout_ms=_PRODUCE_TIMEOUT_MS,
            topic_data=[data(name=topic, partition_data=[data.PartitionProduceData(index=partition, records=batch)])],
            max_version=highest,
        )
        leader = self._wire.partition(topic, partition).leader
        answer = self._wire.send(leader, request).responses[0].partition_responses[0]
        _agreed("Produce", answer.error_code)
        return int(answer.base_offset)

    def end(self, *, commit: bool) -> None:
        """Commits or aborts. With transactions v2 the producer continues at the epoch in the broker's answer."""
        self._become(self._until_agreed("EndTxn", lambda: self._end(commit)))

    def _end(self, commit: bool) -> ProducerIdAndEpoch:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.known.producer_id,
            producer_epoch=self.known.producer_epoch,
            committed=commit,
            max_version=_END_V2 if self.v2 else _END_V1,
        )
        answer = self._wire.send(self.coordinator(), request)
        _agreed("EndTxn", answer.error_code)
        # Before v5 the answer has no producer id: the identity stays.
        next_one = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch) if self.v2 else self.known
        return next_one if next_one.producer_id >= 0 else self.known

    def coordinator(self) -> int:
        """The broker that coordinates this transactional id. Creates `__transaction_state` if it does not exist."""
        key = str(self.transactional_id)
        partitions = self._wire.view([TRANSACTION_STATE_TOPIC]).partitions
        if not partitions:
            request = FindCoordinatorRequest(
                key_type=_TRANSACTION_KEY, coordinator_keys=[key], min_version=_FIND_COORDINATOR
            )
            self._wire.send(self._wire.any_broker(), request)
            raise RequestFailed(f"{TRANSACTION_STATE_TOPIC} does not exist yet")
        leader = partitions[coordinator_partition(key, len(partitions))].leader
        if leader < 0:
            raise RequestFailed(f"{key} has no coordinator at present")
        return leader

    @property
    def known(self) -> ProducerIdAndEpoch:
        """The identity. Raises DemoError if there is none yet."""
        if self.identity is None:
            raise DemoError("this producer has no producer id yet: call init_producer_id first")
        return self.identity

    def _until_agreed(self, request: str, attempt: Callable[[], T]) -> T:
        # In a tuple, because an answer may be falsy.
        return wait_until(lambda: (attempt(),), f"{request} succeeded", self._deadline_s)[0]


def _agreed(request: str, error_code: int) -> None:
    """Raises RequestFailed for transient errors, and ProducerError for others."""
    if error_code == ErrorCode.NONE:
        return
    if error_code in _PASSING:
        raise RequestFailed(f"{request} was answered with {error_name(error_code)}")
    raise ProducerError(request, error_name(error_code))
