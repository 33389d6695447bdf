"""Transactional ids as their coordinators report them: all ids in brief, or some ids in full.

ListTransactions gives an id's producer id and state, but no time. So ids in a transaction are also described, which
gives their start time by the coordinator's clock, and their timeout. Kafka's tool lists neither of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from txnscan.kafka.answers import COMPLETE, IN_TRANSACTION, TWO_PHASE_COMMIT_TIMEOUT_MS, State
from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed, answered
from txnscan.kafka.failure import Failure, FailureCode, Unobserved, no_leader
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.protocol.describe_transactions import DescribedTransaction, describe_transactions
from txnscan.kafka.protocol.list_transactions import ListedTransaction, ListingFilter, listing
from txnscan.kafka.security.acls import needing
from txnscan.kafka.security.needs import DESCRIBE_IDS
from txnscan.kafka.topology import NO_LEADER_ID, TRANSACTION_STATE_TOPIC, ClusterView, Key, Partition
from txnscan.reads.proven_read import read_offsets
from txnscan.reads.rows import OffsetsRow, ReadBatch

# The states that a coordinator lists. It never lists PrepareEpochFence and Dead.
LISTED_STATES = (State.EMPTY, *IN_TRANSACTION, *COMPLETE)
_IDS_AT_ONCE = 1_000
# The answers of a coordinator that moves or loads. It is asked again.
_PASSING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.name,
    ErrorCode.COORDINATOR_NOT_AVAILABLE.name,
    ErrorCode.NOT_COORDINATOR.name,
)
_TRIES, _RETRY_WAIT_S = 4, 0.5
_NOT_FOUND = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND.name


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id at the broker that answered for it. Times are epoch milliseconds by that broker's clock.

    start_time_ms, timeout_ms, producer_epoch: None if the id was only listed. start_time_ms is also None if the id is
    in no transaction. partitions: the partitions of its transaction as "topic-partition"; for Prepare*, only those
    still without a marker. offsets: of these partitions, if their leaders report them.
    """

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str
    producer_epoch: int | None = None
    start_time_ms: int | None = None
    timeout_ms: int | None = None
    age_ms: int | None = None
    partitions: tuple[str, ...] = ()
    coordinator_partition: int | None = None
    offsets: Mapping[str, OffsetsRow] = field(default_factory=dict)

    @property
    def two_phase_commit(self) -> bool:
        """Whether the id has no timeout, because it takes part in a two-phase commit."""
        return self.timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS

    @property
    def overdue_ms(self) -> int | None:
        """The time since the transaction's timeout, if it is over."""
        if self.age_ms is None or self.timeout_ms is None or self.two_phase_commit:
            return None
        return self.age_ms - self.timeout_ms if self.age_ms > self.timeout_ms else None


def list_on(
    send: Send, broker_id: int, wanted: ListingFilter, now_ms: Callable[[], int]
) -> Iterator[list[Transaction] | Unobserved]:
    """The ids that this broker lists, in lists of up to 1,000, or the failure. Never raises."""
    listed = listing(send, broker_id, wanted)
    try:
        while some := list(islice(listed, _IDS_AT_ONCE)):
            yield _with_times(send, broker_id, some, now_ms)
    except RequestFailed as failed:
        yield Unobserved("list", failed.failure, broker_id)


def _with_times(
    send: Send, broker_id: int, listed: Sequence[tuple[str, ListedTransaction]], now_ms: Callable[[], int]
) -> list[Transaction]:
    busy = [name for name, one in listed if one.state in IN_TRANSACTION]
    described: Mapping[str, DescribedTransaction] = {}
    if busy:
        try:
            described = describe_transactions(send, broker_id, busy)
        except RequestFailed:
            # The listing is still valid. Only the times are missing.
            described = {}
    now = now_ms()
    return [_listed(broker_id, name, one, described.get(name), now) for name, one in listed]


def _listed(
    broker_id: int, name: str, listed: ListedTransaction, described: DescribedTransaction | None, now_ms: int
) -> Transaction:
    """The listed id, with times if the description has the same state. An id may have changed between the answers."""
    row = Transaction(name, broker_id, listed.producer_id, listed.state)
    if described is None or described.error is not None:
        return row
    if (described.producer_id, described.state) != (listed.producer_id, listed.state):
        return row
    return of_description(name, broker_id, described, now_ms)


def of_description(name: str, broker_id: int, described: DescribedTransaction, now_ms: int) -> Transaction:
    """The row of a description that has no error."""
    started = described.start_time_ms if described.start_time_ms >= 0 and described.state in IN_TRANSACTION else None
    return Transaction(
        transactional_id=name,
        coordinator=broker_id,
        producer_id=described.producer_id,
        state=described.state,
        producer_epoch=described.producer_epoch,
        start_time_ms=started,
        timeout_ms=described.timeout_ms,
        age_ms=None if started is None else now_ms - started,
        partitions=described.partitions,
    )


