"""Verdicts from files, by the same rules as for live brokers. If files leave a doubt, the verdict states it. Pure.

A sweep of live brokers reads the partition, then the coordinators, then the partition again. Files that were copied
while all brokers were stopped replace all three reads, because nothing changed in between. So a transaction that is
open in the files of its partition, and that no coordinator's log has, hangs, provided that

- all replicas of the partition are present, as `__cluster_metadata` lists them (the log of one replica may lack the
  marker), the log after the transaction is complete and undamaged, and every replica has it open;
- no broker ran while the files were read: no file changed, and no process had a broker's lock (`running.py`);
- no broker ran between the copies: no broker registered again after its own files were copied; and either each broker
  recorded a clean shutdown, or all brokers stopped writing at about the same time, no file was written later, and the
  partition and its owner had been idle for longer than the difference between these times;
- every partition of `__transaction_state` is present, with all its replicas, and can be read to its end.

The user may assert that the files are of all brokers and that no broker ran, if the files do not show it. If the files
contradict the user, the files count. Without proof the verdict is `indeterminate`. Evidence *for* an owner needs no
proof of these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from txnscan.kafka.answers import PREPARED, CoordinatorView
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Key
from txnscan.kafka.units import duration
from txnscan.offline.files import METADATA_FILE
from txnscan.offline.found import METADATA_TOPIC, LogDirectory, Replica
from txnscan.offline.producer_snapshots import ProducerState
from txnscan.reads.observation import FencedRead, Observation
from txnscan.txnlog.decode import UnknownRecord, decoded
from txnscan.txnlog.facts import LoggedTransaction
from txnscan.verdict.evidence import Context, Judged, KnownOutcome, OutcomeEvidence, Verdict
from txnscan.verdict.outcome import outcome, with_outcome
from txnscan.verdict.rules import judge_observation

if TYPE_CHECKING:
    from txnscan.offline.cluster_metadata import Metadata
    from txnscan.offline.state_log import StateLog

# The maximum difference between the last writes of brokers that stopped together: a controller writes twice a second.
TOGETHER_MS = 10_000
# The maximum difference between the clocks of brokers and of their file systems, for brokers that stopped together.
_CLOCKS_MS = 1_000


@dataclass(frozen=True, slots=True)
class Copies:
    """All files together.

    metadata: `__cluster_metadata` by broker. vouched: the user asserts that the files are of all brokers, and that no
    broker ran while they were copied. newest_file_ms: when the newest file was written. running: evidence that a broker
    ran while the files were read, if any. lock_error: why the state of a lock is unknown, if it is. unlisted: a
    directory that could not be listed and may contain replicas.
    """

    replicas: Mapping[Key, Sequence[Replica]]
    directories: Sequence[LogDirectory]
    metadata: Mapping[int, Metadata]
    vouched: bool
    newest_file_ms: int
    running: str | None = None
    lock_error: str | None = None
    unlisted: str | None = None

    @property
    def latest(self) -> Metadata | None:
        """The longest metadata log of all brokers."""
        return max(self.metadata.values(), key=lambda one: one.next_offset, default=None)


@dataclass(frozen=True, slots=True)
class OpenInFiles:
    """A judged open transaction. as_of: the last offset of the log that was read."""

    judged: Judged
    replica: Replica
    as_of: int


def best(replicas: Sequence[Replica]) -> Replica:
    """The replica with the highest leader epoch, then with the longest log. Undamaged replicas come before damaged
    ones.
    """
    return max(replicas, key=lambda r: (r.unproven is None, r.leader_epoch, r.log_end_offset))


def running_error(copies: Copies) -> str | None:
    """Why the files may be from different moments, if they may."""
    if copies.running is not None:
        return copies.running
    clusters = {directory.cluster_id for directory in copies.directories} - {None}
    if len(clusters) > 1:
        return f"these are files of {len(clusters)} clusters: read those of one"
    latest = copies.latest
    if latest is None:
        return (
            None if copies.vouched else f"no {METADATA_TOPIC} is among the files to show that no broker ran meanwhile"
        )
    for broker_id, own in sorted(copies.metadata.items()):
        if latest.registered_at.get(broker_id, -1) >= own.next_offset:
            return f"broker {broker_id} started again after its files were copied"
    if copies.vouched:
        return None
    brokers = {directory.broker_id for directory in copies.directories}
    silent = sorted(str(one) for one in brokers - copies.metadata.keys())
    if silent:
        return f"the {METADATA_TOPIC} of broker {' and '.join(silent)} is not among the files"
    if all(directory.clean for directory in copies.directories):
        return None
    if copies.lock_error is not None:
        return copies.lock_error
    ends = [own.ended_ms for own in copies.metadata.values()]
    apart_ms, later_ms = max(ends) - min(ends), copies.newest_file_ms - max(ends)
    if apart_ms > TOGETHER_MS:
        return f"the files of the brokers end {duration(apart_ms)} apart: they were copied while brokers ran"
    if later_ms > TOGETHER_MS:
        return (
            f"files were written {duration(later_ms)} after the last sign of life of the brokers: they were copied "
            "while brokers ran, or without the times of files"
        )
    return None


def restless_error(copies: Copies, key: Key, owners: Iterable[LoggedTransaction]) -> str | None:
    """Why a transaction may have begun or ended while the files were copied, if so.

    If brokers did not record a clean shutdown, the partition and its owner must have been idle for longer than the
    files are apart.
    """
    latest = copies.latest
    if copies.vouched or latest is None or all(directory.clean for directory in copies.directories):
        return None
    ends = [own.ended_ms for own in copies.metadata.values()]
    quiet_from_ms = min(ends) - (max(*ends, copies.newest_file_ms) - min(ends)) - _CLOCKS_MS
    written_ms = max(replica.files.written_ms for replica in copies.replicas[key])
    changed_ms = max([written_ms, *(owner.updated_ms for owner in owners)])
    if changed_ms <= quiet_from_ms:
        return None
    return (
        f"the partition or its owner was written to {duration(max(min(ends) - changed_ms, 0))} before the files end, "
        "and no clean shutdown is written down: a marker may have come while they were copied"
    )


def missing_error(copies: Copies, key: Key) -> str | None:
    """Why the files are not known to have every replica of a partition, if so."""
    here = copies.replicas.get(key, ())
    if not here:
        return "no replica of it is among the files"
    if key[1] < 0:
        return f"no partition has a directory with this name, '{key[0]}'"
    if copies.latest is None:
        if copies.vouched:
            unlisted = f"{copies.unlisted} cannot be listed, and may contain a replica of it"
            return None if copies.unlisted is None else unlisted
        return f"these files are of one replica or some, and no {METADATA_TOPIC} is among them to say which there are"
    undated = next((one for one in here if one.topic_id is None and METADATA_FILE in one.files.others), None)
    if undated is not None:
        return f"{undated.files.others[METADATA_FILE]} cannot be read, and may be of a topic that was deleted"
    assigned = copies.latest.assigned(key)
    if assigned is None:
        return f"{METADATA_TOPIC} has no such partition: its topic was deleted, or the files are of another cluster"
    topic_id, where = assigned
    if {replica.topic_id for replica in here} - {topic_id, None}:
        return "the topic was deleted and created again"
    brokers = {replica.broker_id for replica in here}
    absent = [str(one) for one in sorted(where.replicas) if one not in brokers]
    if absent:
        which = (
            f"replica on broker {absent[0]} is"
            if len(absent) == 1
            else f"replicas on brokers {' and '.join(absent)} are"
        )
        return f"the {which} not among the files, and may hold its marker"
    return None


def coverage_errors(copies: Copies, logs: Mapping[int, StateLog]) -> dict[int, str]:
    """Why a partition of `__transaction_state` is not known, by its number; -1 stands for all if their number is
    unknown.
    """
    latest, errors = copies.latest, {}
    count = latest.count(TRANSACTION_STATE_TOPIC) if latest is not None else 0
    if not count and copies.vouched and logs:
        count = max(logs) + 1
    if not count:
        said = "no directory of it is" if not logs else f"no {METADATA_TOPIC} to tell how many partitions it has is"
        return {-1: f"{TRANSACTION_STATE_TOPIC}: {said} among the files"}
    for k in range(count):
        name = f"{TRANSACTION_STATE_TOPIC}-{k}"
        log = logs.get(k)
        if log is None:
            errors[k] = f"{name} is not among the files"
            continue
        # A replica other than the best may also have had more records before it was damaged.
        damaged = (copy.unproven for copy in copies.replicas[TRANSACTION_STATE_TOPIC, k])
        why = missing_error(copies, (TRANSACTION_STATE_TOPIC, k)) or log.doubt or next(filter(None, damaged), None)
        if why is None and log.misplaced(count):
            why = f"it holds '{log.misplaced(count)[0]}', which another of {count} partitions would serve"
        if why is not None:
            errors[k] = f"{name}: {why}"
    return errors


def views(
    copies: Copies, logs: Mapping[int, StateLog], uncovered: Mapping[int, str]
) -> dict[int, list[CoordinatorView]]:
    """For each id, its last record as its coordinator would describe it; by producer id."""
    found: dict[int, list[CoordinatorView]] = {}
    for k, log in logs.items():
        copy = best(copies.replicas[TRANSACTION_STATE_TOPIC, k])
        ends = min(one.log_end_offset for one in copies.replicas[TRANSACTION_STATE_TOPIC, k])
        for name, last in log.ids.items():
            loose = f"the last record of '{name}' is not on every replica" if last.offset >= ends else None
            view = CoordinatorView(
                transactional_id=name,
                broker_id=copy.broker_id if copy.broker_id is not None else -1,
                producer_id=last.producer_id,
                producer_epoch=last.producer_epoch,
                state=last.state.value,
                timeout_ms=last.timeout_ms,
                start_time_ms=last.start_time_ms,
                partitions=tuple(f"{topic}-{index}" for topic, index in sorted(last.partitions)),
                coverage_failure=_incomplete(uncovered.get(k, uncovered.get(-1, loose))),
            )
            found.setdefault(last.producer_id, []).append(view)
    return found


def judge_files(
    copies: Copies,
    logs: Mapping[int, StateLog],
    *,
    now_ms: int,
    late_after_ms: int,
    checksum_error: Callable[[Replica, int], str | None],
) -> list[OpenInFiles]:
    """Every open transaction in these files, judged; hanging transactions also with their outcome.

    now_ms: the last moment that the files record. checksum_error: reads a replica's log once more from an offset on,
    with checksums; called before a transaction is reported as hanging.
    """
    uncovered = coverage_errors(copies, logs)
    by_pid = views(copies, logs, uncovered)
    context = Context(_incomplete(next(iter(uncovered.values()), None)), None, (), now_ms, late_after_ms)
    running = running_error(copies)
    last = {name: record for log in logs.values() for name, record in log.ids.items()}
    found = []
    for key, replicas in sorted(copies.replicas.items()):
        if key[0] in (METADATA_TOPIC, TRANSACTION_STATE_TOPIC):
            continue
        replica = best(replicas)
        missing = missing_error(copies, key)
        for one in replica.open:
            owners = [last[view.transactional_id] for view in by_pid.get(one.producer_id, ())]
            # Changing files explain any other fault.
            why = copies.running or replica.doubt(one) or missing or _disagreement(replica, replicas, one) or running
            why = why or restless_error(copies, key, owners)
            observed = _observation(copies, key, replica, replicas, one, why, now_ms)
            judged = judge_observation(observed, by_pid.get(one.producer_id, ()), context)
            if judged.judgement.verdict is Verdict.HANGING:
                damaged = checksum_error(replica, one.start_offset)
                if damaged is not None:
                    unproven = replace(observed.second, failure=_incomplete(damaged))
                    observed = replace(observed, first=unproven, second=unproven)
                    judged = judge_observation(observed, by_pid.get(one.producer_id, ()), context)
            if judged.judgement.verdict is Verdict.HANGING:
                judged = with_outcome(judged, outcome(_outcome_evidence(judged, replica, logs, uncovered)))
            found.append(OpenInFiles(judged, replica, replica.log_end_offset - 1))
    return found


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
    on_all = min(r.log_end_offset for r in replicas) if missing_error(copies, key) is None else -1
    high_watermark = max(on_all, *(r.high_watermark for r in replicas))
    assigned = copies.latest.assigned(key) if copies.latest is not None else None
    read = FencedRead(
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
                records.append(decoded(raw))
            except UnknownRecord:
                continue
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
        first=FencedRead(-1),
        second=FencedRead(-1),
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
