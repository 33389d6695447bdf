"""The numbers of an answer. Pure."""

from __future__ import annotations

from txnscan.config import shown_location
from txnscan.coordinators.transactions import Transaction
from txnscan.explain.answers.transaction_end import claimant
from txnscan.explain.cause import Numbers
from txnscan.explain.facts import Facts, PartitionFacts
from txnscan.kafka.answers import State
from txnscan.verdict.ending import timeout_end_ms
from txnscan.verdict.evidence import Judged
from txnscan.waiting.blocking import aborts_by_ms, end_of


def numbers_of(
    f: Facts, p: PartitionFacts | None, judged: Judged | None, *, group: str | None = None, failure: str | None = None
) -> Numbers:
    """The numbers of a partition and of a transaction on it."""
    o = judged.observation if judged is not None else None
    view = claimant(judged) if judged is not None else None
    start_ms = view.start_time_ms if view is not None and view.start_time_ms >= 0 else None
    timeout_ms = view.timeout_ms if view is not None else None
    by_ms = timeout_end_ms(start_ms, timeout_ms)
    ahead = p.ahead if p is not None else None
    return Numbers(
        group=group or f.symptom.group,
        checkpoint=shown_location(f.symptom.checkpoint) if f.symptom.checkpoint is not None else None,
        group_state=f.group_state,
        isolation_level=f.isolation_level,
        topic=p.topic if p is not None else f.symptom.topic,
        partition=p.partition if p is not None else f.symptom.partition,
        transactional_id=view.transactional_id if view is not None else f.symptom.transactional_id,
        producer_id=o.producer_id if o is not None else f.symptom.producer_id,
        producer_epoch=o.producer_epoch if o is not None else f.symptom.producer_epoch,
        owner_epoch=view.producer_epoch if view is not None else None,
        coordinator=view.broker_id if view is not None else f.coordinator,
        state=view.state if view is not None else None,
        verdict=judged.judgement.verdict.value if judged is not None else None,
        reason=judged.judgement.reason.value if judged is not None else None,
        start_offset=o.start_offset if o is not None else None,
        last_stable_offset=p.last_stable_offset if p is not None else None,
        high_watermark=p.high_watermark if p is not None else None,
        blocked_records=p.blocked_records if p is not None else None,
        committed_offset=p.committed if p is not None else None,
        lag=p.lag if p is not None else None,
        markers=ahead.markers if ahead is not None else None,
        aborted=ahead.aborted if ahead is not None else None,
        open_transactions=len(p.still_open) if p is not None else None,
        next_record_offset=ahead.record_at if ahead is not None else None,
        compacted=p.compacted if p is not None else None,
        tiered=p.tiered if p is not None and p.settings else None,
        partition_bytes=p.disk.partition_bytes if p is not None else None,
        usable_bytes=p.disk.usable_bytes if p is not None else None,
        started_at_ms=start_ms,
        timeout_ms=timeout_ms,
        ends_by_ms=end_of(judged, f.writes) if judged is not None else None,
        age_ms=judged.judgement.age_ms if judged is not None else None,
        overdue_ms=max(f.now_ms - by_ms, 0) if by_ms is not None else None,
        max_timeout_ms=f.max_timeout_ms,
        failure=failure,
        asked=f.asked,
    )


def numbers_of_id(f: Facts, one: Transaction, *, producer_epoch: int | None = None) -> Numbers:
    """The numbers of an id at its coordinator. producer_epoch: of the producer that logged the error."""
    blocker = f.blocker_of(one)
    return Numbers(
        transactional_id=one.transactional_id,
        producer_id=one.producer_id,
        producer_epoch=producer_epoch if producer_epoch is not None else f.symptom.producer_epoch,
        owner_epoch=one.producer_epoch,
        coordinator=one.coordinator,
        state=one.state,
        started_at_ms=one.start_time_ms,
        timeout_ms=one.timeout_ms,
        ends_by_ms=aborts_by_ms(one.start_time_ms, one.timeout_ms, blocker) if one.state == State.ONGOING else None,
        age_ms=one.age_ms,
        overdue_ms=one.overdue_ms,
        max_timeout_ms=f.max_timeout_ms,
        asked=f.asked,
    )
