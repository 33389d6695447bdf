"""Read the position of a consumer group, a share group or a streaming query, and the transactions that block it.

Offsets that a group's coordinator withholds are asked for again after the sweep: applications with exactly-once get
that answer all the time, for a moment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from txnscan.coordinators.cluster import Cluster
from txnscan.coordinators.locate import coordinator_of
from txnscan.explain.cluster_reads import (
    PARTITIONS_READ_MAX,
    Asking,
    led,
    names_of,
    no_offsets_of,
    offsets_at,
    partition_facts,
    sweep_of,
    why_unseen,
)
from txnscan.explain.facts import Facts, PartitionFacts, PendingOffsets
from txnscan.kafka.failure import NO_LEADER, Failure, FailureCode
from txnscan.kafka.protocol.share_group_offsets import share_group_partitions
from txnscan.kafka.topology import CONSUMER_OFFSETS_TOPIC, ClusterView, Key
from txnscan.sweeps.checkpoints import read_positions
from txnscan.sweeps.names import absent_group
from txnscan.waiting.ahead import ahead
from txnscan.waiting.groups import SHARE, group_offsets, listed_group, share_level
from txnscan.waiting.impact import BlockReason
from txnscan.waiting.pending_offsets import pending_offsets

# How often offsets are asked for that live transactions withhold in turns.
_TRIES = 3
_NAMED_MAX = 5
# A committed offset from which nothing is to be read.
_NOT_READ = 2**63 - 1


def ask_group(asking: Asking, facts: Facts) -> Facts:
    """A group: its committed offsets, its offsets in open transactions, and the open transactions on its partitions."""
    group, cluster = facts.symptom.group or "", asking.cluster
    asking.progress("ask the group", 0, 1)
    coordinator = coordinator_of("group", group, cluster.newest_leaders([CONSUMER_OFFSETS_TOPIC]))
    if coordinator.failure is not None or coordinator.broker is None or coordinator.partition is None:
        why = coordinator.failure or NO_LEADER
        return replace(facts, failures=(*facts.failures, why.within(f"the coordinator of group '{group}'")))
    broker_id = coordinator.broker.broker_id
    listed = listed_group(cluster.send, broker_id, group)
    facts = replace(facts, coordinator=broker_id, group_state=listed.state if listed is not None else None)
    if listed is not None and listed.protocol_type == SHARE:
        return _ask_share(asking, facts, broker_id, group)
    committed = group_offsets(cluster.send, broker_id, group, None, require_stable=False)
    if committed.failure is not None:
        return replace(facts, failures=(*facts.failures, committed.failure))
    log = (CONSUMER_OFFSETS_TOPIC, coordinator.partition)
    withheld, unknown = _withheld(asking, log, broker_id, group)
    facts = replace(facts, pending=withheld)
    partitions, sweep_id = _stands(asking, committed.committed)
    failures = [*facts.failures, *([unknown] if unknown is not None else [])]
    if not committed.committed and not facts.pending:
        if listed is None:
            failures.append(why_unseen(asking, absent_group(cluster, group)))
        else:
            nothing = f"group '{group}' has committed no offset that this principal may see"
            failures.append(Failure(nothing, FailureCode.NOT_ASKED))
    else:
        failures += _hidden_offsets(cluster, broker_id)
    return replace(facts, partitions=partitions, failures=tuple(failures), sweep_id=sweep_id, asked=len(partitions))


def _hidden_offsets(cluster: Cluster, coordinator: int) -> list[Failure]:
    """Why offsets of a group may be invisible. Coordinators leave out the topics that this principal may not describe,
    and a transaction may block the group there.
    """
    hidden = cluster.hidden_topics(coordinator)
    return [] if hidden is None else [hidden]


def _ask_share(asking: Asking, facts: Facts, broker_id: int, group: str) -> Facts:
    """A share group: its isolation level, and the open transactions on its partitions."""
    level = share_level(asking.cluster.send, broker_id, group)
    offsets = share_group_partitions(asking.cluster.send, broker_id, group)
    stands, sweep_id = _stands(asking, dict.fromkeys(offsets.keys, _NOT_READ))
    failures = [one for one in (level, offsets.failure) if isinstance(one, Failure)]
    failures += _hidden_offsets(asking.cluster, broker_id)
    if not offsets.keys and not failures:
        nothing = f"share group '{group}' has no partition that this principal may see"
        failures.append(Failure(nothing, FailureCode.NOT_ASKED))
    # The start offset is not where the group stands: it is behind records that are acknowledged already.
    partitions = tuple(replace(one, committed=None) for one in stands)
    return replace(
        facts,
        is_share=True,
        isolation_level=level if isinstance(level, str) else None,
        partitions=partitions,
        failures=(*facts.failures, *failures),
        sweep_id=sweep_id,
        asked=len(partitions),
    )


def ask_query(asking: Asking, facts: Facts) -> Facts:
    """A streaming query, by its checkpoint. If several sources read a partition, the one further back counts."""
    asking.progress("read checkpoints", 0, 1)
    positions = read_positions([facts.symptom.checkpoint or ""], None)
    if positions.failures:
        return replace(facts, failures=(*facts.failures, *positions.failures))
    (query,) = positions.queries
    partitions, sweep_id = _stands(asking, {key: offsets[0] for key, offsets in query.batch.offsets.items()})
    return replace(facts, partitions=partitions, sweep_id=sweep_id, asked=len(partitions))


def _pending(
    asking: Asking, log: Key, broker_id: int, group: str, withheld: Collection[Key]
) -> tuple[tuple[PendingOffsets, ...], Collection[Key]]:
    """The pending offsets of the group in a partition of `__consumer_offsets`, before and after a sweep of it; and the
    partitions whose offsets are withheld without a transaction that explains it.

    withheld: the partitions whose offsets the coordinator withholds. The offsets of a first commit are withheld only if
    the request has their names. The transaction itself has these names.
    """
    before = offsets_at(asking, [log])[0].get(log)
    is_open = before is None or before.last_stable_offset < before.high_watermark
    if not is_open and not withheld:
        return (), ()
    swept = sweep_of(asking, [log]) if before is not None else None
    where = partition_facts(log, swept, before, offsets_at(asking, [log])[0].get(log))
    holders = [(one, pending_offsets(asking.cluster.send, one.observation)) for one in where.still_open]
    named = {key for _, has in holders for key in has.groups.get(group, ())}
    wanted = named.union(withheld)
    if not wanted:
        return (), ()
    still = group_offsets(asking.cluster.send, broker_id, group, sorted(wanted), require_stable=True)
    if still.failure is not None:
        return (), wanted
    found = []
    for holder, has in holders:
        reason, keys = has.withheld(group, still)
        if reason is BlockReason.UNSTABLE:
            found.append(PendingOffsets(group, names_of(keys), where, holder))
    rest = (still.unstable - named).intersection(withheld)
    unread = next((has.failure for _, has in holders if has.failure is not None), where.failure)
    if rest and (unread is not None or _is_closed(asking, log, where)):
        found.append(PendingOffsets(group, names_of(rest), where, None, unread))
    return tuple(found), rest


def _is_closed(asking: Asking, log: Key, where: PartitionFacts) -> bool:
    """Whether this partition had no open transaction during that time: no transaction was open before, and its end did
    not move.
    """
    now = offsets_at(asking, [log])[0].get(log)
    closed = where.high_watermark == where.last_stable_offset == where.lso_before
    return closed and now is not None and now.high_watermark == now.last_stable_offset == where.last_stable_offset


def _withheld(
    asking: Asking, log: Key, broker_id: int, group: str
) -> tuple[tuple[PendingOffsets, ...], Failure | None]:
    """The pending offsets of the group; or, if they are not known, the reason. Offsets that move on from one live
    transaction to the next are asked for again.
    """
    for _ in range(_TRIES):
        withheld = group_offsets(asking.cluster.send, broker_id, group, None, require_stable=True)
        if withheld.failure is not None:
            return (), withheld.failure
        found, rest = _pending(asking, log, broker_id, group, withheld.unstable)
        if found or not rest:
            return found, None
    names = ", ".join(names_of(rest)[:_NAMED_MAX])
    unseen = f"the offsets of {names} are in a transaction (UNSTABLE_OFFSET_COMMIT) that was not seen"
    return (), Failure(unseen, FailureCode.ENDED_MEANWHILE)


def _stands(asking: Asking, committed: Mapping[Key, int]) -> tuple[tuple[PartitionFacts, ...], str | None]:
    """The partitions with offsets of a group, with their open transactions and its next records; and the id of the
    sweep, if anything is open there.
    """
    before, view = offsets_at(asking, committed)
    still_open = [key for key, row in before.items() if row.last_stable_offset < row.high_watermark]
    swept = sweep_of(asking, still_open)
    after = offsets_at(asking, still_open)[0] if still_open else {}
    found = [
        replace(
            partition_facts(key, swept, before.get(key), after.get(key, before.get(key)), no_offsets_of(view, key)),
            committed=offset,
        )
        for key, offset in sorted(committed.items())
    ]
    found.sort(key=lambda one: -(one.lag or 0))
    asking.progress("read what is next", 0, 1)
    read = asking.cluster.in_parallel(lambda one: _with_ahead(asking, view, one), found[:PARTITIONS_READ_MAX])
    every = (*read, *(_unread(one) for one in found[PARTITIONS_READ_MAX:]))
    return every, swept.sweep_id if swept is not None else None


def _unread(one: PartitionFacts) -> PartitionFacts:
    if one.failure is not None or not one.lag:
        return one
    return replace(
        one, failure=Failure(f"{PARTITIONS_READ_MAX} partitions with more lag were read", FailureCode.NOT_ASKED)
    )


def _with_ahead(asking: Asking, view: ClusterView, one: PartitionFacts) -> PartitionFacts:
    """The partition with the next records of the group."""
    partition, lso = led(view, (one.topic, one.partition)), one.last_stable_offset
    if partition is None or lso is None or one.committed is None or not one.lag or one.committed >= lso:
        return one
    return replace(one, ahead=ahead(asking.cluster.send, partition, one.committed, lso))
