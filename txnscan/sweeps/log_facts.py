"""What reads of the transaction log and stored facts say about a transaction. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from txnscan.kafka.failure import Failure, FailureCode
from txnscan.txnlog.decode import UnknownRecord, all_decoded, decoded
from txnscan.txnlog.facts import ClosedProducer, LoggedTransaction, LogRead, ProducerFacts, RawRecord
from txnscan.txnlog.lineage import joined, newest_of
from txnscan.verdict.evidence import OutcomeEvidence


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The facts from reads of the log about all ids that ever had a producer id (see OutcomeEvidence).

    failure: why a stored record cannot be decoded, or None.
    """

    logged: tuple[LoggedTransaction, ...] = ()
    vetoes: tuple[LoggedTransaction, ...] = ()
    lost: Failure | None = None
    failure: Failure | None = None


def facts_of(
    producer_id: int, live: Sequence[LogRead], stored: Sequence[LogRead], before: Sequence[LogRead] = ()
) -> LogFacts:
    """The combined facts of these reads.

    live: the reads of this sweep, one for each id. If an id has no such read, its stored reads are used only as vetoes.
    before: reads of earlier histories. Their records are vetoes, except those that are in the log of now.
    """
    now = {read.transactional_id: read for read in live}
    logged: list[LoggedTransaction] = []
    vetoes: list[LoggedTransaction] = []
    others = [(read, record) for read in before for record in read.records]
    lost = None
    for name, reads in sorted(_by_id((*live, *stored)).items()):
        found = joined(now.get(name), reads)
        lost = lost or found.lost
        try:
            current = [
                replace(
                    one,
                    stored_by=found.stored_by.get(one.offset),
                    acknowledged=one.offset in found.acknowledged,
                    log_epoch=now[name].leader_epoch,
                    epochs_rise=now[name].epochs_rise,
                )
                for one in all_decoded(found.current)
            ]
            vetoes += all_decoded(found.others)
        except UnknownRecord as unknown:
            return _undecoded(name, unknown)
        if any(record.producer_id == producer_id for record in current):
            logged += current
            ours = {record.offset: record for record in found.current}
            others = [(read, record) for read, record in others if not _is_in(read, record, now[name], ours)]
    for read, record in others:
        try:
            vetoes.append(decoded(record))
        except UnknownRecord as unknown:
            return _undecoded(read.transactional_id, unknown)
    return LogFacts(tuple(logged), tuple(dict.fromkeys(vetoes)), lost)


def _is_in(read: LogRead, record: RawRecord, newest: LogRead, current: Mapping[int, RawRecord]) -> bool:
    """Whether the log of now has the record of this read of an earlier history."""
    same = (read.topic_id, read.partition) == (newest.topic_id, newest.partition)
    return same and record.is_same(current.get(record.offset))


def _undecoded(name: str, unknown: UnknownRecord) -> LogFacts:
    error = f"a stored record of '{name}' cannot be decoded: {unknown}"
    return LogFacts(failure=Failure(error, FailureCode.UNKNOWN_RECORD))


def stored_facts(producer_id: int, seen: ProducerFacts) -> LogFacts:
    """The facts of stored reads, if no broker is asked. The newest read of each id stands for the current log."""
    newest = map(newest_of, _by_id(seen.reads).values())
    live = [read for read in newest if read is not None]
    return facts_of(producer_id, live, seen.reads, seen.reads_before)


def _by_id(reads: Iterable[LogRead]) -> dict[str, list[LogRead]]:
    found: dict[str, list[LogRead]] = defaultdict(list)
    for read in reads:
        found[read.transactional_id].append(read)
    return found


def with_closed(evidence: OutcomeEvidence, closed: Iterable[ClosedProducer]) -> OutcomeEvidence:
    """The evidence with the closed producers of this sweep that can be about the open data (`signs_of_loss.py`)."""
    o = evidence.observation
    first = o.producer_epoch if evidence.first_epoch is None else evidence.first_epoch
    ours = tuple(
        one
        for one in closed
        if one.producer_id == o.producer_id and first <= one.producer_epoch <= o.producer_epoch + 1
    )
    news = tuple(one for one in ours if one not in evidence.seen.closed)
    return replace(
        evidence,
        seen=evidence.seen + ProducerFacts(closed=ours),
        news=evidence.news + ProducerFacts(closed=news),
    )


def signed(evidence: OutcomeEvidence, sweep_id: str, swept_at_ms: int) -> OutcomeEvidence:
    """The evidence, with this sweep recorded as the origin of its reads."""
    reads = tuple(replace(read, sweep_id=sweep_id, swept_at_ms=swept_at_ms) for read in evidence.news.reads)
    return replace(evidence, news=replace(evidence.news, reads=reads))


def with_stored(evidence: OutcomeEvidence, seen: ProducerFacts) -> OutcomeEvidence:
    """The evidence of a sweep, with its log as the stored facts alone show it."""
    facts = stored_facts(evidence.observation.producer_id, seen)
    return replace(
        evidence,
        logged=facts.logged,
        log_failure=evidence.log_failure or facts.failure,
        contradiction=facts.lost,
        vetoes=facts.vetoes,
        seen=seen,
    )
