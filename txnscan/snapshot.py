"""The coordinators' side of a sweep: what every broker lists and describes, and proof that nothing was missed.

ListTransactions gives only what a broker has cached, without a word about what it has not, and leaves out ids that the
principal may not describe. So each broker is asked in this order, the listing between two probes:

    DescribeAcls(all rules on transactional ids), Metadata(the topics with open transactions)
    DescribeTransactions(one random id for each __transaction_state partition, and for each class of ids in the rules)
    ListTransactions
    DescribeTransactions(the listed ids whose producer id is open somewhere)
    DescribeTransactions(the same random ids)
    DescribeAcls, Metadata
    DescribeTransactions(the other ids that were listed in PrepareCommit or PrepareAbort)

TRANSACTIONAL_ID_NOT_FOUND for a random id proves that the broker has that partition's ids cached; NOT_COORDINATOR that
it has not. Obligation **V** holds for a partition of `__transaction_state` when the broker that all brokers agree leads
it, at one leader epoch before and after, claims it in both probes and gave its listing, and no other broker claims it.
Obligation **A** holds when every broker that gave a listing lets an id of each class be described (`visibility.py`).
A description leaves out, without a word, topics that the principal may not describe; so it is no proof that an id does
not hold a partition unless the same broker showed the topics with open transactions, before and after.

The ids asked for last are no evidence, and where they cannot be had nothing else is lost. They tell whose markers do
not arrive where no open transaction shows it (`undelivered.py`).

Asking is I/O (`ask_coordinators`), concluding is pure (`conclude`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from txnscan.agreement import Agreement, Unagreed
from txnscan.kafka.acls import UNKNOWN_PRINCIPAL, Permission, explained
from txnscan.kafka.client import Send
from txnscan.kafka.coordinator import coordinator_partition
from txnscan.kafka.describe_transactions import DescribedTransaction, describe_transactions
from txnscan.kafka.errors import ErrorCode, RequestFailed, error_name
from txnscan.kafka.list_transactions import ListedTransaction, list_transactions
from txnscan.kafka.metadata import Round
from txnscan.model import TRANSACTION_STATE_TOPIC, CoordinatorView, Partition, ScanError, Snapshot
from txnscan.visibility import Sight

# A broker answers these for an id only when it has the id's partition cached.
_CLAIMS = (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
_REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_PREPARED = ("PrepareCommit", "PrepareAbort")


@dataclass(frozen=True, slots=True)
class CoordinatorAnswers:
    """One broker's answers, in the order asked. After an error the later ones are missing.

    before, after: error code by `__transaction_state` partition. listed: by transactional id.
    described: the answers for the listed ids with an open producer id. hidden: why ids may be missing in `listed`.
    hidden_topic: why a topic may be missing in what is described. prepared: the ids that are in PrepareCommit or
    PrepareAbort, without those that could not be described.
    """

    broker_id: int
    before: Mapping[int, int]
    listed: Mapping[str, ListedTransaction] | None
    described: Mapping[str, DescribedTransaction]
    after: Mapping[int, int]
    error: str | None
    hidden: tuple[str, ...]
    hidden_topic: str | None
    prepared: Mapping[str, DescribedTransaction] = field(default_factory=dict)


def ask_coordinators(
    send: Send,
    broker_id: int,
    probes: Mapping[str, int],
    open_producer_ids: frozenset[int],
    open_topics: frozenset[str],
    principal: str = UNKNOWN_PRINCIPAL,
    metadata: Round | None = None,
) -> CoordinatorAnswers:
    """Asks one broker, in the order that the proof needs. Never raises: what failed is in the answer.

    open_topics: those with open transactions. principal: the scanner's name, for what to grant it. metadata: the
    question for these topics, where several brokers are asked it.
    """
    sight = Sight(send, broker_id, probes, principal)
    before: dict[int, int] = {}
    after: dict[int, int] = {}
    listed: dict[str, ListedTransaction] | None = None
    described: dict[str, DescribedTransaction] = {}
    prepared: dict[str, DescribedTransaction] = {}
    hidden_topic: str | None = None
    error: str | None = None
    metadata = metadata or Round(open_topics)
    try:
        sight.read_rules()
        hidden_topic = _hidden_topic(send, broker_id, open_topics, principal, metadata)
        before.update(sight.probe())
        listed = list_transactions(send, broker_id)
        wanted = sorted(name for name, one in listed.items() if one.producer_id in open_producer_ids)
        described.update(describe_transactions(send, broker_id, wanted))
        after.update(sight.probe())
        sight.compare_rules()
        hidden_topic = hidden_topic or _hidden_topic(send, broker_id, open_topics, principal, metadata)
        prepared = _describe_prepared(send, broker_id, listed, described)
    except RequestFailed as failed:
        error = failed.error
    return CoordinatorAnswers(broker_id, before, listed, described, after, error, sight.hidden, hidden_topic, prepared)


def _describe_prepared(
    send: Send,
    broker_id: int,
    listed: Mapping[str, ListedTransaction],
    described: Mapping[str, DescribedTransaction],
) -> dict[str, DescribedTransaction]:
    """The listed ids that are in Prepare*. Never raises: nothing that is proven waits for these."""
    others = [name for name, one in listed.items() if one.state in _PREPARED and name not in described]
    try:
        asked = describe_transactions(send, broker_id, others)
    except RequestFailed:
        asked = {}
    found = {**described, **asked}
    return {name: one for name, one in found.items() if one.error is None and one.state in _PREPARED}


def _hidden_topic(send: Send, broker_id: int, topics: frozenset[str], principal: str, metadata: Round) -> str | None:
    """Why this broker may leave one of these topics out of what it describes, or None when it shows them all."""
    if not topics:
        return None
    view = metadata.ask(send, broker_id)
    errors, shown = dict(view.topic_errors), {topic.name for topic in view.topics if topic.indexes}
    for topic in sorted(topics):
        error = errors.get(topic)
        if error == ErrorCode.TOPIC_AUTHORIZATION_FAILED.name:
            needed = Permission("Describe", "Topic", topic)
            return f"broker {broker_id} does not show {topic}: {explained(error, needed, principal)}"
        # Any other error is told to those who may know of the topic alone.
        if error is None and topic not in shown:
            return f"broker {broker_id} left {topic} out of its answer"
    return None


def conclude(
    answers: Iterable[CoordinatorAnswers],
    before: Agreement,
    after: Agreement,
    open_producer_ids: frozenset[int],
) -> Snapshot:
    """The snapshot that these answers prove, and what they leave open. Pure.

    before, after: what all brokers agreed on around the answers.
    """
    by_broker = {answer.broker_id: answer for answer in answers}
    partition_count = _partition_count(before, after)
    if partition_count == 0:
        return _without_coordinators(by_broker, before)
    split = {k: _claimants(by_broker, k) for k in range(partition_count)}
    split_errors = {
        k: f"brokers {', '.join(map(str, sorted(who)))} each say they coordinate {TRANSACTION_STATE_TOPIC}-{k}"
        for k, who in split.items()
        if len(who) > 1
    }
    uncovered = {
        k: error
        for k in range(partition_count)
        if (error := _uncovered(by_broker, before, after, k, split[k])) is not None
    }
    visibility_error = _visibility_error(by_broker)
    # What was refused stands there already, once, with what to do about it.
    refused = {k for k in uncovered if _refused(by_broker, before, k)} if visibility_error is not None else set()
    views = [
        view
        for answer in by_broker.values()
        for view in _views(answer, open_producer_ids, partition_count, uncovered, split_errors)
    ]
    return Snapshot(
        views=tuple(sorted(views, key=lambda view: (view.producer_id, view.transactional_id, view.broker_id))),
        coordinators_planned=partition_count,
        coordinators_proven=partition_count - len(uncovered),
        transactional_ids=_count_ids(by_broker),
        coverage_errors=tuple(error for k, error in uncovered.items() if k not in refused),
        split_errors=tuple(split_errors.values()),
        visibility_error=visibility_error,
        errors=_broker_errors(by_broker),
        undelivered=_undelivered(by_broker, partition_count, uncovered),
    )


def _undelivered(
    by_broker: Mapping[int, CoordinatorAnswers], partition_count: int, uncovered: Mapping[int, ScanError]
) -> tuple[CoordinatorView, ...]:
    """The ids in Prepare*, as the brokers say that are proven to coordinate them."""
    return tuple(
        CoordinatorView(
            transactional_id=name,
            broker_id=answer.broker_id,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            state=found.state,
            timeout_ms=found.timeout_ms,
            start_time_ms=found.start_time_ms,
            partitions=found.partitions,
        )
        for answer in by_broker.values()
        for name, found in answer.prepared.items()
        if coordinator_partition(name, partition_count) not in uncovered
    )


def _partition_count(before: Agreement, after: Agreement) -> int:
    indexes = before.indexes(TRANSACTION_STATE_TOPIC)
    # A changed count changes which partition an id hashes to; the brokers themselves stop serving then.
    return len(indexes) if indexes == after.indexes(TRANSACTION_STATE_TOPIC) == tuple(range(len(indexes))) else 0


def _without_coordinators(by_broker: Mapping[int, CoordinatorAnswers], before: Agreement) -> Snapshot:
    """`__transaction_state` is not there, or not shown: absence of an owner can then not be proven for anything."""
    try:
        before.partition(TRANSACTION_STATE_TOPIC, 0)
        why = f"the partition count of {TRANSACTION_STATE_TOPIC} changed during the sweep"
    except Unagreed as unagreed:
        why = str(unagreed)
    absent = why == f"{TRANSACTION_STATE_TOPIC}: {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name}"
    error = ScanError("snapshot", why, None, TRANSACTION_STATE_TOPIC)
    return Snapshot(
        views=(),
        coordinators_planned=0 if absent else 1,
        coordinators_proven=0,
        transactional_ids=_count_ids(by_broker),
        coverage_errors=(error,),
        visibility_error=_visibility_error(by_broker),
        errors=_broker_errors(by_broker),
    )


def _claimants(by_broker: Mapping[int, CoordinatorAnswers], k: int) -> frozenset[int]:
    """The brokers that say, at either probe, that they coordinate this partition or are about to."""
    claims = (*_CLAIMS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return frozenset(
        answer.broker_id
        for answer in by_broker.values()
        if answer.before.get(k) in claims or answer.after.get(k) in claims
    )


def _uncovered(
    by_broker: Mapping[int, CoordinatorAnswers],
    before: Agreement,
    after: Agreement,
    k: int,
    claimants: frozenset[int],
) -> ScanError | None:
    """Why obligation V does not hold for this `__transaction_state` partition, or None when it does."""
    try:
        leader = before.partition(TRANSACTION_STATE_TOPIC, k)
        still = after.partition(TRANSACTION_STATE_TOPIC, k)
    except Unagreed as unagreed:
        return _error(k, str(unagreed))
    if leader != still:
        return _error(k, f"{TRANSACTION_STATE_TOPIC}-{k} moved while the coordinators were asked", leader)
    answer = by_broker.get(leader.leader)
    if answer is None:
        return _error(k, f"broker {leader.leader} was not asked", leader)
    if answer.error is not None:
        return _error(k, answer.error, leader)
    for code in (answer.before.get(k), answer.after.get(k)):
        if code not in _CLAIMS:
            said = error_name(code) if code is not None else "nothing"
            error = f"broker {leader.leader} answered {said} for {TRANSACTION_STATE_TOPIC}-{k}"
            return _error(k, _with_remedy(error, code, answer), leader)
    others = claimants - {leader.leader}
    if others:
        return _error(k, f"broker {min(others)} claims {TRANSACTION_STATE_TOPIC}-{k} as well", leader)
    return None


def _refused(by_broker: Mapping[int, CoordinatorAnswers], before: Agreement, k: int) -> bool:
    """Whether this partition is uncovered because its leader refused to describe the random id, and gave a listing."""
    try:
        answer = by_broker.get(before.partition(TRANSACTION_STATE_TOPIC, k).leader)
    except Unagreed:
        return False
    return answer is not None and answer.error is None and _REFUSED in (answer.before.get(k), answer.after.get(k))


def _error(k: int, error: str, leader: Partition | None = None) -> ScanError:
    broker = leader.leader if leader is not None else None
    return ScanError("snapshot", error, broker, TRANSACTION_STATE_TOPIC, k)


def _views(
    answer: CoordinatorAnswers,
    open_producer_ids: frozenset[int],
    partition_count: int,
    uncovered: Mapping[int, ScanError],
    split_errors: Mapping[int, str],
) -> Iterable[CoordinatorView]:
    """What this broker says of each listed id whose producer id is open somewhere.

    An id that it no longer knows a moment after listing it has expired: it is absent. One that took a new producer id
    is shown under the new one.
    """
    for name, listing in (answer.listed or {}).items():
        if listing.producer_id not in open_producer_ids:
            continue
        described = answer.described.get(name)
        if described is not None and described.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            continue
        k = coordinator_partition(name, partition_count)
        error = uncovered.get(k)
        listed = CoordinatorView(
            transactional_id=name,
            broker_id=answer.broker_id,
            producer_id=listing.producer_id,
            coverage_error=error.error if error is not None else None,
            split_error=split_errors.get(k),
        )
        describe_error = _describe_error(answer, described)
        if described is None or describe_error is not None:
            yield replace(listed, describe_error=describe_error)
        else:
            yield replace(
                listed,
                producer_id=described.producer_id,
                producer_epoch=described.producer_epoch,
                state=described.state,
                timeout_ms=described.timeout_ms,
                start_time_ms=described.start_time_ms,
                partitions=described.partitions,
            )


def _describe_error(answer: CoordinatorAnswers, described: DescribedTransaction | None) -> str | None:
    """Why this is not all that the broker knows of the id, or None when it is."""
    if described is None:
        return answer.error or f"broker {answer.broker_id} left the id out of its answer"
    if described.error is not None:
        return _with_remedy(f"broker {answer.broker_id} answered {described.error}", described.error_code, answer)
    return answer.hidden_topic


def _with_remedy(error: str, code: int | None, answer: CoordinatorAnswers) -> str:
    """The error, and where it is a refusal, what the same broker's other answers say of it."""
    return ": ".join((error, *answer.hidden[:1])) if code == _REFUSED else error


def _visibility_error(by_broker: Mapping[int, CoordinatorAnswers]) -> str | None:
    """Why obligation A does not hold, or None. A broker without a listing hides nothing: it covers nothing."""
    told = (sentence for _, a in sorted(by_broker.items()) if a.listed is not None for sentence in a.hidden)
    return "; ".join(dict.fromkeys(told)) or None


def _broker_errors(by_broker: Mapping[int, CoordinatorAnswers]) -> tuple[ScanError, ...]:
    failed = (answer for _, answer in sorted(by_broker.items()))
    return tuple(ScanError("snapshot", a.error, a.broker_id) for a in failed if a.error is not None)


def _count_ids(by_broker: Mapping[int, CoordinatorAnswers]) -> int:
    return len({name for answer in by_broker.values() for name in answer.listed or {}})
