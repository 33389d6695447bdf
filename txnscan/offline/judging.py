"""Verdicts from files, by the same rules as for live brokers. If files leave a doubt, the verdict states it. Pure.

A sweep of live brokers reads the partition, then the coordinators, then the partition again. Files of one moment, at
which no broker ran, replace all three reads (`moment.py`). So a transaction that is open in the files of its partition,
and that no coordinator's log has, hangs, provided that

- all replicas of the partition are present, as `__cluster_metadata` lists them (the log of one replica may lack the
  marker), the log after the transaction is undamaged and goes to its end (`wholeness.py`), and every replica has it
  open;
- every partition of `__transaction_state` is present, and the copy of its leader is whole, from its first record to its
  last. Other copies must not contradict it.

Their number comes from `__cluster_metadata`, or from the user. Without `__cluster_metadata`, each copy must be whole.

The user may assert that the files are of all brokers and that no broker ran, if the files do not show it. If the files
contradict the user, the files count. Without proof the verdict is `indeterminate`. Evidence *for* an owner needs no
proof of these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from txnscan.kafka.answers import PREPARED, CoordinatorView
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key
from txnscan.kafka.units import plural
from txnscan.offline.contents import METADATA_TOPIC, Replica
from txnscan.offline.copies import Copies
from txnscan.offline.missing import missing_replica
from txnscan.offline.moment import restless_error, running_error
from txnscan.offline.producer_snapshots import ProducerState
from txnscan.offline.wholeness import ASSUMPTION, end_error, log_error, unwitnessed
from txnscan.reads.observation import Observation, ProvenRead
from txnscan.txnlog.decode import UnknownRecord, decoded
from txnscan.txnlog.facts import LoggedTransaction
from txnscan.verdict.evidence import Context, Judged, KnownOutcome, OutcomeEvidence, Verdict
from txnscan.verdict.join import by_producer_id
from txnscan.verdict.outcome import outcome, with_outcome
from txnscan.verdict.rules import judge_observation

if TYPE_CHECKING:
    from txnscan.offline.state_log import StateLog


@dataclass(frozen=True, slots=True)
class OpenInFiles:
    """A judged open transaction. as_of: the last offset of the log that was read. assumption: what the verdict rests on
    and no file shows, if there is such a thing.
    """

    judged: Judged
    replica: Replica
    as_of: int
    assumption: str | None = None


def coverage_errors(copies: Copies, logs: Mapping[int, Sequence[StateLog]]) -> dict[int, str]:
    """Why a partition of `__transaction_state` is not known, by its number; -1 stands for all if their number is
    unknown. logs: see `judge_files`.
    """
    latest, errors = copies.latest, {}
    count = latest.count(TRANSACTION_STATE_TOPIC) if latest is not None else copies.log_partitions or 0
    if not count:
        lacking = (
            "no directory of it is"
            if not logs
            else f"no {METADATA_TOPIC} to tell how many partitions it has is"
            if latest is None
            else f"its topic is not in the {METADATA_TOPIC} that is"
        )
        return {-1: f"{TRANSACTION_STATE_TOPIC}: {lacking} among the files"}
    for k in sorted({*range(count), *logs}):
        why = _log_partition_error(copies, k, count, logs.get(k, ()))
        if why is not None:
            errors[k] = f"{TRANSACTION_STATE_TOPIC}-{k}{why}"
    return errors


def _log_partition_error(copies: Copies, k: int, count: int, logs: Sequence[StateLog]) -> str | None:
    key = (TRANSACTION_STATE_TOPIC, k)
    if not logs:
        return " is not among the files"
    if k >= count:
        return f": it is not one of {plural(count, 'partition')}"
    leader = copies.leader(key)
    # If the leader's copy is known, the others only must not contradict it.
    needed = copies.replicas[key] if leader is None else [leader]
    why = (
        missing_replica(copies, key)
        or logs[0].doubt
        or next(filter(None, (log_error(one, clean=copies.is_clean(one.files.log_directory)) for one in needed)), None)
    )
    if why is None and copies.leading(key).leader_epoch < max(one.leader_epoch for one in copies.replicas[key]):
        why = "a copy has a later leader epoch than that of its leader"
    if why is None and logs[0].misplaced(count):
        why = f"it holds '{logs[0].misplaced(count)[0]}', which another of {count} partitions would serve"
    return None if why is None else f": {why}"


def views(
    copies: Copies, logs: Mapping[int, Sequence[StateLog]], uncovered: Mapping[int, str]
) -> Iterator[CoordinatorView]:
    """For each id, its last record as its coordinator would describe it.

    An id that only another copy has is evidence against a hanging transaction, and no evidence for one.
    """
    for k, (log, *others) in logs.items():
        copy = copies.leading((TRANSACTION_STATE_TOPIC, k))
        ends = min(one.log_end_offset for one in copies.replicas[TRANSACTION_STATE_TOPIC, k])
        for name, last in log.ids.items():
            loose = f"the last record of '{name}' is not on every replica" if last.offset >= ends else None
            yield _view(copy.broker_id, last, uncovered.get(k, uncovered.get(-1, loose)))
        for other in others:
            for name, last in other.ids.items():
                if name not in log.last:
                    alone = f"'{name}' is in another copy of {TRANSACTION_STATE_TOPIC}-{k} alone"
                    yield _view(None, last, alone)


def _view(broker_id: int | None, last: LoggedTransaction, doubt: str | None) -> CoordinatorView:
    return CoordinatorView(
        transactional_id=last.transactional_id,
        broker_id=broker_id if broker_id is not None else -1,
        producer_id=last.producer_id,
        producer_epoch=last.producer_epoch,
        state=last.state.value,
        timeout_ms=last.timeout_ms,
        start_time_ms=last.start_time_ms,
        partitions=tuple(f"{topic}-{index}" for topic, index in sorted(last.partitions)),
        coverage_failure=_incomplete(doubt),
    )


def judge_files(
    copies: Copies,
    logs: Mapping[int, Sequence[StateLog]],
    *,
    now_ms: int,
    late_after_ms: int,
    checksum_error: Callable[[Replica, int], str | None],
) -> list[OpenInFiles]:
    """Every open transaction in these files, judged; hanging transactions also with their outcome.

    logs: the copies of each partition of `__transaction_state`, that of its leader first. now_ms: the last moment that
    the files record. checksum_error: reads a replica's log once more from an offset on, with checksums; called before a
    transaction is reported as hanging.
    """
    uncovered = coverage_errors(copies, logs)
    by_pid = by_producer_id(views(copies, logs, uncovered))
    context = Context(_incomplete(next(iter(uncovered.values()), None)), None, (), now_ms, late_after_ms)
    running = running_error(copies)
    leaders = {k: log for k, (log, *_) in logs.items()}
    last = {name: record for of_one in logs.values() for log in reversed(of_one) for name, record in log.ids.items()}
    compacted = any(one.cleaned_until > 0 for k in logs for one in copies.replicas[TRANSACTION_STATE_TOPIC, k])
    found = []
    for key, replicas in sorted(copies.replicas.items()):
        if key[0] in (METADATA_TOPIC, TRANSACTION_STATE_TOPIC):
            continue
        replica = copies.leading(key)
        missing = missing_replica(copies, key)
        shown = next(filter(None, map(partial(_end_error, copies), replicas)), None)
        for one in replica.open:
            owners = [last[view.transactional_id] for view in by_pid.get(one.producer_id, ())]
            # Changing files explain any other fault.
            why = copies.running or replica.doubt(one) or missing or shown
            why = why or _disagreement(replica, replicas, one) or running or restless_error(copies, key, owners)
            observed = _observation(copies, key, replica, replicas, one, why, now_ms)
            judged = judge_observation(observed, by_pid.get(one.producer_id, ()), context)
            if judged.judgement.verdict is Verdict.HANGING:
                damaged = checksum_error(replica, one.start_offset)
                if damaged is not None:
                    unproven = replace(observed.second, failure=_incomplete(damaged))
                    observed = replace(observed, first=unproven, second=unproven)
                    judged = judge_observation(observed, by_pid.get(one.producer_id, ()), context)
            if judged.judgement.verdict is Verdict.HANGING:
                judged = with_outcome(judged, outcome(_outcome_evidence(judged, replica, leaders, uncovered)))
            assumption = ASSUMPTION if compacted and judged.judgement.verdict is Verdict.HANGING else None
            found.append(OpenInFiles(judged, replica, replica.log_end_offset - 1, assumption))
    return found


def _end_error(copies: Copies, replica: Replica) -> str | None:
    """Why the replica's log may go on behind the end of its files, if it may."""
    return end_error(replica) or unwitnessed(replica, clean=copies.is_clean(replica.files.log_directory))


