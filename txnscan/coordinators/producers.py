"""The producers of partitions, as brokers report them. For an open transaction, this adds what Kafka's tool leaves out:
its owner, its start time and timeout, and the offsets of the partition.

A broker that does not lead a partition answers as readily as the leader, with data that may be long out of date. So
each row shows whether it was read from the leader. Even then it is a single read, which proves nothing: `find-hanging`
gives the proof.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from txnscan.coordinators.claims import ClaimAnswers
from txnscan.coordinators.cluster import Cluster
from txnscan.coordinators.streamed import streamed
from txnscan.coordinators.transactions import offsets_of
from txnscan.kafka.answers import CoordinatorView, OpenProducer
from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import Unobserved, no_leader
from txnscan.kafka.protocol.describe_producers import describe_all_producers
from txnscan.kafka.security.needs import READ_TOPICS
from txnscan.kafka.topology import ClusterView, Partition, Topic
from txnscan.reads.proven_read import of_topic
from txnscan.reads.rows import OffsetsRow

_PARTITIONS_AT_ONCE = 100
# Up to this number of partitions, all are read before their owners.
_READ_FIRST_MAX = 1_000


@dataclass(frozen=True, slots=True)
class PartitionProducers:
    """One partition as one broker shows it. offsets: the leader's offsets of a partition with an open transaction; None
    if no transaction is open, or if the leader does not report them. owners: by producer id of the open transactions,
    the transactional ids in a transaction that have it.
    """

    partition: Partition
    broker_id: int
    producers: tuple[OpenProducer, ...]
    offsets: OffsetsRow | None = None
    owners: Mapping[int, CoordinatorView] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.partition.topic}-{self.partition.partition}"

    @property
    def of_leader(self) -> bool:
        return self.broker_id == self.partition.leader

    @property
    def open(self) -> tuple[OpenProducer, ...]:
        return tuple(one for one in self.producers if one.start_offset >= 0)

    @property
    def lacks_owner(self) -> bool:
        """Whether an open transaction has no known owner."""
        return any(one.producer_id not in self.owners for one in self.open)


@dataclass(frozen=True, slots=True)
class Portion:
    """Partitions to ask one broker for at once."""

    broker_id: int
    partitions: tuple[Partition, ...]


def portions(topics: Iterable[Topic], broker_id: int | None) -> tuple[list[Portion], list[Unobserved]]:
    """The partitions to ask each broker for. With `broker_id` this broker is asked for all, without it each leader.
    Also the partitions without a leader. Pure.
    """
    by_broker: dict[int, list[Partition]] = defaultdict(list)
    errors = []
    for partition in (one for topic in topics for one in topic.partitions):
        asked = partition.leader if broker_id is None else broker_id
        if asked < 0:
            errors.append(Unobserved("read", no_leader(asked), None, *partition.key))
        else:
            by_broker[asked].append(partition)
    made = [
        Portion(asked, tuple(mine[at : at + _PARTITIONS_AT_ONCE]))
        for asked, mine in by_broker.items()
        for at in range(0, len(mine), _PARTITIONS_AT_ONCE)
    ]
    return made, errors


def read_portion(send: Send, portion: Portion, view: ClusterView) -> Iterator[PartitionProducers | Unobserved]:
    """The partitions of a portion, or the failures to read them. Never raises."""
    indexes: dict[str, list[int]] = defaultdict(list)
    for partition in portion.partitions:
        indexes[partition.topic].append(partition.partition)
    try:
        described = describe_all_producers(send, portion.broker_id, indexes)
    except RequestFailed as failed:
        yield from (Unobserved("read", failed.failure, portion.broker_id, *one.key) for one in portion.partitions)
        return
    still_open = {key for key, one in described.items() if any(p.start_offset >= 0 for p in one.producers)}
    offsets = offsets_of(send, still_open, view) if still_open else {}
    for partition in portion.partitions:
        answer = described[partition.key]
        if answer.failure is not None:
            failure = of_topic(answer.failure, READ_TOPICS, partition.topic)
            yield Unobserved("read", failure, portion.broker_id, *partition.key)
        else:
            yield PartitionProducers(partition, portion.broker_id, answer.producers, offsets.get(partition.key))


def read_producers(
    cluster: Cluster, topics: Sequence[Topic], view: ClusterView, broker_id: int | None
) -> Iterator[PartitionProducers | Unobserved]:
    """The producers of these partitions as brokers report them, the owners of open transactions, and the failures. If
    an owner is missing, this includes the brokers that did not tell theirs.

    broker_id: the broker to ask for all partitions; without it, each partition's leader is asked. A small number of
    partitions is read before the owners of their open transactions. For a large number, all owners are read first, so
    that no partition must stay in memory.
    """
    parts, unled = portions(topics, broker_id)
    yield from unled
    read: Iterable[PartitionProducers | Unobserved] = streamed(
        lambda portion: read_portion(cluster.send, portion, view), parts
    )
    wanted: Collection[int] = EVERY_NUMBER
    if sum(len(portion.partitions) for portion in parts) <= _READ_FIRST_MAX:
        read = list(read)
        wanted = {p.producer_id for one in read if isinstance(one, PartitionProducers) for p in one.open}
    answers = cluster.ask_claims(wanted, lambda done, total: None) if wanted else []
    known, is_unowned = owners(answers), False
    for one in read:
        if isinstance(one, PartitionProducers):
            one = replace(one, owners=_owners_of(one, known))
            is_unowned |= one.lacks_owner
        yield one
    if is_unowned:
        yield from (Unobserved("list", one.failure, one.broker_id) for one in answers if one.failure is not None)


def owners(answers: Iterable[ClaimAnswers]) -> Mapping[int, Sequence[CoordinatorView]]:
    """The ids in a transaction, by producer id, as brokers describe them. This is no proof: if a coordinator moves, an
    id may appear twice, or not at all. Pure.
    """
    found: dict[int, list[CoordinatorView]] = defaultdict(list)
    for answer in answers:
        for name, described in answer.described.items():
            if described.error is None:
                found[described.producer_id].append(described.view(name, answer.broker_id))
    return found


def _owners_of(
    one: PartitionProducers, known: Mapping[int, Collection[CoordinatorView]]
) -> Mapping[int, CoordinatorView]:
    """The owner of each open producer. Of several ids with the same producer id, an id with this partition is
    preferred.
    """
    found = {}
    for producer in one.open:
        views = sorted(known.get(producer.producer_id, ()), key=lambda view: one.name not in view.partitions)
        if views:
            found[producer.producer_id] = views[0]
    return found


class _EveryNumber(Collection[int]):
    """All producer ids, to ask about any of them."""

    def __contains__(self, one: object) -> bool:
        return True

    def __iter__(self) -> Iterator[int]:
        raise TypeError("there is no end to them")

    def __len__(self) -> int:
        return _READ_FIRST_MAX


EVERY_NUMBER = _EveryNumber()
