"""Find what transactions block: groups, and the cleaning of their topics. Pure except for `send`.

No proof depends on this. It sends requests only if a transaction hangs, or if a live one has been open for long
(`blocking.py`). Failed reads are reported with the results, and change no verdict. Limits keep the requests few, and
hanging transactions come first.

On `__consumer_offsets` the transaction itself lists groups and partitions (`pending_offsets.py`), and the coordinator
confirms them: with requireStable it answers UNSTABLE_OFFSET_COMMIT. That answer alone does not identify the
transaction, because exactly-once applications often get it for a moment.

On `__share_group_state` the transaction has acknowledgements of share groups (KIP-1289, a draft). Their records are not
decoded, so share groups may wait, and their names are not known.

On any other topic a group counts as blocked if its committed offset is the last stable offset. A group further back is
blocked if a read_committed consumer gets no record before the last stable offset (`delivered.py`). The group's
isolation level is not visible: a read_uncommitted group that stopped exactly there looks the same. Lag is measured to
the high watermark. A read_committed client measures it up to the last stable offset, and sees no lag.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from txnscan.impact.cause import cause_of
from txnscan.impact.delivered import NO_LSO, NOT_FIRST, Starved, not_read, read_behind
from txnscan.impact.impact import BlockedGroup, BlockReason, CarriedImpact, Impact
from txnscan.impact.owner import NO_OWNERS, Owner, live_owner_of, owner_of
from txnscan.impact.pending_offsets import PendingOffsets, pending_offsets
from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.failure import Failure, FailureCode, Permission
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.protocol.describe_configs import READ_UNCOMMITTED, Cleaning, share_isolation_levels, topic_cleaning
from txnscan.kafka.protocol.list_groups import ListedGroup, list_groups
from txnscan.kafka.protocol.offset_fetch import GroupOffsets, offset_fetch
from txnscan.kafka.security.acls import DESCRIBE_ALL_GROUPS, needing
from txnscan.kafka.topology import CONSUMER_OFFSETS_TOPIC, GROUP_TOPICS, SHARE_GROUP_STATE_TOPIC, Key
from txnscan.kafka.units import plural
from txnscan.reads.observation import Observation, TransactionKey
from txnscan.txnlog.facts import LoggedTransaction
from txnscan.verdict.evidence import Judged, Verdict

Item = TypeVar("Item")
Result = TypeVar("Result")

# The limit of groups to ask about per broker. Groups with members come first.
GROUPS_MAX = 1_000
# The limit of groups to keep per transaction. Groups with the greatest lag come first.
GROUPS_KEPT_MAX = 100
# The limit of partitions to ask groups about. Partitions with hanging transactions come first, and of these the
# partitions with the most blocked records.
PARTITIONS_MAX = 100
# The limit of partitions with live transactions to ask groups about. Each sweep may ask about them, so it is lower.
LIVE_PARTITIONS_MAX = 50
# The limit of live transactions on `__consumer_offsets` to ask about: a broker returns up to 4 MB for each.
LIVE_ON_OFFSETS_MAX = 10
_PARTITIONS_NAMED_MAX = 10
_REASONS_MAX = 5
_CONNECT = "connect"
_CONSUMERS = ("", "consumer", "streams")
# Groups of KIP-932. They have no committed offsets. If share.isolation.level is read_committed, the last stable offset
# stops them.
_SHARE = "share"
_NO_MEMBERS = ("Empty", "Dead")
_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED.name


class InParallel(Protocol):
    """Calls the function on each item, possibly in parallel, and returns the results in order."""

    def __call__(self, call: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]: ...


@dataclass(frozen=True, slots=True)
class Blocked:
    """The first of the groups that a transaction blocks, or may block, and their number. asked: the number of groups
    that were asked about. unknown: why there may be more.
    """

    groups: tuple[BlockedGroup, ...] = ()
    count: int = 0
    asked: int = 0
    unknown: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True)
class Blockage:
    """The blocked groups by transaction, and the cleaning by topic. connect_groups: the listed groups of Kafka
    Connect's workers. unknown: why groups may be missing, with the reasons of a transaction together. cleaning_failure:
    why the cleaning of a topic is not known.
    """

    groups: Mapping[TransactionKey, Blocked]
    cleaning: Mapping[str, Cleaning]
    connect_groups: frozenset[str]
    unknown: tuple[tuple[Failure, ...], ...] = ()
    cleaning_failure: Failure | None = None

    def warnings(self, format_failure: Callable[[Failure], str]) -> tuple[str, ...]:
        """The failed reads, as sentences. format_failure: puts a failure into words."""
        reasons = joined_reasons(_said(failures, format_failure) for failures in self.unknown)
        warnings = [f"groups that wait for a transaction may be missing: {reasons}"] if reasons else []
        if self.cleaning_failure is not None:
            said = format_failure(self.cleaning_failure)
            warnings.append(f"the effect on compaction and retention is not known for every topic: {said}")
        return tuple(warnings)


@dataclass(slots=True)
class _Answers:
    """One broker's answers about its groups. errors: why groups are missing, without duplicates. of_offsets: the groups
    that each transaction on a partition of `__consumer_offsets` blocks, if this broker leads the partition.
    """

    listed: tuple[ListedGroup, ...] = ()
    committed: dict[str, GroupOffsets] = field(default_factory=dict)
    errors: dict[Failure, None] = field(default_factory=dict)
    of_offsets: dict[TransactionKey, Blocked] = field(default_factory=dict)


def read_blockage(
    send: Send,
    in_parallel: InParallel,
    hanging: Sequence[Judged],
    broker_ids: Sequence[int],
    offsets_partitions: int,
    *,
    random_token: Callable[[], str],
    live: Sequence[Judged] = (),
) -> Blockage:
    """The groups and topics that these hanging and live transactions block.

    offsets_partitions: the partition count of `__consumer_offsets`. random_token: makes a name that no group has, to
    test whether groups may be invisible. live: the first of them are asked about if not all can be.
    """
    every = [*hanging, *live]
    topics = sorted({judged.observation.topic for judged in every})
    cleaning, cleaning_failure = _cleaning(send, broker_ids, topics)
    live_on_offsets = _on_offsets(live)
    of_offsets = [j.observation for j in (*_on_offsets(hanging), *live_on_offsets[:LIVE_ON_OFFSETS_MAX])]
    of_shares = [j.observation for j in hanging if j.observation.topic == SHARE_GROUP_STATE_TOPIC]
    of_hanging, of_live = _waited_for(hanging), _waited_for(live)
    hanging_keys, live_keys = _keys(of_hanging), _keys(of_live)
    asked_keys = list(dict.fromkeys((*hanging_keys, *live_keys[:LIVE_PARTITIONS_MAX])))[:PARTITIONS_MAX]
    hidden = hidden_groups(send, broker_ids, random_token())

    def ask(broker_id: int) -> _Answers:
        here = [o for o in of_offsets if o.leader == broker_id]
        return _ask_broker(send, broker_id, asked_keys, here, offsets_partitions)

    # The leader of a partition of __consumer_offsets coordinates the groups of that partition. Any broker may
    # coordinate the groups that read other topics.
    brokers = sorted(broker_ids) if asked_keys else sorted({o.leader for o in of_offsets})
    answers = dict(zip(brokers, in_parallel(ask, brokers), strict=True))
    of_all = [*([hidden] if hidden else []), *(error for one in answers.values() for error in one.errors)]
    committed = _committed(answers.values())
    holders = [j.observation for j in (*of_hanging, *of_live) if j.observation.key in asked_keys]

    def read(o: Observation) -> Starved:
        return read_behind(send, o, (offset for _, offset in committed.get(o.key, ())))

    starving = dict(zip((o.transaction_key for o in holders), in_parallel(read, holders), strict=True))
    asked = sum(one.failure is None for answer in answers.values() for one in answer.committed.values())
    asked_offsets = {o.transaction_key for o in of_offsets}
    found: dict[TransactionKey, Blocked] = {}
    for judged in every:
        o, key = judged.observation, judged.observation.key
        if o.transaction_key in asked_offsets and o.leader in answers:
            found[o.transaction_key] = answers[o.leader].of_offsets[o.transaction_key]
        elif o.topic == SHARE_GROUP_STATE_TOPIC:
            found[o.transaction_key] = Blocked(unknown=(_SHARES_MAY_WAIT,))
        elif key in asked_keys and judged.holds_lso:
            behind = starving[o.transaction_key]
            found[o.transaction_key] = _of_partition(committed.get(key, ()), asked, o, of_all, behind)
        else:
            found[o.transaction_key] = Blocked(unknown=(_why_not_asked(judged),))
    of_one = [one.unknown for answer in answers.values() for one in answer.of_offsets.values() if one.unknown]
    of_one += [(_SHARES_MAY_WAIT.within(o.topic_partition),) for o in of_shares]
    of_one += [(not_read(o, failed),) for o in holders if (failed := starving[o.transaction_key].failure) is not None]
    cut = [
        *_cut(sum(key not in asked_keys for key in hanging_keys), "partition", "with a hanging transaction"),
        *_cut(sum(key not in asked_keys for key in live_keys), "partition", "with a live transaction"),
        *_cut(len(live_on_offsets) - LIVE_ON_OFFSETS_MAX, "live transaction", f"on {CONSUMER_OFFSETS_TOPIC}"),
    ]
    unknown = (*((failure,) for failure in of_all), *of_one, *((failure,) for failure in cut))
    connect = frozenset(g.group for a in answers.values() for g in a.listed if g.protocol_type == _CONNECT)
    return Blockage(found, cleaning, connect, unknown, cleaning_failure)


def impact_of(
    judged: Judged,
    blockage: Blockage,
    logged: Sequence[LoggedTransaction],
    carried: CarriedImpact | None,
    topics: Collection[str],
    own: Mapping[str, str] = NO_OWNERS,
) -> Impact:
    """The impact of one hanging transaction.

    logged: the records that `__transaction_state` still has of the ids that ever had its producer id; empty if they
    were not read. carried: the impact that earlier sweeps passed on. topics: the names of the cluster's topics.
    own: by id, the owner by the user's own patterns.
    """
    cause, reason = cause_of(judged, logged, (carried.cause, carried.cause_reason) if carried is not None else None)
    owner = owner_of(
        judged,
        logged,
        blockage.connect_groups,
        topics,
        earlier_id=carried.owner_id if carried is not None else None,
        own=own,
    )
    unmoved = carried is not None and carried.last_stable_offset == judged.observation.second.last_stable_offset
    since_ms = carried.lso_since_ms if carried is not None and unmoved else None
    return replace(_blocked(judged, blockage, owner), cause=cause, cause_reason=reason, lso_since_ms=since_ms)


def live_impact_of(
    judged: Judged,
    blockage: Blockage,
    topics: Collection[str],
    own: Mapping[str, str] = NO_OWNERS,
) -> Impact:
    """The impact of one live transaction. topics, own: see `impact_of`."""
    return _blocked(judged, blockage, live_owner_of(judged, blockage.connect_groups, topics, own))


def _blocked(judged: Judged, blockage: Blockage, owner: Owner) -> Impact:
    """The impact without a cause."""
    o = judged.observation
    blocked = blockage.groups.get(o.transaction_key, Blocked())
    cleaning = blockage.cleaning.get(o.topic, Cleaning())
    deleted = "delete" in (cleaning.cleanup_policy or "").split(",") and not cleaning.tiered
    return Impact(
        cause=None,
        cause_reason=None,
        owner=owner,
        groups=blocked.groups,
        groups_blocked=blocked.count if not blocked.unknown else None,
        groups_asked=blocked.asked,
        groups_error=_said(blocked.unknown, str) or None,
        cleanup_policy=cleaning.cleanup_policy,
        retention_ms=cleaning.retention_ms if deleted else None,
    )


_SHARES_MAY_WAIT = Failure("share groups may wait, and their names are not known", FailureCode.NOT_ASKED)


def _why_not_asked(judged: Judged) -> Failure:
    limit = f"only {PARTITIONS_MAX} partitions"
    if judged.observation.topic == CONSUMER_OFFSETS_TOPIC:
        limit = f"at most {LIVE_ON_OFFSETS_MAX} live transactions on {CONSUMER_OFFSETS_TOPIC}"
    elif judged.holds_lso is None:
        return NO_LSO
    elif not judged.holds_lso:
        return NOT_FIRST
    elif judged.judgement.verdict is not Verdict.HANGING:
        limit = f"at most {LIVE_PARTITIONS_MAX} partitions with live transactions"
    return Failure(f"groups were asked about {limit}", FailureCode.NOT_ASKED)


def _cut(more: int, what: str, which: str) -> list[Failure]:
    cut = f"no group was asked about {plural(more, f'more {what}')} {which}"
    return [Failure(cut, FailureCode.NOT_ASKED)] if more > 0 else []


def _on_offsets(transactions: Iterable[Judged]) -> list[Judged]:
    return [judged for judged in transactions if judged.observation.topic == CONSUMER_OFFSETS_TOPIC]


def _waited_for(transactions: Iterable[Judged]) -> list[Judged]:
    """Those that hold a last stable offset that consumers wait for, with the most blocked records first."""
    found = [j for j in transactions if j.observation.topic not in GROUP_TOPICS and j.holds_lso]
    return sorted(found, key=lambda judged: -(judged.blocked_records or 0))


def _keys(transactions: Iterable[Judged]) -> list[Key]:
    return list(dict.fromkeys(one.observation.key for one in transactions))


# --- requests ---------------------------------------------------------------------------------------------------------


def hidden_groups(send: Send, broker_ids: Iterable[int], nobody: str) -> Failure | None:
    """Why groups may be invisible to this principal, if they may be. The test asks for a group that does not exist
    (`nobody`). Brokers refuse it unless the principal may describe all groups.
    """
    for broker_id in broker_ids:
        try:
            answer = offset_fetch(send, broker_id, {nobody: ()}, require_stable=False)[nobody]
        except RequestFailed:
            continue
        if answer.failure is not None and answer.failure.code == _REFUSED:
            return Failure("", _REFUSED, needs=DESCRIBE_ALL_GROUPS)
        return None
    return None


def _ask_broker(
    send: Send, broker_id: int, keys: Sequence[Key], of_offsets: Sequence[Observation], offsets_partitions: int
) -> _Answers:
    answers = _Answers()
    try:
        answers.listed = list_groups(send, broker_id)
    except RequestFailed as failed:
        answers.errors[failed.failure] = None
    consumers = [group for group in answers.listed if group.protocol_type in _CONSUMERS]
    consumers.sort(key=lambda group: (group.state in _NO_MEMBERS, group.group))
    if keys:
        shares = [group.group for group in answers.listed if group.protocol_type == _SHARE]
        answers.errors |= dict.fromkeys(_not_judged(send, broker_id, shares))
        if len(consumers) > GROUPS_MAX:
            cut = f"only {GROUPS_MAX:,} of {len(consumers):,} groups on broker {broker_id} were asked about"
            answers.errors[Failure(cut, FailureCode.NOT_ASKED)] = None
        wanted = {group.group: keys for group in consumers[:GROUPS_MAX]}
        answers.committed, why = _fetched(send, broker_id, wanted, require_stable=False)
        answers.errors |= dict.fromkeys(why)
    for o in of_offsets:
        answers.of_offsets[o.transaction_key] = _ask_unstable(send, broker_id, o, consumers, offsets_partitions)
    return answers


def _not_judged(send: Send, broker_id: int, shares: Sequence[str]) -> list[Failure]:
    """Why it is not known whether these share groups wait. Share groups with `read_uncommitted`, the default, wait for
    no transaction.
    """
    if not shares:
        return []
    try:
        levels = share_isolation_levels(send, broker_id, shares)
    except RequestFailed as failed:
        return [failed.failure.within(f"{plural(len(shares), 'share group')} on broker {broker_id}")]
    waiting = sum(isinstance(level, str) and level != READ_UNCOMMITTED for level in levels.values())
    need = Permission("DescribeConfigs", "Group")
    hidden = Counter(needing(level, need) for level in levels.values() if isinstance(level, Failure))
    unjudged = f"{plural(waiting, 'share group')} on broker {broker_id} cannot be judged"
    cut = [Failure(unjudged, FailureCode.NOT_ASKED)] if waiting else []
    return [*cut, *(one.within(f"{plural(n, 'share group')} on broker {broker_id}") for one, n in hidden.items())]


def _fetched(
    send: Send, broker_id: int, wanted: Mapping[str, Sequence[Key] | None], *, require_stable: bool
) -> tuple[dict[str, GroupOffsets], list[Failure]]:
    """The offsets of these groups, and the failures: each reason with the number of its groups."""
    try:
        found = offset_fetch(send, broker_id, wanted, require_stable=require_stable)
    except RequestFailed as failed:
        old = f"broker {broker_id} is older than Kafka 3.0, and is not asked for the offsets of its groups"
        lacks_api = failed.failure.lacks_api is not None
        return {}, [replace(failed.failure, error=old) if lacks_api else failed.failure]
    failures = Counter(one.failure for one in found.values() if one.failure is not None)
    return found, [one.within(f"{plural(count, 'group')} on broker {broker_id}") for one, count in failures.items()]


def _ask_unstable(
    send: Send, broker_id: int, o: Observation, consumers: Sequence[ListedGroup], offsets_partitions: int
) -> Blocked:
    """The groups whose offsets are in this transaction. If the transaction could not be read to its end, also all
    groups of that partition with unstable offsets.
    """
    pending = pending_offsets(send, o)
    states = {group.group: group.state for group in consumers}
    named = {name: sorted(pending.groups[name]) for name in sorted(pending.groups)[:GROUPS_MAX]}
    confirmed, why = _fetched(send, broker_id, named, require_stable=True)
    blocked = []
    for name, keys in named.items():
        answer = confirmed.get(name)
        if answer is None or answer.failure is not None:
            blocked.append(_unstable(name, BlockReason.MAYBE_UNSTABLE, states, keys))
        elif held := answer.unstable.intersection(keys):
            blocked.append(_unstable(name, BlockReason.UNSTABLE, states, held))
    others = _others(pending, consumers, offsets_partitions, o.partition)
    maybe, why_others = _fetched(send, broker_id, dict.fromkeys(others), require_stable=True)
    blocked += [
        _unstable(name, BlockReason.MAYBE_UNSTABLE, states, one.unstable) for name, one in maybe.items() if one.unstable
    ]
    unread = [pending.failure.within(o.topic_partition)] if pending.failure is not None else []
    return _kept(blocked, len(named) + len(others), dict.fromkeys([*unread, *why, *why_others]))


def _others(
    pending: PendingOffsets, consumers: Sequence[ListedGroup], offsets_partitions: int, partition: int
) -> list[str]:
    if pending.failure is None or not offsets_partitions:
        return []
    here = (g.group for g in consumers if coordinator_partition(g.group, offsets_partitions) == partition)
    return [name for name in here if name not in pending.groups][:GROUPS_MAX]


def _unstable(name: str, reason: BlockReason, states: Mapping[str, str | None], keys: Iterable[Key]) -> BlockedGroup:
    partitions = tuple(f"{topic}-{index}" for topic, index in sorted(keys)[:_PARTITIONS_NAMED_MAX])
    return BlockedGroup(name, reason, states.get(name), partitions=partitions)


def _cleaning(
    send: Send, broker_ids: Iterable[int], topics: Sequence[str]
) -> tuple[dict[str, Cleaning], Failure | None]:
    """The cleaning of these topics, by the first broker that answers, and why it is not known for a topic."""
    failure = None
    for broker_id in broker_ids:
        try:
            found = topic_cleaning(send, broker_id, topics)
        except RequestFailed as failed:
            failure = failed.failure
            continue
        for topic, one in found.items():
            if one.failure is not None:
                return found, needing(one.failure, Permission("DescribeConfigs", "Topic")).within(topic)
        return found, None
    return {}, failure


# --- blocked groups ---------------------------------------------------------------------------------------------------


def _committed(answers: Iterable[_Answers]) -> Mapping[Key, Sequence[tuple[ListedGroup, int]]]:
    """The groups that have an offset on each partition, and the offset."""
    found: dict[Key, list[tuple[ListedGroup, int]]] = defaultdict(list)
    for broker in answers:
        for group in broker.listed:
            offsets = broker.committed.get(group.group)
            for key, offset in offsets.committed.items() if offsets is not None else ():
                found[key].append((group, offset))
    return found


def _of_partition(
    committed: Iterable[tuple[ListedGroup, int]], asked: int, o: Observation, why: Iterable[Failure], behind: Starved
) -> Blocked:
    """The groups that have no record to read before the last stable offset. committed: the groups' offsets on the
    partition. asked: the number of groups that were asked about. behind: the result of the read for offsets further
    back.
    """
    lso, high_watermark = o.second.last_stable_offset, o.second.high_watermark
    if lso is None or high_watermark is None:
        return Blocked(unknown=(NO_LSO,))
    blocked = [
        BlockedGroup(group.group, BlockReason.AT_LSO, group.state, offset, max(high_watermark - offset, 0))
        for group, offset in committed
        if behind.waits(offset, lso)
    ]
    return _kept(blocked, asked, [*why, not_read(o, behind.failure)] if behind.failure is not None else why)


def _kept(blocked: list[BlockedGroup], asked: int, why: Iterable[Failure]) -> Blocked:
    """The groups with the greatest lag, and the number of all groups."""
    blocked.sort(key=lambda group: (-(group.lag or 0), group.group))
    return Blocked(tuple(blocked[:GROUPS_KEPT_MAX]), len(blocked), asked, tuple(why))


def _said(failures: Iterable[Failure], format_failure: Callable[[Failure], str]) -> str:
    return joined_reasons(map(format_failure, failures))


def joined_reasons(why: Iterable[str]) -> str:
    """The first reasons without duplicates, and the number of the other reasons."""
    every = list(dict.fromkeys(why))
    more = len(every) - _REASONS_MAX
    return "; ".join(every[:_REASONS_MAX]) + (f"; and {plural(more, 'more reason')}" if more > 0 else "")
