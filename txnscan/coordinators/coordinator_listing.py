"""The coordinator listing: what every broker lists and describes as a coordinator, with proof that no id was missed.

ListTransactions returns only the ids that a broker has cached. It silently leaves out all other ids, and ids that the
principal may not describe. So each broker gets these requests in this order, with the listing between two probes:

    Metadata(`__transaction_state`), if its image is not known to be as new as that of the plan
    DescribeAcls(all rules on transactional ids)
    DescribeTransactions(one random id for each __transaction_state partition, and for each class of ids in the rules)
    ListTransactions(the producer ids with open transactions that are not claimed)
    Metadata(the topics in which the producers of the listed ids have open transactions)
    DescribeTransactions(the listed ids)
    Metadata(the same topics)
    DescribeTransactions(the same random ids)
    DescribeAcls

If a broker answers TRANSACTIONAL_ID_NOT_FOUND for a random id, it serves that partition: it has cached its ids. If it
answers NOT_COORDINATOR, it does not.

The obligation **coverage** holds for a partition of `__transaction_state` if
- the broker's own image, before its first probe, names itself as the leader, at the leader epoch that the agreed
  metadata (`metadata_image.py`) shows after all answers: its Metadata does, or its image has reached the offset of an
  image that does;
- it serves the partition in both probes, and returned its listing;
- no other broker serves it, or is loading it.

Leader epochs only rise, so it led the partition all the while. Its own image is needed, because a listing has no
leader epoch. A broker that led the partition earlier, and is elected again, answers from what it cached then, until the
metadata of its successor reaches it. Images reach its Metadata answers first, and its coordinator last
(`BrokerMetadataPublisher.onMetadataUpdate`). So if its image has the later election, its coordinator has heard of its
successor, and has forgotten what it had cached.

The obligation **visibility** holds if every broker that returned a listing allows an id of each class to be described
(`visibility.py`).

A description silently leaves out topics that the principal may not describe. So a description without a partition
proves that the id lacks the partition only if the same broker showed these topics before and after it.

`ask_coordinators` does the I/O. `conclude` is pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from txnscan.coordinators.agreed_metadata import AgreedMetadata, LeaderUnknown, NoSuchTopic
from txnscan.coordinators.visibility import (
    Classes,
    Probed,
    Visibility,
    changes,
    probe,
    read_classes,
    visibility_failures,
)
from txnscan.kafka.answers import CoordinatorView
from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed, error_name
from txnscan.kafka.failure import Failure, FailureCode, Unobserved
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.protocol.describe_transactions import DescribedTransaction, describe_transactions
from txnscan.kafka.protocol.list_transactions import ListedTransaction, list_transactions
from txnscan.kafka.protocol.metadata import MetadataRound, read_metadata
from txnscan.kafka.security.acls import needing
from txnscan.kafka.security.needs import DESCRIBE_TOPICS
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, ClusterView, Partition


@dataclass(frozen=True, slots=True)
class CoordinatorListing:
    """The answers of the coordinators in a sweep, and the gaps in them.

    views: of the ids whose producer id has open transactions that are not claimed (`claims.py`). coverage_errors: one
    for each `__transaction_state` partition that is not covered, unless a visibility failure covers it. split_failures:
    one for each partition that several brokers say they coordinate. visibility_failures: why ids may be hidden; empty
    if visibility holds.
    """

    views: tuple[CoordinatorView, ...]
    coordinators_planned: int
    coordinators_proven: int
    coverage_errors: tuple[Unobserved, ...] = ()
    split_failures: tuple[Failure, ...] = ()
    visibility_failures: tuple[Failure, ...] = ()
    errors: tuple[Unobserved, ...] = ()

    @property
    def complete(self) -> bool:
        return self.coordinators_proven == self.coordinators_planned and not self.visibility_failures

    @property
    def may_improve(self) -> bool:
        """Whether other answers may cover more. A broker that lacks an API lacks it the next time, too."""
        return bool(self.coordinators_planned) and any(
            error.failure.lacks_api is None for error in self.coverage_errors
        )

    @property
    def coverage_failure(self) -> Failure | None:
        """Why, by the coverage errors, the absence of a producer id from this listing is no proof."""
        if not self.coverage_errors:
            return None
        first = self.coverage_errors[0].failure
        more = len(self.coverage_errors) - 1
        also = f" (and {more} more partitions of {TRANSACTION_STATE_TOPIC})" if more else ""
        return replace(first, error=f"{first.error}{also}")


# The largest `__transaction_state` that is probed. Kafka's default is 50 partitions. The brokers choose the number, and
# the random ids of so many partitions take about a second to find.
COORDINATOR_PARTITIONS_MAX = 5_000
# A broker answers these codes for an id only if it serves the id's partition: it has cached the partition's ids.
_SERVES_PARTITION = (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
_REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@dataclass(frozen=True, slots=True)
class CoordinatorAnswers:
    """One broker's answers, in the order of the requests. After a failure the later answers are missing.

    own: its Metadata of `__transaction_state`. before, after: the error code of each `__transaction_state` partition.
    listed: the listed ids with a producer id that has open transactions. described: the answers for these ids.
    hidden_topic: why the descriptions may leave out a topic. visibility: whether ids may be missing in `listed`.
    """

    broker_id: int
    own: ClusterView | None
    before: Mapping[int, int]
    listed: Mapping[str, ListedTransaction] | None
    described: Mapping[str, DescribedTransaction]
    after: Mapping[int, int]
    failure: Failure | None
    hidden_topic: Failure | None
    visibility: Visibility


def ask_coordinators(
    send: Send,
    broker_id: int,
    log: MetadataRound,
    probes: Mapping[str, int],
    open_topics: Mapping[int, frozenset[str]],
    own: ClusterView | None = None,
) -> CoordinatorAnswers:
    """Asks one broker, in the order that the proof needs. Never raises: the result includes the failure.

    log: the request for the metadata of `__transaction_state`. open_topics: by producer id, the topics in which it has
    open transactions. own: a view that the broker's image already has; None to ask for the broker's own.
    """
    try:
        own = log.ask(send, broker_id) if own is None else own
    except RequestFailed as failed:
        return _without_answer(broker_id, failed.failure)
    classes = read_classes(send, broker_id, probes)
    probed: list[Probed] = []
    listed: dict[str, ListedTransaction] | None = None
    described: dict[str, DescribedTransaction] = {}
    changed: frozenset[Failure] = frozenset()
    failure: Failure | None = None
    hidden_topic: Failure | None = None
    try:
        probed.append(probe(send, broker_id, probes, classes))
        found = list_transactions(send, broker_id, producer_ids=open_topics.keys())
        # A broker might ignore the filter, so other producer ids are dropped here.
        listed = {name: one for name, one in found.items() if one.producer_id in open_topics}
        topics = frozenset[str]().union(*(open_topics[one.producer_id] for one in listed.values()))
        hidden_topic = Failure(f"broker {broker_id} did not show the topics", FailureCode.LEFT_OUT)
        shown = [read_metadata(send, broker_id, topics)] if topics else []
        described = describe_transactions(send, broker_id, sorted(listed))
        shown += [read_metadata(send, broker_id, topics)] if topics else []
        hidden_topic = _hidden_topic(shown, topics)
        probed.append(probe(send, broker_id, probes, classes))
        changed = changes(send, broker_id, classes)
    except RequestFailed as failed:
        failure = failed.failure
    before = probed[0].partitions if probed else {}
    after = probed[1].partitions if len(probed) > 1 else {}
    seen = Visibility(classes, tuple(probed), changed)
    return CoordinatorAnswers(broker_id, own, before, listed, described, after, failure, hidden_topic, seen)


def strangers(answers: Iterable[CoordinatorAnswers], after: AgreedMetadata) -> tuple[Unobserved, ...]:
    """A failure for each broker whose own Metadata is that of another cluster than the agreed metadata.

    For example, an address that leads to a broker of the same number in a copy of the cluster.
    """
    clusters = {view.cluster_id for view in after.views}
    others = [one for one in answers if one.own is not None and clusters and {one.own.cluster_id} != clusters]
    return tuple(Unobserved("metadata", _stranger(one.broker_id), one.broker_id) for one in others)


def _stranger(broker_id: int) -> Failure:
    return Failure(f"broker {broker_id} says that it is of another cluster", FailureCode.BROKERS_DISAGREE)


def _without_answer(broker_id: int, failure: Failure) -> CoordinatorAnswers:
    """The answers of a broker that did not answer the first request."""
    nothing = Visibility(Classes(None, {}), (), frozenset())
    return CoordinatorAnswers(broker_id, None, {}, None, {}, {}, failure, None, nothing)


def _hidden_topic(views: Iterable[ClusterView], topics: Iterable[str]) -> Failure | None:
    """Why this broker's descriptions may leave out one of these topics. None if it showed all of them."""
    for view in views:
        broker_id = view.answered_by
        errors, shown = dict(view.topic_errors), {topic.name for topic in view.topics if topic.indexes}
        for topic in sorted(topics):
            error = errors.get(topic)
            if error == ErrorCode.TOPIC_AUTHORIZATION_FAILED.name:
                refused = needing(Failure(error, error), DESCRIBE_TOPICS.on(topic))
                return refused.within(f"broker {broker_id} does not show {topic}")
            # Brokers return any other error only to principals that may describe the topic.
            if error is None and topic not in shown:
                return Failure(f"broker {broker_id} left {topic} out of its answer", FailureCode.LEFT_OUT)
    return None