def describe(
    send: Send,
    ids: Iterable[str],
    view: Callable[[Collection[str]], ClusterView],
    now_ms: Callable[[], int],
    sleep: Callable[[float], None],
) -> tuple[list[Transaction], list[Unobserved]]:
    """Each id as its coordinator describes it, in the given order, and the failures.

    view: returns Metadata of some topics, from any broker. The coordinator follows from it and from the id's hash.
    FindCoordinator is not used, because it creates `__transaction_state` if that is missing. If the topic is hidden,
    every broker is asked, and all except the coordinator answer NOT_COORDINATOR.
    """
    wanted = list(dict.fromkeys(ids))
    answers: dict[str, Transaction | Unobserved] = {}
    left = wanted
    for attempt in range(_TRIES):
        if attempt:
            sleep(_RETRY_WAIT_S)
        answers |= _described(send, left, view([TRANSACTION_STATE_TOPIC]), now_ms)
        left = [name for name in left if _may_pass(answers[name])]
        if not left:
            break
    each = {name: answers[name] for name in wanted}
    return (
        [one for one in each.values() if isinstance(one, Transaction)],
        [replace(one, failure=_of_id(name, one.failure)) for name, one in each.items() if isinstance(one, Unobserved)],
    )


def _may_pass(answer: Transaction | Unobserved) -> bool:
    return isinstance(answer, Unobserved) and answer.failure.code in _PASSING


def _described(
    send: Send, names: Sequence[str], view: ClusterView, now_ms: Callable[[], int]
) -> dict[str, Transaction | Unobserved]:
    """The answer for each id, from one attempt."""
    by_broker, answers = located(names, view)
    found: dict[str, Transaction | Unobserved] = dict(answers)
    known: set[str] = set()
    for broker_id, mine in by_broker.items():
        try:
            described = describe_transactions(send, broker_id, mine)
        except RequestFailed as failed:
            found |= {name: Unobserved("describe", failed.failure, broker_id) for name in mine if name not in found}
            continue
        for name in mine:
            one = described.get(name)
            if one is None:
                left_out = Failure("the broker left this id out of its answer", FailureCode.LEFT_OUT)
                found.setdefault(name, Unobserved("describe", left_out, broker_id))
            elif one.error is None:
                known.add(name)
                found[name] = replace(
                    of_description(name, broker_id, one, now_ms()), coordinator_partition=_partition_of(name, view)
                )
            # If many brokers were asked, the answer of the id's coordinator counts.
            elif name not in found or (one.error_code != ErrorCode.NOT_COORDINATOR and name not in known):
                found[name] = Unobserved("describe", answered(one.error_code), broker_id)
    return found


def located(names: Iterable[str], view: ClusterView) -> tuple[dict[int, list[str]], dict[str, Unobserved]]:
    """The ids to ask each broker for, and the ids without a coordinator. If `__transaction_state` is hidden, every
    broker is asked for every id. Pure.
    """
    by_broker: dict[int, list[str]] = defaultdict(list)
    unserved: dict[str, Unobserved] = {}
    log = next((topic for topic in view.topics if topic.name == TRANSACTION_STATE_TOPIC), None)
    for name in names:
        if log is None:
            why = dict(view.topic_errors).get(TRANSACTION_STATE_TOPIC)
            if why == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name:
                absent = Failure(f"{TRANSACTION_STATE_TOPIC} does not exist: no id was ever used", why)
                unserved[name] = Unobserved("describe", absent)
                continue
            for broker in view.brokers:
                by_broker[broker.broker_id].append(name)
            continue
        k = coordinator_partition(name, len(log.indexes))
        leaders = [partition.leader for partition in log.at(k)]
        if leaders and leaders[0] >= 0:
            by_broker[leaders[0]].append(name)
        else:
            nobody = no_leader(leaders[0] if leaders else NO_LEADER_ID).within(f"{TRANSACTION_STATE_TOPIC}-{k}")
            unserved[name] = Unobserved("describe", nobody)
    return dict(by_broker), unserved


def _partition_of(name: str, view: ClusterView) -> int | None:
    """The id's partition of `__transaction_state`, if that topic is visible."""
    counts = [len(topic.indexes) for topic in view.topics if topic.name == TRANSACTION_STATE_TOPIC]
    return coordinator_partition(name, counts[0]) if counts else None


def _of_id(name: str, failure: Failure) -> Failure:
    if failure.code == _NOT_FOUND:
        failure = replace(failure, error="its coordinator knows no such id (it never was, or expired)")
    return needing(failure, DESCRIBE_IDS.on(name)).within(f"'{name}'")


def with_offsets(
    send: Send, transactions: Sequence[Transaction], view: Callable[[Collection[str]], ClusterView]
) -> list[Transaction]:
    """The same transactions, with the offsets of their partitions, if the leaders report them."""
    wanted = {key_of(name) for one in transactions for name in one.partitions}
    if not wanted:
        return list(transactions)
    rows = offsets_of(send, wanted, view({topic for topic, _ in wanted}))
    return [
        replace(one, offsets={name: rows[key_of(name)] for name in one.partitions if key_of(name) in rows})
        for one in transactions
    ]


def key_of(topic_partition: str) -> Key:
    """The topic and the partition number of a "topic-partition"."""
    topic, _, index = topic_partition.rpartition("-")
    return topic, int(index)


def offsets_of(send: Send, keys: Collection[Key], view: ClusterView) -> dict[Key, OffsetsRow]:
    """The high watermark and the last stable offset of these partitions, from their leaders by this view."""
    by_leader: dict[int, list[Partition]] = defaultdict(list)
    topics = {topic.name: topic for topic in view.topics}
    for topic, index in sorted(keys):
        for partition in topics[topic].at(index) if topic in topics else ():
            if partition.leader >= 0:
                by_leader[partition.leader].append(partition)
    rows = [
        row
        for leader, partitions in by_leader.items()
        for row in read_offsets(ReadBatch(0, leader, tuple(partitions)), send)
    ]
    return {(row.topic, row.partition): row for row in rows}
