"""Reads the facts that a symptom needs, and no more. No request changes the cluster.

The order matters if a transaction is open: the offsets, a sweep of these partitions, the offsets again. A transaction
that the last stable offset has passed by then has ended, and is no cause. Offsets that a group's coordinator withholds
are asked for again after the sweep too: applications with exactly-once get that answer all the time, for a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from txnscan.config import LATE_BUFFER_MS, ConfigError, ScanConfig, printable
from txnscan.coordinators.cluster import Cluster
from txnscan.coordinators.locate import coordinator_of
from txnscan.coordinators.transactions import Transaction, describe, key_of, list_on, offsets_of
from txnscan.engine.threads import ThreadsEngine
from txnscan.explain import finding
from txnscan.explain.cleaning import SETTINGS, read_cleaning
from txnscan.explain.client_errors import ErrorKind
from txnscan.explain.facts import TIERED, Facts, PartitionFacts, PendingOffsets
from txnscan.explain.symptom import Symptom, SymptomKind
from txnscan.explain.writes import with_writes
from txnscan.kafka.answers import PREPARED, CoordinatorView, State
from txnscan.kafka.errors import ErrorCode, RequestFailed
from txnscan.kafka.failure import NO_LEADER, Failure, FailureCode, Unobserved
from txnscan.kafka.protocol.describe_configs import topic_settings
from txnscan.kafka.protocol.list_offsets import Offset, offset_of
from txnscan.kafka.protocol.list_transactions import ListingFilter
from txnscan.kafka.protocol.share_group_offsets import share_group_partitions
from txnscan.kafka.security.acls import needing
from txnscan.kafka.security.needs import CONFIGS_OF_TOPICS
from txnscan.kafka.topology import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, ClusterView, Key, Partition
from txnscan.reads.observation import TransactionKey
from txnscan.reads.rows import OffsetsRow
from txnscan.sweeps.checkpoints import read_positions
from txnscan.sweeps.disk import PARTITIONS_MAX as DISKS_MAX
from txnscan.sweeps.disk import Replicas, read_replica_sizes
from txnscan.sweeps.history import NoHistory
from txnscan.sweeps.names import Absent, absent_group, absent_id, absent_topic
from txnscan.sweeps.pipeline import scan
from txnscan.sweeps.result import Progress, Scan
from txnscan.sweeps.state import Run
from txnscan.txnlog.expired import dated
from txnscan.txnlog.timeline import timeline, to_read
from txnscan.verdict.evidence import Judged, Verdict
from txnscan.waiting.ahead import ahead, end_of_log
from txnscan.waiting.cause import Cause
from txnscan.waiting.cause import cause_of as hanging_cause_of
from txnscan.waiting.disk import disk_of
from txnscan.waiting.exposure import read_exposure, read_versions
from txnscan.waiting.groups import SHARE, group_offsets, listed_group, share_level
from txnscan.waiting.impact import BlockReason, is_compacted
from txnscan.waiting.in_sync import read_no_log, read_write_states
from txnscan.waiting.known_causes import ExposedTo, exposed, sentence
from txnscan.waiting.pending_offsets import pending_offsets
from txnscan.waiting.who_waits import read_topic_cleaning
from txnscan.waiting.writability import claim_of

# Partitions whose end is read: those with the greatest lag first.
PARTITIONS_READ_MAX = 100
# Compacted partitions of which the start of the log is read: the largest.
LOGS_READ_MAX = 5
# The settings that decide what a log keeps on its disk.
KEPT = (
    *("cleanup.policy", "retention.ms", "retention.bytes", TIERED),
    *("local.retention.ms", "local.retention.bytes"),
)
# How often offsets are asked for that live transactions withhold in turns.
_TRIES = 3
_NAMED_MAX = 5
# A committed offset from which nothing is to be read.
_NOT_READ = 2**63 - 1
_OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
_ABSENT = (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name)


@dataclass(frozen=True, slots=True)
class Asking:
    """The cluster and the settings of all questions. config: without topics. sweep_id: makes the id of a sweep."""

    cluster: Cluster
    config: ScanConfig
    now_ms: Callable[[], int]
    sleep: Callable[[float], None]
    sweep_id: Callable[[], str]
    progress: Progress


def ask(asking: Asking, symptom: Symptom) -> Facts:
    """The facts about a symptom. Raises ClusterUnreachable, and ConfigError for a topic that does not exist."""
    facts = _begun(asking, symptom)
    if symptom.error is not None and symptom.error.kind is ErrorKind.SETTING:
        return facts
    questions = {
        SymptomKind.GROUP: _ask_group,
        SymptomKind.QUERY: _ask_query,
        SymptomKind.TOPIC: _ask_topic,
        SymptomKind.TRANSACTIONAL_ID: _ask_id,
        SymptomKind.PRODUCER_ID: _ask_producer_id,
        SymptomKind.ERROR: _ask_error,
    }
    found = questions[symptom.kind](asking, facts)
    if finding.hanging(found) or finding.stuck_prepare(found) or finding.long_lived(found):
        found = replace(found, exposed_to=_exposed_to(asking.cluster))
    return replace(_with_writes(asking, found), now_ms=asking.now_ms())


def _with_writes(asking: Asking, facts: Facts) -> Facts:
    """The facts with the write states of the logs that the transactions in them need for their end, or that the id of
    the symptom needs to begin one, and of partitions without a leader.
    """
    seen = [*facts.partitions, *(one.log for one in facts.pending)]
    claims = [claim_of(one) for each in seen for one in each.still_open]
    ids = [one for one in (*claims, facts.transaction, *facts.prepared) if one is not None]
    unled = {
        (one.topic, one.partition)
        for one in facts.partitions
        if one.failure is not None and one.failure.code == FailureCode.NO_LEADER
    }
    if not (ids or unled or facts.symptom.transactional_id is not None or finding.is_busy(facts)):
        return facts
    asking.progress("ask which logs take writes", 0, 1)
    view = asking.cluster.newest([TRANSACTION_STATE_TOPIC])
    keys = {key_of(name) for one in ids for name in one.partitions} | unled
    states = read_write_states(asking.cluster, view.answered_by, keys, with_last=True)
    return with_writes(facts, replace(states, no_log=read_no_log(asking.cluster, view)))


def _exposed_to(cluster: Cluster) -> tuple[ExposedTo, ...]:
    """The known causes to which the cluster is exposed. Empty if no broker answers."""
    brokers = sorted(broker.broker_id for broker in cluster.newest([]).brokers)
    exposure = read_exposure(cluster, read_versions(cluster, brokers)[0])
    return tuple(ExposedTo(cause.id, sentence(cause, exposure), cause.explains) for cause in exposed(exposure))


def _begun(asking: Asking, symptom: Symptom) -> Facts:
    """The facts of every answer: the connection, the principal and the longest timeout."""
    cluster, config = asking.cluster, asking.config
    behind = tuple(one.failure for one in cluster.behind())
    max_timeout_ms, errors = cluster.max_timeout_ms()
    about_it = symptom.error is not None and symptom.error.kind is ErrorKind.SETTING
    return Facts(
        symptom,
        asking.now_ms(),
        config.late_after_ms or max_timeout_ms + LATE_BUFFER_MS,
        connection=config.connection_options(),
        principal=cluster.principal,
        max_timeout_ms=None if errors else max_timeout_ms,
        failures=tuple(one.failure for one in errors) if about_it else behind,
    )


# --- a sweep, of some partitions or of all


def _sweep(asking: Asking, keys: Collection[Key]) -> Scan | None:
    """A sweep of these partitions, None without any. If they are of several topics, it sweeps whole topics."""
    topics = sorted({topic for topic, _ in keys})
    if not topics:
        return None
    indexes = tuple(sorted({index for _, index in keys})) if len(topics) == 1 else ()
    return _swept(asking, replace(asking.config, topic_names=tuple(topics), partitions=indexes))


def _swept(asking: Asking, config: ScanConfig) -> Scan:
    return scan(
        Run(
            config,
            asking.cluster,
            ThreadsEngine(),
            sweep_id=asking.sweep_id(),
            now_ms=asking.now_ms,
            history=NoHistory(),
            progress=asking.progress,
        )
    )


def _failures(swept: Scan) -> tuple[Failure, ...]:
    """All failures of a sweep."""
    return (*(one.failure for one in swept.errors), *swept.visibility_failures)


def _causes(swept: Scan, transactions: Iterable[Judged]) -> Mapping[TransactionKey, tuple[Cause, str]]:
    """The causes of the hanging transactions among these."""
    return {
        one.observation.transaction_key: hanging_cause_of(one, evidence.logged if evidence.log_failure is None else ())
        for one in transactions
        if one.judgement.verdict is Verdict.HANGING
        if (evidence := swept.evidence_of_outcome(one)) is not None
    }


# --- a group


def _unseen(asking: Asking, absent: Absent) -> Failure:
    """Why it was not observed that there is no such name. Raises ConfigError if there is none."""
    if absent.unseen is None:
        raise absent.error(asking.cluster.format_failure)
    return absent.unseen.within(f"whether there is a {absent.what} '{printable(absent.name)}'")


def _ask_group(asking: Asking, facts: Facts) -> Facts:
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
            failures.append(_unseen(asking, absent_group(cluster, group)))
        else:
            nothing = f"group '{group}' has committed no offset that this principal may see"
            failures.append(Failure(nothing, FailureCode.NOT_ASKED))
    elif not any(one.lag for one in partitions) and (hidden := cluster.hidden_topics()) is not None:
        failures.append(hidden)
    return replace(facts, partitions=partitions, failures=tuple(failures), sweep_id=sweep_id, asked=len(partitions))


def _ask_share(asking: Asking, facts: Facts, broker_id: int, group: str) -> Facts:
    """A share group: its isolation level, and the open transactions on its partitions."""
    level = share_level(asking.cluster.send, broker_id, group)
    offsets = share_group_partitions(asking.cluster.send, broker_id, group)
    stands, sweep_id = _stands(asking, dict.fromkeys(offsets.keys, _NOT_READ))
    failures = [one for one in (level, offsets.failure) if isinstance(one, Failure)]
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


def _ask_query(asking: Asking, facts: Facts) -> Facts:
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
    before = _offsets(asking, [log])[0].get(log)
    is_open = before is None or before.last_stable_offset < before.high_watermark
    if not is_open and not withheld:
        return (), ()
    swept = _sweep(asking, [log]) if before is not None else None
    where = _partition_facts(log, swept, before, _offsets(asking, [log])[0].get(log))
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
            found.append(PendingOffsets(group, _names(keys), where, holder))
    rest = (still.unstable - named).intersection(withheld)
    unread = next((has.failure for _, has in holders if has.failure is not None), where.failure)
    if rest and (unread is not None or _is_closed(asking, log, where)):
        found.append(PendingOffsets(group, _names(rest), where, None, unread))
    return tuple(found), rest


def _is_closed(asking: Asking, log: Key, where: PartitionFacts) -> bool:
    """Whether this partition had no open transaction during that time: no transaction was open before, and its end did
    not move.
    """
    now = _offsets(asking, [log])[0].get(log)
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
    names = ", ".join(_names(rest)[:_NAMED_MAX])
    unseen = f"the offsets of {names} are in a transaction (UNSTABLE_OFFSET_COMMIT) that was not seen"
    return (), Failure(unseen, FailureCode.ENDED_MEANWHILE)


def _names(keys: Iterable[Key]) -> tuple[str, ...]:
    return tuple(f"{topic}-{index}" for topic, index in sorted(keys))


def _stands(asking: Asking, committed: Mapping[Key, int]) -> tuple[tuple[PartitionFacts, ...], str | None]:
    """The partitions with offsets of a group, with their open transactions and its next records; and the id of the
    sweep, if anything is open there.
    """
    before, view = _offsets(asking, committed)
    still_open = [key for key, row in before.items() if row.last_stable_offset < row.high_watermark]
    swept = _sweep(asking, still_open)
    after = _offsets(asking, still_open)[0] if still_open else {}
    found = [
        replace(_partition_facts(key, swept, before.get(key), after.get(key, before.get(key))), committed=offset)
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
    partition, lso = _led(view, (one.topic, one.partition)), one.last_stable_offset
    if partition is None or lso is None or one.committed is None or not one.lag or one.committed >= lso:
        return one
    send, start = asking.cluster.send, one.committed
    found = ahead(send, partition, start, lso)
    if found.failure is not None and found.failure.code == _OUT_OF_RANGE:
        # The records there are deleted: the group continues from the start of the log, or not at all.
        try:
            start = max(start, offset_of(send, partition, Offset.LOG_START))
        except RequestFailed:
            return replace(one, ahead=found)
        found = ahead(send, partition, start, lso)
    return replace(one, ahead=found)


# --- partitions


def _offsets(asking: Asking, keys: Collection[Key]) -> tuple[dict[Key, OffsetsRow], ClusterView]:
    """High watermark and last stable offset of these partitions, as far as their leaders answer."""
    view = asking.cluster.newest(sorted({topic for topic, _ in keys}))
    return offsets_of(asking.cluster.send, keys, view) if keys else {}, view


def _partition_facts(
    key: Key, swept: Scan | None, before: OffsetsRow | None, after: OffsetsRow | None
) -> PartitionFacts:
    """A partition between the offsets before and after a sweep of it."""
    found, failure, failures = PartitionFacts(*key), None, tuple[Failure, ...]()
    if swept is not None:
        there = [one for one in swept.transactions if one.observation.key == key]
        there.sort(key=lambda one: one.observation.start_offset)
        found = replace(found, open=tuple(there), causes=_causes(swept, there))
        failures = _failures(swept)
        failure = next((one.failure for one in swept.errors if (one.topic, one.partition) == key), None)
    if before is None or after is None:
        unknown = Failure(
            "its offsets are not known: it has no leader, or this principal may not describe it", FailureCode.NOT_ASKED
        )
        return replace(found, failure=failure or unknown)
    found = replace(
        found,
        high_watermark=after.high_watermark,
        last_stable_offset=after.last_stable_offset,
        lso_before=before.last_stable_offset,
    )
    # If no record was blocked before the sweep, the transaction began during it.
    blocked_before = before.high_watermark > before.last_stable_offset
    same = blocked_before and found.lso_before == found.last_stable_offset
    if not (found.blocked_records and found.holder is None and same):
        return found
    unseen = Failure("the transaction that holds its last stable offset was not seen", FailureCode.ENDED_MEANWHILE)
    return replace(found, failure=failure or next(iter(failures), unseen))


def _led(view: ClusterView, key: Key) -> Partition | None:
    found = [one for topic in view.topics if topic.name == key[0] for one in topic.at(key[1])]
    return found[0] if found and found[0].leader >= 0 else None


def _ask_topic(asking: Asking, facts: Facts) -> Facts:
    topic, wanted = facts.symptom.topic or "", facts.symptom.partition
    partitions = () if wanted is None else (wanted,)
    config = replace(asking.config, topic_names=(topic,), partitions=partitions)
    view = asking.cluster.newest([topic])
    indexes = [index for one in view.topics if one.name == topic for index in one.indexes]
    if not indexes:
        unseen = _unseen(asking, absent_topic(asking.cluster, "--topic", topic))
        return replace(facts, failures=(*facts.failures, unseen))
    if wanted is not None and wanted not in indexes:
        raise ConfigError("--partition", f"{printable(topic)} has no partition {wanted}; it has {len(indexes)}")
    keys = [(topic, index) for index in indexes if wanted in (None, index)]
    before, _ = _offsets(asking, keys)
    swept = _swept(asking, config)
    after, view = _offsets(asking, keys)
    found = [_partition_facts(key, swept, before.get(key), after.get(key)) for key in keys]
    read = asking.cluster.in_parallel(lambda one: _with_end(asking, view, one), found[:PARTITIONS_READ_MAX])
    compacted, failure = _compacted(asking, topic)
    settings = _settings(asking, topic, KEPT)
    every = [replace(one, compacted=compacted, settings=settings) for one in (*read, *found[PARTITIONS_READ_MAX:])]
    every = _with_disks(asking, every)
    if compacted:
        every = _with_cleaning(asking, view, every)
    held = any(one.still_open for one in every)
    return replace(
        facts,
        partitions=tuple(every),
        failures=(*facts.failures, *_failures(swept), *([failure] if failure is not None and held else [])),
        sweep_id=swept.sweep_id,
        asked=len(keys),
    )


def _with_end(asking: Asking, view: ClusterView, one: PartitionFacts) -> PartitionFacts:
    """The partition with the end of its log, if it has no open transaction."""
    partition, end = _led(view, (one.topic, one.partition)), one.high_watermark
    if partition is None or end is None or one.blocked_records:
        return one
    try:
        log_start = offset_of(asking.cluster.send, partition, Offset.LOG_START)
    except RequestFailed:
        return one
    return replace(one, ahead=end_of_log(asking.cluster.send, partition, log_start, end))


def _with_disks(asking: Asking, partitions: Sequence[PartitionFacts]) -> list[PartitionFacts]:
    """The partitions, the first of them with the sizes of their replicas; those with blocked records come first."""
    blocked_first = sorted(partitions, key=lambda one: -(one.blocked_records or 0))
    wanted = [(one.topic, one.partition) for one in blocked_first[:DISKS_MAX]]
    sizes = read_replica_sizes(asking.cluster, wanted)
    found = [(one, sizes.get((one.topic, one.partition), Replicas())) for one in partitions]
    return [replace(one, disk=disk_of(of.read(asking.now_ms(), None), (), of.error)) for one, of in found]


def _with_cleaning(asking: Asking, view: ClusterView, partitions: Sequence[PartitionFacts]) -> list[PartitionFacts]:
    """The partitions, the largest of them with the records at the start of their logs. Nothing is read if a transaction
    is open.
    """
    largest = sorted(partitions, key=lambda one: -(one.disk.partition_bytes or 0))[:LOGS_READ_MAX]
    if any(one.still_open for one in partitions):
        return list(partitions)
    settings = _settings(asking, largest[0].topic, SETTINGS) if largest else {}

    def read(one: PartitionFacts) -> PartitionFacts:
        partition, end = _led(view, (one.topic, one.partition)), one.last_stable_offset
        if partition is None or end is None or one.disk.read is None:
            return one
        of_leader = [each for each in one.disk.read.replicas if each.broker_id == partition.leader]
        size_bytes = of_leader[0].partition_bytes if of_leader else 0
        return replace(one, cleaning=read_cleaning(asking.cluster.send, partition, end, size_bytes, settings))

    done = {one.partition: one for one in asking.cluster.in_parallel(read, largest)}
    return [done.get(one.partition, one) for one in partitions]


def _settings(asking: Asking, topic: str, names: Collection[str]) -> Mapping[str, str]:
    """These settings of the topic, by the first broker that answers. Empty without an answer."""
    for broker_id in asking.cluster.broker_ids:
        try:
            return topic_settings(asking.cluster.send, broker_id, topic, names)
        except RequestFailed:
            continue
    return {}


def _compacted(asking: Asking, topic: str) -> tuple[bool | None, Failure | None]:
    """Whether the topic is compacted. None with a failure if that is not known."""
    found, failure = read_topic_cleaning(asking.cluster.send, asking.cluster.broker_ids, [topic])
    one = found.get(topic)
    if one is None:
        return None, failure
    if one.failure is not None:
        return None, needing(one.failure, CONFIGS_OF_TOPICS.on(topic)).within(topic)
    return bool(is_compacted(one.cleanup_policy)), None


# --- ids


def _ask_id(asking: Asking, facts: Facts) -> Facts:
    name = facts.symptom.transactional_id or ""
    asking.progress("ask the coordinator", 0, 1)
    found, failed = describe(asking.cluster.send, [name], asking.cluster.newest, asking.now_ms, asking.sleep)
    if not found and any(one.failure.code in _ABSENT for one in failed):
        facts = _with_log(asking, facts, name)
        absent = replace(facts, absent=True)
        is_name_alone = not facts.logged and facts.log_failure is None and facts.symptom.error is None
        if is_name_alone and finding.no_writes(_with_writes(asking, absent)) is None:
            # A misspelt name. Beside an error, the absence may be the cause; and whatever its name, no id can begin a
            # transaction if its log takes no writes.
            unseen = _unseen(asking, absent_id(asking.cluster, name))
            return replace(facts, failures=(*facts.failures, unseen))
        if not facts.logged or facts.logged[-1].state == State.DEAD:
            return absent
        # The log is newer than the answer, or the coordinator did not load all of it.
        found, failed = describe(asking.cluster.send, [name], asking.cluster.newest, asking.now_ms, asking.sleep)
        if any(one.failure.code in _ABSENT for one in failed):
            last = facts.logged[-1]
            why = f"the transaction log has '{name}' in {last.state}, and its coordinator does not know it"
            return replace(facts, failures=(*facts.failures, Failure(why, FailureCode.LEFT_OUT)))
    if not found:
        return replace(facts, failures=(*facts.failures, *(one.failure for one in failed)))
    return _of_transaction(asking, facts, found[0])


def _of_transaction(asking: Asking, facts: Facts, one: Transaction, swept: Scan | None = None) -> Facts:
    """The open transactions of an id: on its partitions, or for an id at rest anywhere. swept: a sweep of all."""
    facts = replace(facts, transaction=one, whole_cluster=swept is not None or not one.partitions)
    error = facts.symptom.error
    if error is not None and error.kind in (ErrorKind.FENCED, ErrorKind.BUSY):
        facts = _with_log(asking, facts, one.transactional_id)
    keys = _keys(one.partitions)
    if swept is None:
        swept = _sweep(asking, keys) or _swept(asking, asking.config)
    return _of_producer(asking, facts, swept, one.producer_id, keys)


def _keys(names: Iterable[str]) -> list[Key]:
    split = (name.rpartition("-") for name in names)
    return [(topic, int(index)) for topic, _, index in split]


def _of_producer(asking: Asking, facts: Facts, swept: Scan, producer_id: int, keys: Sequence[Key] = ()) -> Facts:
    """The open transactions of this producer id, and these partitions of its transaction."""
    judged = [one for one in swept.transactions if one.observation.producer_id == producer_id]
    every = sorted({*keys, *(one.observation.key for one in judged if one.judgement.verdict is not Verdict.GONE)})
    after = _offsets(asking, every)[0] if every else {}
    found = []
    for key in every:
        seen = next((one.observation.second for one in judged if one.observation.key == key), None)
        lso = seen.last_stable_offset if seen is not None else None
        row = after.get(key)
        before = row if row is None or lso is None else replace(row, last_stable_offset=lso)
        found.append(replace(_partition_facts(key, swept, before, row), failure=None))
    return replace(_with_sweep(facts, swept), partitions=tuple(found))


def _with_sweep(facts: Facts, swept: Scan) -> Facts:
    failures = (*facts.failures, *_failures(swept))
    return replace(facts, failures=failures, sweep_id=swept.sweep_id, asked=swept.partitions_planned)


def _with_log(asking: Asking, facts: Facts, name: str) -> Facts:
    """The facts with the records of this id in the transaction log."""
    asking.progress("read the transaction log", 0, 1)
    send = asking.cluster.send
    wanted, failed = to_read(asking.cluster.newest([TRANSACTION_STATE_TOPIC]), [name], [])
    steps = [
        one for each in wanted for one in dated(send, each.partition, timeline(send, each.partition, names=each.names))
    ]
    failures = [*failed, *(one for one in steps if isinstance(one, Unobserved))]
    return replace(
        facts,
        logged=tuple(one.record for one in steps if not isinstance(one, Unobserved)),
        log_failure=failures[0].failure if failures else None,
    )


def _ask_producer_id(asking: Asking, facts: Facts) -> Facts:
    producer_id = facts.symptom.producer_id
    wanted = {} if producer_id is None else {producer_id: frozenset[str]()}
    cluster = asking.cluster
    cluster.newest([TRANSACTION_STATE_TOPIC])
    agreed = cluster.agreed_metadata([TRANSACTION_STATE_TOPIC])
    listing = cluster.coordinator_listing(wanted, agreed, lambda done, total: None)
    swept = _swept(asking, asking.config)
    names = sorted({view.transactional_id for view in listing.views})
    if names:
        found, failed = describe(cluster.send, names[:1], cluster.newest, asking.now_ms, asking.sleep)
        failures = tuple(one.failure for one in failed)
        if found and found[0].producer_id == producer_id:
            return _of_transaction(asking, replace(facts, failures=failures), found[0], swept)
        gone = Failure(f"'{names[0]}' had it a moment ago, and went on meanwhile", FailureCode.WRITTEN_MEANWHILE)
        return _of_producer(asking, replace(facts, failures=failures or (gone,)), swept, producer_id or 0)
    hidden = _hidden(listing.coverage_failure, listing.visibility_failures, listing.views)
    facts = replace(facts, whole_cluster=True, failures=(*facts.failures, *hidden))
    return _of_producer(asking, facts, swept, producer_id or 0)


def _hidden(
    coverage: Failure | None, visibility: Sequence[Failure], views: Sequence[CoordinatorView]
) -> tuple[Failure, ...]:
    """Failures that may hide an id from the listings of coordinators."""
    if views:
        return ()
    covered = (coverage.within("not every coordinator was seen"),) if coverage is not None else ()
    return (*covered, *visibility)


# --- an error without an id


def _ask_error(asking: Asking, facts: Facts) -> Facts:
    error = facts.symptom.error
    kind = error.kind if error is not None else None
    if kind is ErrorKind.BUSY:
        return _ask_prepared(asking, facts)
    if kind is ErrorKind.OFFSETS:
        return _ask_all_offsets(asking, facts)
    return facts


def _ask_prepared(asking: Asking, facts: Facts) -> Facts:
    """The ids in Prepare* of all coordinators, and whether all were seen."""
    cluster = asking.cluster
    agreed = cluster.agreed_metadata([TRANSACTION_STATE_TOPIC])
    wanted = ListingFilter(states=tuple(PREPARED))
    found: list[Transaction] = []
    failures: list[Failure] = []
    for broker in agreed.brokers:
        for some in list_on(cluster.send, broker.broker_id, wanted, asking.now_ms):
            if isinstance(some, Unobserved):
                failures.append(some.failure)
            else:
                found += some
    listing = cluster.coordinator_listing({}, agreed, lambda done, total: None)
    hidden = _hidden(listing.coverage_failure, listing.visibility_failures, ())
    return replace(facts, prepared=tuple(found), failures=(*facts.failures, *failures, *hidden))


def _ask_all_offsets(asking: Asking, facts: Facts) -> Facts:
    """The open transactions on `__consumer_offsets`, with the groups whose offsets they have."""
    view = asking.cluster.newest([CONSUMER_OFFSETS_TOPIC])
    if not any(topic.name == CONSUMER_OFFSETS_TOPIC and topic.indexes for topic in view.topics):
        return facts
    swept = _swept(asking, replace(asking.config, topic_names=(CONSUMER_OFFSETS_TOPIC,)))
    found: list[PendingOffsets] = []
    open_there = [one for one in swept.transactions if one.judgement.verdict is not Verdict.GONE]
    after, _ = _offsets(asking, sorted({one.observation.key for one in open_there})) if open_there else ({}, view)
    for key, row in after.items():
        where = replace(_partition_facts(key, swept, row, row), lso_before=None)
        for holder in where.still_open:
            has = pending_offsets(asking.cluster.send, holder.observation)
            for group, keys in sorted(has.groups.items()):
                found.append(PendingOffsets(group, _names(keys), where, holder))
            if not has.groups:
                found.append(PendingOffsets(None, (), where, holder, has.failure))
    return replace(_with_sweep(facts, swept), pending=tuple(found))
