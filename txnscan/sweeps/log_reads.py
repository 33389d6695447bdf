"""Read the outcomes of hanging transactions, and of live transactions that may have joined a commit: their first
batches, and the records of their ids in `__transaction_state`.

If the transactional id is known, its one partition of the log is read; for an orphan, all partitions are. Each log is
read from the leader that all brokers agree on before and after the read, at its leader epoch, from its start to its
high watermark. If the last record differs from the coordinator's description of the owner, the owner is described again
and the log is read further: the coordinator may have written more in the meantime (`verification.py`).
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from txnscan.coordinators.agreed_metadata import AgreedMetadata, LeaderUnknown
from txnscan.coordinators.cluster import Cluster
from txnscan.engine import Engine
from txnscan.kafka.answers import State
from txnscan.kafka.client.client import Send
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.kafka.protocol.api_versions import leader_epochs_rise
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.kafka.protocol.fetch import Fetched, fetch, fetch_beginnings
from txnscan.kafka.protocol.record_batch import Batch
from txnscan.kafka.security.needs import READ_TOPICS
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC, Partition
from txnscan.parallel import OnProgress
from txnscan.reads.observation import Observation
from txnscan.reads.planner import plan_logs, plan_proven
from txnscan.reads.proven_read import of_topic
from txnscan.reads.rows import ReadBatch
from txnscan.sweeps.log_facts import facts_of
from txnscan.sweeps.log_partition import Log
from txnscan.sweeps.reader import PROVEN_BATCH_SIZE
from txnscan.txnlog.decode import UnknownRecord
from txnscan.txnlog.facts import (
    NO_FACTS,
    Facts,
    LogRead,
    LogScan,
    ProducerFacts,
    RawRecord,
    SeenCommit,
    at_epoch,
)
from txnscan.txnlog.lineage import adds, bounded
from txnscan.txnlog.rows import LogRow
from txnscan.txnlog.scan import Records, log_failure
from txnscan.txnlog.task import ReadLog
from txnscan.txnlog.verification import (
    Described,
    dropped_decision,
    ended_since,
    orphan_contradiction,
    owner_contradiction,
)
from txnscan.verdict.evidence import Judged, OutcomeEvidence, Verdict

# Fetch returns the first batch whole, even if it is larger than the limit.
_FIRST_BATCH_BYTES = 1

# An owner may begin one transaction after another. It is described this often at most, to find a described state in the
# log.
_DESCRIBE_TRIES = 3


def read_outcomes(
    cluster: Cluster,
    engine: Engine,
    in_flight_max: int,
    before: AgreedMetadata,
    hanging: Sequence[Judged],
    stored: Facts,
    on_progress: OnProgress,
) -> list[OutcomeEvidence]:
    """The evidence for each of these transactions, in order. A failed read is part of the evidence.

    in_flight_max: how many logs are read from one broker at once. before: the metadata after the second read, of the
    topics and of the log. A leader that is deposed later has all that its log had at that time, so no metadata needs to
    confirm these reads. stored: the facts from earlier sweeps and applies.
    """
    if not hanging:
        return []
    # If no broker shows the log, a request for its first partition shows why.
    count = len(before.indexes(TRANSACTION_STATE_TOPIC)) or 1
    wanted = _wanted(hanging, count)
    first = first_batches(cluster, before, [judged.observation for judged in hanging])
    logs = _read_logs(cluster, engine, in_flight_max, before, wanted, stored, on_progress)
    of_each = [[logs[k] for k in _logs_of(judged, count)] for judged in hanging]
    said = _contradictions(cluster, list(zip(hanging, of_each, strict=True)))
    known = [stored.get(judged.observation.producer_id, NO_FACTS) for judged in hanging]
    earlier = [read for facts in known for read in facts.reads]
    cluster.in_parallel(lambda log: log.ask_epoch_ends(earlier), list(logs.values()))
    return [
        _evidence(judged, batch, logs_of_it, facts, contradiction)
        for judged, batch, logs_of_it, facts, contradiction in zip(hanging, first, of_each, known, said, strict=True)
    ]


def _read_logs(
    cluster: Cluster,
    engine: Engine,
    in_flight_max: int,
    before: AgreedMetadata,
    wanted: Mapping[int, frozenset[int]],
    stored: Facts,
    on_progress: OnProgress,
) -> dict[int, Log]:
    """These partitions of the log, by number, read for these producer ids.

    If earlier sweeps read a partition at the same leader epoch, only the records appended since are read. If these
    contain any of the producer ids, the whole partition is read again; and if it lacks the last record of an earlier
    read, for then it may be of another history (`restored.py`), and the whole shows the contradiction.
    """
    led: dict[int, Partition] = {}
    rows: dict[int, LogRow] = {}
    for k in wanted:
        nobody = Partition(TRANSACTION_STATE_TOPIC, "", k, leader=-1, leader_epoch=-1)
        try:
            led[k] = before.partition(TRANSACTION_STATE_TOPIC, k)
        except LeaderUnknown as failed:
            led[k] = nobody
            rows[k] = LogRow(k, log_failure(k, failed), unserved=True)
    asked = {led[k]: wanted[k] for k in wanted if k not in rows}
    facts = {log: [stored.get(one, NO_FACTS) for one in asked[log]] for log in asked}
    ends = {one: stored.get(one, NO_FACTS).scanned() for one in frozenset().union(*asked.values())}
    scanned = {log: min((ends[one].get(at_epoch(log), -1) for one in asked[log]), default=-1) for log in asked}
    reads = {log: _stored_reads(log, facts[log]) for log, offset in scanned.items() if offset >= 0}
    stands = cluster.in_parallel(lambda log: _has_last_of(cluster.send, log, reads[log].values()), reads)
    kept = {log: reads[log] for log, has in zip(reads, stands, strict=True) if has}
    known = {log: (scanned[log], tuple(sorted(reads))) for log, reads in kept.items()}

    def read(which: Mapping[Partition, frozenset[int]], known: Mapping[Partition, tuple[int, tuple[str, ...]]]) -> None:
        batches = plan_logs(which, in_flight_max=in_flight_max, known=known)
        if not batches:
            return
        # Reading a large log takes long, and progress is reported only after a whole batch of logs.
        on_progress(0, len(batches))
        found = engine.map(ReadLog(cluster.clients), batches, LogRow, on_progress)
        cluster.read_bytes += sum(row.read_bytes for row in found)
        rows.update({row.partition: row for row in found})

    read({log: asked[log] for log in kept}, known)
    unchanged = {log for log in kept if rows[log.partition].failure is None and not rows[log.partition].records}
    read({log: asked[log] for log in asked if log not in unchanged}, {})
    # All brokers have the features of one metadata log, so the broker with the newest image knows.
    rise = bool(asked) and leader_epochs_rise(cluster.send, before.views[0].answered_by)
    return {
        k: Log(cluster, led[k], rows[k], wanted[k], kept[led[k]] if led[k] in unchanged else {}, rise) for k in wanted
    }


def _stored_reads(log: Partition, facts: Iterable[ProducerFacts]) -> dict[str, LogRead]:
    """By transactional id, the last read of this log at its present leader epoch."""
    ours = at_epoch(log)
    found: dict[str, LogRead] = {}
    for read in (read for one in facts for read in one.reads):
        if (read.topic_id, read.partition, read.leader_epoch) == ours:
            before = found.get(read.transactional_id, read)
            found[read.transactional_id] = max(before, read, key=lambda one: one.end_offset)
    return found


def _has_last_of(send: Send, log: Partition, reads: Iterable[LogRead]) -> bool:
    """Whether the log still has the last record of each of these reads. (The last record of an id is compacted away
    only when a later one follows.)
    """
    last = [read.records[-1] for read in reads if read.records]
    try:
        return all(any(one.is_same(found) for found in _first_records(send, log, one)) for one in last)
    except (RequestFailed, UnknownRecord):
        return False


def _first_records(send: Send, log: Partition, one: RawRecord) -> Sequence[RawRecord]:
    """The records of the same id in the first batch from this record's offset on. Raises RequestFailed and
    UnknownRecord.
    """
    records = Records.of_ids([one.transactional_id])
    records.take_all(fetch(send, log, one.offset, _FIRST_BATCH_BYTES, records=True).batches, one.offset, None)
    return records.kept


def _contradictions(cluster: Cluster, hanging: Sequence[tuple[Judged, Sequence[Log]]]) -> list[Failure | None]:
    """For each hanging transaction, how the logs contradict the coordinators, or None. A log with a failure contradicts
    nothing. A live transaction needs no check: its verdict rests on a claim.

    Logs are checked in parallel; transactions that share a log are checked one after another.
    """
    of_owners: dict[int, list[int]] = defaultdict(list)
    said: list[Failure | None] = [None] * len(hanging)
    for number, (judged, logs) in enumerate(hanging):
        if judged.judgement.verdict is not Verdict.HANGING:
            continue
        logged = [record for log in logs for record in log.logged]
        said[number] = dropped_decision(judged.observation, logged)
        if said[number] is not None:
            continue
        if judged.evidence.coordinators:
            of_owners[id(logs[0])].append(number)
        else:
            said[number] = orphan_contradiction(judged.observation, logged)

    def ask(numbers: Sequence[int]) -> list[Failure | None]:
        return [_owner_contradiction(hanging[number][0], hanging[number][1][0]) for number in numbers]

    groups = list(of_owners.values())
    for group, answers in zip(groups, cluster.in_parallel(ask, groups), strict=True):
        for number, answer in zip(group, answers, strict=True):
            said[number] = answer
    return said


def _owner_contradiction(judged: Judged, log: Log) -> Failure | None:
    """The same for one transaction with a known id, and the log of that id."""
    o, first = judged.observation, Described.of(judged.evidence.coordinators[0])
    described, why = first, None
    for _ in range(_DESCRIBE_TRIES if log.failure is None else 0):
        logged = log.logged
        why = owner_contradiction(o, described, logged)
        if why is not None:
            described = log.describe(described)
            log.read_on()
            why = owner_contradiction(o, described, logged, log.logged[len(logged) :])
        if log.failure is not None:
            return None
        if why is None:
            return ended_since(o, first, log.logged)
    return why


def _logs_of(judged: Judged, count: int) -> tuple[int, ...]:
    """The partitions of the log that can contain the transaction's id."""
    names = {view.transactional_id for view in judged.evidence.coordinators}
    return tuple(sorted({coordinator_partition(name, count) for name in names})) if names else tuple(range(count))