def conclude(
    answers: Iterable[CoordinatorAnswers],
    before: AgreedMetadata,
    after: AgreedMetadata,
    principal: str,
) -> CoordinatorListing:
    """The listing that these answers prove, with its gaps. Pure.

    before, after: the agreed metadata of `__transaction_state` before and after the answers. principal: the principal
    that asked; it decides which ACLs hide ids.
    """
    by_broker = {answer.broker_id: answer for answer in answers}
    failures_by_broker = {b: visibility_failures(b, answer.visibility, principal) for b, answer in by_broker.items()}
    failures = _failures_of_listing_brokers(by_broker, failures_by_broker)
    partition_count = _partition_count(before, after)
    if partition_count == 0:
        return _without_coordinators(by_broker, before, after, failures)
    serving = _serving_brokers(by_broker)
    split_failures = {k: _served_twice(k, serving[k]) for k in range(partition_count) if len(serving.get(k, ())) > 1}
    uncovered = {
        k: error
        for k in range(partition_count)
        if (error := _uncovered(by_broker, failures_by_broker, before, after, k, serving.get(k, set()))) is not None
    }
    # The visibility failures already report these partitions, with the remedy.
    refused = {k for k in uncovered if _refused(by_broker, before, k)} if failures else set()
    views = [
        replace(
            view,
            coverage_failure=uncovered[k].failure if k in uncovered else None,
            split_failure=split_failures.get(k),
        )
        for b, answer in by_broker.items()
        for view in _views(answer, failures_by_broker[b])
        for k in [coordinator_partition(view.transactional_id, partition_count)]
    ]
    return CoordinatorListing(
        views=tuple(sorted(views, key=lambda view: (view.producer_id, view.transactional_id, view.broker_id))),
        coordinators_planned=partition_count,
        coordinators_proven=partition_count - len(uncovered),
        coverage_errors=tuple(error for k, error in uncovered.items() if k not in refused),
        split_failures=tuple(split_failures.values()),
        visibility_failures=failures,
        errors=_broker_errors(by_broker),
    )