def _disagreement(replica: Replica, replicas: Iterable[Replica], one: ProducerState) -> str | None:
    """Why the replicas disagree about the transaction, if they do. A replica that ends before the transaction cannot
    have it.
    """
    for other in replicas:
        if other.unproven is not None:
            return f"the replica on broker {other.broker_id} is damaged, and may hold its marker: {other.unproven}"
        if other is replica or other.log_end_offset <= one.start_offset:
            continue
        theirs = {state.producer_id: state.start_offset for state in other.open}
        if theirs.get(one.producer_id) != one.start_offset:
            return f"the replica on broker {other.broker_id} does not have it open"
    return None


def _observation(
    copies: Copies,
    key: Key,
    replica: Replica,
    replicas: Sequence[Replica],
    one: ProducerState,
    why: str | None,
    now_ms: int,
) -> Observation:
    """An observation with the same read twice: nothing changed in between, or `why` states the doubt."""
    # Data on every replica is committed. The checkpoints lag, as brokers write them every few seconds.
    on_all = min(r.log_end_offset for r in replicas) if missing_replica(copies, key) is None else -1
    high_watermark = max(on_all, *(r.high_watermark for r in replicas))
    assigned = copies.latest.assigned(key) if copies.latest is not None else None
    read = ProvenRead(
        read_at_ms=now_ms,
        high_watermark=high_watermark if high_watermark >= 0 else None,
        last_stable_offset=replica.last_stable_offset,
        start_offset=one.start_offset,
        producer_epoch=one.producer_epoch,
        last_sequence=one.last_sequence,
        failure=_incomplete(why),
    )
    return Observation(
        topic=key[0],
        topic_id=replica.topic_id or (assigned[0] if assigned is not None else ""),
        partition=key[1],
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        coordinator_epoch=one.coordinator_epoch,
        start_offset=one.start_offset,
        last_timestamp_ms=one.last_timestamp_ms,
        last_sequence=one.last_sequence,
        leader=replica.broker_id if replica.broker_id is not None else -1,
        leader_epoch=replica.leader_epoch,
        first=read,
        second=read,
        first_seen_ms=now_ms,
    )