def _wanted(hanging: Iterable[Judged], count: int) -> Mapping[int, frozenset[int]]:
    """The producer ids to look for in each partition of the log."""
    wanted: dict[int, set[int]] = defaultdict(set)
    for judged in hanging:
        for k in _logs_of(judged, count):
            wanted[k].add(judged.observation.producer_id)
    return {k: frozenset(wanted[k]) for k in sorted(wanted)}


def _evidence(
    judged: Judged,
    first: Batch | Failure,
    logs: Sequence[Log],
    stored: ProducerFacts,
    contradiction: Failure | None,
) -> OutcomeEvidence:
    o = judged.observation
    # A broker that loads this log may find records there that the coordinators did not report.
    unserved = next((log.failure for log in logs if log.unserved and log.failure is not None), None)
    live = [read for log in logs for read in log.reads(o.producer_id, stored.reads)]
    facts = facts_of(o.producer_id, live, stored.reads, stored.reads_before)
    commits = tuple(
        SeenCommit(view.transactional_id, view.producer_id, view.producer_epoch)
        for view in judged.evidence.coordinators
        if view.describe_failure is None
        and view.state == State.COMPLETE_COMMIT
        # A commit at a later epoch belongs to a later transaction; a busy owner makes many of these.
        and view.producer_epoch <= o.producer_epoch + 1
    )
    return OutcomeEvidence(
        observation=o,
        owner_epoch=max((view.producer_epoch for view in judged.evidence.coordinators), default=None),
        first_epoch=first.producer_epoch if isinstance(first, Batch) else None,
        first_sequence=first.base_sequence if isinstance(first, Batch) else None,
        batch_failure=first if isinstance(first, Failure) else None,
        logged=facts.logged,
        log_failure=next((log.failure for log in logs if log.failure is not None), facts.failure),
        contradiction=contradiction or unserved or facts.lost,
        vetoes=facts.vetoes,
        seen=stored + ProducerFacts(commits=commits),
        news=ProducerFacts(
            reads=tuple(bounded(read) for read in live if adds(bounded(read), stored.reads)),
            commits=tuple(commit for commit in commits if commit not in stored.commits),
            scans=_scans(logs, o.producer_id, stored),
        ),
    )