def _served_twice(k: int, who: Iterable[int]) -> Failure:
    each = f"brokers {', '.join(map(str, sorted(who)))} each say they coordinate {TRANSACTION_STATE_TOPIC}-{k}"
    return Failure(each, FailureCode.BROKERS_DISAGREE)


def _partition_count(before: AgreedMetadata, after: AgreedMetadata) -> int:
    """The number of partitions of `__transaction_state`; 0 if it cannot be probed."""
    indexes = before.indexes(TRANSACTION_STATE_TOPIC)
    # If the count changes, ids hash to other partitions. The brokers themselves stop serving then.
    known = indexes == after.indexes(TRANSACTION_STATE_TOPIC) == tuple(range(len(indexes)))
    return len(indexes) if known and len(indexes) <= COORDINATOR_PARTITIONS_MAX else 0


def _without_coordinators(
    by_broker: Mapping[int, CoordinatorAnswers],
    before: AgreedMetadata,
    after: AgreedMetadata,
    failures: tuple[Failure, ...],
) -> CoordinatorListing:
    """The listing if `__transaction_state` does not exist or is not visible. It does not prove any absence."""
    # It has at least one partition if it may exist.
    first, last = (len(agreed.indexes(TRANSACTION_STATE_TOPIC)) for agreed in (before, after))
    try:
        before.partition(TRANSACTION_STATE_TOPIC, 0)
        why, absent = _why_unprobed(first), False
    except LeaderUnknown as failed:
        why, absent = failed.failure, isinstance(failed, NoSuchTopic)
    error = Unobserved("snapshot", why, None, TRANSACTION_STATE_TOPIC)
    return CoordinatorListing(
        views=(),
        coordinators_planned=0 if absent else max(1, first, last),
        coordinators_proven=0,
        coverage_errors=(error,),
        visibility_failures=failures,
        errors=_broker_errors(by_broker),
    )