def _outcome_evidence(
    judged: Judged, replica: Replica, logs: Mapping[int, StateLog], uncovered: Mapping[int, str]
) -> OutcomeEvidence:
    o = judged.observation
    begun = replica.begun.get(o.producer_id)
    seen = begun is not None and begun.start_offset == o.start_offset and begun.first_epoch is not None
    # Deleted records before the start of the log may have belonged to it.
    seen = seen and replica.start_unknown is None
    held = logged(logs, o.producer_id)
    gone = f"at offset {o.start_offset} there is no record of producer id {o.producer_id} any more"
    return OutcomeEvidence(
        observation=o,
        owner_epoch=max((view.producer_epoch for view in judged.evidence.coordinators), default=None),
        first_epoch=begun.first_epoch if seen and begun is not None else None,
        first_sequence=begun.first_sequence if seen and begun is not None else None,
        batch_failure=None if seen else Failure(gone, FailureCode.RECORD_GONE),
        logged=held,
        log_failure=_incomplete(next(iter(uncovered.values()), None)),
        contradiction=None,
    )


def _incomplete(why: str | None) -> Failure | None:
    return None if why is None else Failure(why, FailureCode.COPY_INCOMPLETE)


def logged(logs: Mapping[int, StateLog], producer_id: int) -> tuple[LoggedTransaction, ...]:
    """The records of all ids that ever had the producer id, in log order."""
    found: list[LoggedTransaction] = []
    for log in logs.values():
        records = []
        for raw in log.raw:
            try:
                record = decoded(raw)
            except UnknownRecord:
                continue
            acknowledged = log.is_acknowledged(raw)
            records.append(
                replace(record, acknowledged=acknowledged, log_epoch=log.leader_epoch, epochs_rise=log.epochs_rise)
            )
        names = {record.transactional_id for record in records if record.producer_id == producer_id}
        found += [record for record in records if record.transactional_id in names]
    return tuple(found)


def outcomes(
    logs: Mapping[int, StateLog],
    uncovered: Mapping[int, str],
    running: str | None,
    producer_id: int,
    producer_epoch: int,
) -> list[tuple[Key, KnownOutcome]]:
    """The proven outcome of a producer's data at this epoch, for each partition that its ids ever listed.

    The data is assumed to have this epoch from its first batch on. Whether the partition had markers before it is
    unknown here, so under transactions v1 no commit is proven. running: see `running_error`; a running broker may write
    another decision.
    """
    held = logged(logs, producer_id)
    owners = [
        last.producer_epoch for log in logs.values() for last in log.ids.values() if last.producer_id == producer_id
    ]
    found = []
    for topic, index in sorted({key for record in held for key in record.partitions}):
        evidence = OutcomeEvidence(
            observation=_anywhere(topic, index, producer_id, producer_epoch),
            owner_epoch=max(owners, default=None),
            first_epoch=producer_epoch,
            first_sequence=None,
            batch_failure=None,
            logged=held,
            log_failure=_incomplete(next(iter(uncovered.values()), running)),
            contradiction=None,
        )
        found.append(((topic, index), outcome(evidence)))
    return found


def _anywhere(topic: str, index: int, producer_id: int, producer_epoch: int) -> Observation:
    """An observation of data with only its producer known. Earlier markers of the producer may exist."""
    return Observation(
        topic=topic,
        topic_id="",
        partition=index,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=0,
        start_offset=-1,
        last_timestamp_ms=-1,
        last_sequence=-1,
        leader=-1,
        leader_epoch=-1,
        first=ProvenRead(-1),
        second=ProvenRead(-1),
        first_seen_ms=-1,
    )


def overdue(logs: Iterable[StateLog], now_ms: int, late_after_ms: int) -> list[LoggedTransaction]:
    """The ids that have been in Prepare* for longer than that, oldest first."""
    found = [
        last
        for log in logs
        for last in log.ids.values()
        if last.state in PREPARED and last.updated_ms < now_ms - late_after_ms
    ]
    return sorted(found, key=lambda last: (last.updated_ms, last.transactional_id))


def producer_ids(replicas: Iterable[Replica]) -> Collection[int]:
    """The producer ids with an open transaction."""
    return {one.producer_id for replica in replicas for one in replica.open}