def _scans(logs: Sequence[Log], producer_id: int, stored: ProducerFacts) -> tuple[LogScan, ...]:
    """How far these logs were read for a producer id; empty if a scan of each of them is stored already."""
    scanned = [(log.partition, one) for log in logs if (one := log.scanned(producer_id)) is not None]
    before = stored.scanned()
    if all(before.get(at_epoch(log), -1) >= 0 for log, _ in scanned):
        return ()
    return (LogScan(scanned[0][0].topic_id, tuple(one for _, one in scanned)),)


def first_batches(
    cluster: Cluster, before: AgreedMetadata, transactions: Sequence[Observation]
) -> list[Batch | Failure]:
    """The first batch of each of these transactions, or why it is not known: of one transaction of each partition in
    one request to its leader, then of the others.
    """
    offsets: dict[Partition, int] = {}
    for o in transactions:
        with contextlib.suppress(LeaderUnknown):
            offsets.setdefault(before.partition(*o.key), o.start_offset)

    def ask(batch: ReadBatch) -> dict[Partition, Fetched | Failure]:
        try:
            return fetch_beginnings(cluster.send, {one: offsets[one] for one in batch.partitions})
        except RequestFailed as failed:
            return dict.fromkeys(batch.partitions, failed.failure)

    batches = plan_proven(offsets, batch_size=PROVEN_BATCH_SIZE, in_flight_max=1)
    begun = {
        (partition.key, offsets[partition]): found
        for answers in cluster.in_parallel(ask, batches)
        for partition, found in answers.items()
    }

    def first(o: Observation) -> Batch | Failure:
        found = begun.get((o.key, o.start_offset))
        if found is None or (isinstance(found, Fetched) and not found.batches):
            try:
                found = fetch(cluster.send, before.partition(*o.key), o.start_offset, _FIRST_BATCH_BYTES, records=False)
            except (RequestFailed, LeaderUnknown) as failed:
                found = failed.failure
        return _first_batch(o, found)

    return cluster.in_parallel(first, transactions)


def _first_batch(o: Observation, fetched: Fetched | Failure) -> Batch | Failure:
    if isinstance(fetched, Failure):
        return of_topic(fetched, READ_TOPICS, o.topic)
    for batch in fetched.batches[:1]:
        data = batch.is_transactional and not batch.is_control
        if data and (batch.base_offset, batch.producer_id) == (o.start_offset, o.producer_id):
            return batch
    gone = f"at offset {o.start_offset} there is no record of producer id {o.producer_id} any more"
    return Failure(gone, FailureCode.RECORD_GONE)
