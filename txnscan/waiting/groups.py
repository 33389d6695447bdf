"""Reads the groups of brokers and their offsets. Pure except for `send`.

`relation.py` decides which groups wait. Limits keep the requests few, and what they leave out is a failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.protocol.describe_configs import READ_UNCOMMITTED, share_isolation_levels
from txnscan.kafka.protocol.list_groups import ListedGroup, list_groups
from txnscan.kafka.protocol.offset_fetch import GroupOffsets, offset_fetch
from txnscan.kafka.security.acls import needing
from txnscan.kafka.security.needs import CONFIGS_OF_GROUPS, DESCRIBE_GROUPS
from txnscan.kafka.topology import Key
from txnscan.kafka.units import plural
from txnscan.reads.observation import Observation, TransactionKey
from txnscan.waiting.impact import BlockedGroup, BlockReason
from txnscan.waiting.pending_offsets import pending_offsets
from txnscan.waiting.relation import Blocked, NotBlocked, Pair, kept, relation

# The limit of groups to ask about per broker. Groups with members come first.
GROUPS_MAX = 1_000
CONNECT = "connect"
_CONSUMERS = ("", "consumer", "streams")
# Groups of KIP-932.
SHARE = "share"
NO_MEMBERS = ("Empty", "Dead")
_PARTITIONS_NAMED_MAX = 10
_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED.name


@dataclass(slots=True)
class GroupAnswers:
    """One broker's answers about its groups. offsets: the committed ones. errors: why groups are missing, without
    duplicates. blocked: the groups that each transaction on a partition of `__consumer_offsets` blocks, if this broker
    leads the partition.
    """

    listed: tuple[ListedGroup, ...] = ()
    offsets: Mapping[str, GroupOffsets] = field(default_factory=dict)
    errors: dict[Failure, None] = field(default_factory=dict)
    blocked: dict[TransactionKey, Blocked[BlockedGroup]] = field(default_factory=dict)


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
            return Failure("", _REFUSED, needs=DESCRIBE_GROUPS.permission)
        return None
    return None


def hidden_share_levels(send: Send, broker_ids: Iterable[int], nobody: str) -> Failure | None:
    """Why the isolation levels of share groups may not be read, if they may not be. The test is that of
    `hidden_groups`.
    """
    for broker_id in broker_ids:
        try:
            answer = share_isolation_levels(send, broker_id, [nobody])[nobody]
        except RequestFailed:
            continue
        refused = isinstance(answer, Failure) and answer.code == _REFUSED
        return Failure("", _REFUSED, needs=CONFIGS_OF_GROUPS.permission) if refused else None
    return None


def names_of_groups(send: Send, broker_ids: Iterable[int]) -> tuple[list[str], Failure | None]:
    """The groups that these brokers list, and why a broker lists none, if one does not."""
    names: list[str] = []
    failure = None
    for broker_id in broker_ids:
        try:
            names += (one.group for one in list_groups(send, broker_id))
        except RequestFailed as failed:
            failure = failed.failure
    return names, failure


def listed_group(send: Send, broker_id: int, group: str) -> ListedGroup | None:
    """The group, None if its coordinator does not list it."""
    try:
        listed = list_groups(send, broker_id)
    except RequestFailed:
        return None
    return next((one for one in listed if one.group == group), None)


def groups_at(send: Send, broker_id: int, partitions: Collection[int], count: int) -> dict[int, tuple[str, ...]]:
    """The groups of these partitions of `__consumer_offsets`, which has `count`, as the broker that leads them lists
    them. Empty if it does not answer.
    """
    try:
        listed = list_groups(send, broker_id)
    except RequestFailed:
        return {}
    found: dict[int, list[str]] = {}
    for one in listed:
        index = coordinator_partition(one.group, count)
        if index in partitions:
            found.setdefault(index, []).append(one.group)
    return {index: tuple(names) for index, names in found.items()}


def group_offsets(
    send: Send, broker_id: int, group: str, keys: Collection[Key] | None, *, require_stable: bool
) -> GroupOffsets:
    """The offsets of the group on these partitions, or all its offsets for None. Never raises."""
    try:
        found = offset_fetch(send, broker_id, {group: keys}, require_stable=require_stable)[group]
    except RequestFailed as failed:
        found = GroupOffsets(failed.failure)
    if found.failure is None:
        return found
    needs = needing(found.failure, DESCRIBE_GROUPS.on(group))
    return GroupOffsets(needs.within(f"the offsets of group '{group}'"))


def ask_broker(
    send: Send, broker_id: int, keys: Sequence[Key], of_offsets: Sequence[Observation], offsets_partitions: int
) -> GroupAnswers:
    """What this broker answers about its groups: their offsets on these partitions, and their offsets in these
    transactions on `__consumer_offsets`, which has `offsets_partitions`. Never raises.
    """
    answers = GroupAnswers()
    try:
        answers.listed = list_groups(send, broker_id)
    except RequestFailed as failed:
        answers.errors[failed.failure] = None
    consumers = [group for group in answers.listed if group.protocol_type in _CONSUMERS]
    consumers.sort(key=lambda group: (group.state in NO_MEMBERS, group.group))
    if keys:
        shares = [group.group for group in answers.listed if group.protocol_type == SHARE]
        answers.errors |= dict.fromkeys(unjudged_shares(send, broker_id, shares))
        if len(consumers) > GROUPS_MAX:
            cut = f"only {GROUPS_MAX:,} of {len(consumers):,} groups on broker {broker_id} were asked about"
            answers.errors[Failure(cut, FailureCode.NOT_ASKED)] = None
        wanted = {group.group: keys for group in consumers[:GROUPS_MAX]}
        answers.offsets, why = _fetched(send, broker_id, wanted, require_stable=False)
        answers.errors |= dict.fromkeys(why)
    for o in of_offsets:
        answers.blocked[o.transaction_key] = _ask_withheld(send, broker_id, o, consumers, offsets_partitions)
    return answers


def unjudged_shares(send: Send, broker_id: int, shares: Sequence[str]) -> list[Failure]:
    """Why it is not known whether these share groups wait. Empty if they wait for no transaction."""
    if not shares:
        return []
    try:
        levels = share_isolation_levels(send, broker_id, shares)
    except RequestFailed as failed:
        return [failed.failure.within(f"{plural(len(shares), 'share group')} on broker {broker_id}")]
    known = (level for level in levels.values() if isinstance(level, str))
    answers = [relation(Pair(reads_uncommitted=level == READ_UNCOMMITTED)) for level in known]
    may_wait = len(answers) - answers.count(NotBlocked.UNCOMMITTED)
    hidden = Counter(
        needing(level, CONFIGS_OF_GROUPS.permission) for level in levels.values() if isinstance(level, Failure)
    )
    unjudged = f"{plural(may_wait, 'share group')} on broker {broker_id} cannot be judged"
    cut = [Failure(unjudged, FailureCode.NOT_ASKED)] if may_wait else []
    return [*cut, *(one.within(f"{plural(n, 'share group')} on broker {broker_id}") for one, n in hidden.items())]


def share_level(send: Send, broker_id: int, group: str) -> str | Failure:
    """`share.isolation.level` of this share group, or why it is not known. Never raises."""
    try:
        found = share_isolation_levels(send, broker_id, [group])[group]
    except RequestFailed as failed:
        found = failed.failure
    if isinstance(found, str):
        return found
    return needing(found, CONFIGS_OF_GROUPS.on(group)).within(f"the isolation level of '{group}'")


def _fetched(
    send: Send, broker_id: int, wanted: Mapping[str, Collection[Key] | None], *, require_stable: bool
) -> tuple[Mapping[str, GroupOffsets], list[Failure]]:
    """The offsets of these groups, and the failures: each reason with the number of its groups."""
    try:
        found = offset_fetch(send, broker_id, wanted, require_stable=require_stable)
    except RequestFailed as failed:
        old = f"broker {broker_id} is older than Kafka 3.0, and is not asked for the offsets of its groups"
        lacks_api = failed.failure.lacks_api is not None
        return {}, [replace(failed.failure, error=old) if lacks_api else failed.failure]
    failures = Counter(one.failure for one in found.values() if one.failure is not None)
    return found, [one.within(f"{plural(count, 'group')} on broker {broker_id}") for one, count in failures.items()]


def _ask_withheld(
    send: Send, broker_id: int, o: Observation, consumers: Sequence[ListedGroup], offsets_partitions: int
) -> Blocked[BlockedGroup]:
    """The groups whose offsets are in this transaction. If the transaction could not be read to its end, also all
    groups of that partition with unstable offsets.
    """
    inside = pending_offsets(send, o)
    named: dict[str, Collection[Key] | None] = {
        name: sorted(inside.groups[name]) for name in sorted(inside.groups)[:GROUPS_MAX]
    }
    others = []
    if inside.failure is not None and offsets_partitions:
        here = (g.group for g in consumers if coordinator_partition(g.group, offsets_partitions) == o.partition)
        others = [name for name in here if name not in inside.groups][:GROUPS_MAX]
    of_named, why = _fetched(send, broker_id, named, require_stable=True)
    of_others, why_others = _fetched(send, broker_id, dict.fromkeys(others), require_stable=True)
    states = {group.group: group.state for group in consumers}
    blocked = []
    for name in (*named, *others):
        reason, keys = inside.withheld(name, of_named.get(name) or of_others.get(name))
        if isinstance(reason, BlockReason):
            partitions = tuple(f"{topic}-{index}" for topic, index in sorted(keys)[:_PARTITIONS_NAMED_MAX])
            blocked.append(BlockedGroup(name, reason, states.get(name), partitions=partitions))
    unread = [inside.failure.within(o.topic_partition)] if inside.failure is not None else []
    return kept(blocked, [*unread, *why, *why_others], asked=len(named) + len(others))