def _why_unprobed(partition_count: int) -> Failure:
    if partition_count > COORDINATOR_PARTITIONS_MAX:
        most = f"and txnscan asks about at most {COORDINATOR_PARTITIONS_MAX:,}"
        return Failure(f"{TRANSACTION_STATE_TOPIC} has {partition_count:,} partitions, {most}", FailureCode.NOT_ASKED)
    changed = f"the partition count of {TRANSACTION_STATE_TOPIC} changed during the sweep"
    return Failure(changed, FailureCode.BROKERS_DISAGREE)


def _serving_brokers(by_broker: Mapping[int, CoordinatorAnswers]) -> dict[int, set[int]]:
    """By partition: the brokers that, in either probe, serve it or are loading it."""
    serves = (*_SERVES_PARTITION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    found: dict[int, set[int]] = defaultdict(set)
    for broker_id, answer in by_broker.items():
        for k, code in (*answer.before.items(), *answer.after.items()):
            if code in serves:
                found[k].add(broker_id)
    return found


def _uncovered(
    by_broker: Mapping[int, CoordinatorAnswers],
    failures_by_broker: Mapping[int, Sequence[Failure]],
    before: AgreedMetadata,
    after: AgreedMetadata,
    k: int,
    serving: Set[int],
) -> Unobserved | None:
    """Why coverage does not hold for this `__transaction_state` partition. None if it holds."""
    try:
        leader = before.partition(TRANSACTION_STATE_TOPIC, k)
        still = after.partition(TRANSACTION_STATE_TOPIC, k)
    except LeaderUnknown as failed:
        return Unobserved("snapshot", failed.failure, None, TRANSACTION_STATE_TOPIC, k)
    if leader != still:
        moved = f"{TRANSACTION_STATE_TOPIC}-{k} moved while the coordinators were asked"
        return _error(k, Failure(moved, FailureCode.LEADER_MOVED), leader)
    answer = by_broker.get(leader.leader)
    if answer is None:
        return _error(k, Failure(f"broker {leader.leader} was not asked", FailureCode.NOT_ASKED), leader)
    if answer.failure is not None:
        return _error(k, answer.failure, leader)
    if not _knows(answer.own, leader, k):
        behind = f"broker {leader.leader} does not know yet that it coordinates {TRANSACTION_STATE_TOPIC}-{k}"
        return _error(k, Failure(behind, FailureCode.BROKER_BEHIND), leader)
    for code in (answer.before.get(k), answer.after.get(k)):
        if code not in _SERVES_PARTITION:
            said = error_name(code) if code is not None else "nothing"
            error = f"broker {leader.leader} answered {said} for {TRANSACTION_STATE_TOPIC}-{k}"
            failure = Failure(error, FailureCode.LEFT_OUT if code is None else said)
            return _error(k, _with_reason(failure, failures_by_broker[leader.leader]), leader)
    others = serving - {leader.leader}
    if others:
        error = f"broker {min(others)} claims {TRANSACTION_STATE_TOPIC}-{k} as well"
        return _error(k, Failure(error, FailureCode.BROKERS_DISAGREE), leader)
    return None


def _knows(own: ClusterView | None, leader: Partition, k: int) -> bool:
    """Whether this broker's own Metadata shows the leader of a partition of `__transaction_state`."""
    if own is None:
        return False
    try:
        return AgreedMetadata((own,), ()).partition(TRANSACTION_STATE_TOPIC, k) == leader
    except LeaderUnknown:
        return False


def _refused(by_broker: Mapping[int, CoordinatorAnswers], before: AgreedMetadata, k: int) -> bool:
    """Whether this partition is uncovered because its leader refused the random id, although it returned a listing."""
    try:
        answer = by_broker.get(before.partition(TRANSACTION_STATE_TOPIC, k).leader)
    except LeaderUnknown:
        return False
    return answer is not None and answer.failure is None and _REFUSED in (answer.before.get(k), answer.after.get(k))


def _error(k: int, failure: Failure, leader: Partition) -> Unobserved:
    return Unobserved("snapshot", failure, leader.leader, TRANSACTION_STATE_TOPIC, k)


def _views(answer: CoordinatorAnswers, failures: Sequence[Failure]) -> Iterable[CoordinatorView]:
    """This broker's views of its listed ids.

    If the broker no longer knows an id right after listing it, the id has expired and is absent. If an id has taken a
    new producer id, the view has the new producer id. failures: why the broker may hide ids.
    """
    for name, listing in (answer.listed or {}).items():
        described = answer.described.get(name)
        if described is None:
            left_out = Failure(f"broker {answer.broker_id} left the id out of its answer", FailureCode.LEFT_OUT)
            failure = answer.failure or left_out
        elif described.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            continue
        elif described.error is not None:
            said = f"broker {answer.broker_id} answered {described.error}"
            failure = _with_reason(Failure(said, described.error), failures)
        elif answer.hidden_topic is not None:
            failure = answer.hidden_topic
        else:
            yield described.view(name, answer.broker_id)
            continue
        yield CoordinatorView(name, answer.broker_id, listing.producer_id, describe_failure=failure)


def _with_reason(failure: Failure, failures: Sequence[Failure]) -> Failure:
    """The failure. If it is a refusal, it gets the first reason why the broker may hide ids."""
    refused = failure.code == _REFUSED.name and bool(failures)
    return failures[0].within(failure.error) if refused else failure


def _failures_of_listing_brokers(
    by_broker: Mapping[int, CoordinatorAnswers], failures_by_broker: Mapping[int, Sequence[Failure]]
) -> tuple[Failure, ...]:
    """Why visibility does not hold. Brokers without a listing are ignored, because they cover no partition."""
    reasons = (
        failure for b, a in sorted(by_broker.items()) if a.listed is not None for failure in failures_by_broker[b]
    )
    return tuple(dict.fromkeys(reasons))


def _broker_errors(by_broker: Mapping[int, CoordinatorAnswers]) -> tuple[Unobserved, ...]:
    return tuple(
        Unobserved("snapshot", answer.failure, b)
        for b, answer in sorted(by_broker.items())
        if answer.failure is not None
    )
