"""Small builders for the nouns, with the defaults of kafka-semantics' scenarios: producer id 7, epoch 3, offset 100."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from txnscan.kafka.answers import CoordinatorView
from txnscan.kafka.failure import Failure, FailureCode, Permission, Unobserved
from txnscan.kafka.security.acls import UNKNOWN_PRINCIPAL, explained
from txnscan.reads.observation import Observation, ProvenRead
from txnscan.resolve.guard import Limits, StoredTransaction
from txnscan.resolve.plan import Plan, make_plan
from txnscan.sweeps.result import Scan
from txnscan.verdict.evidence import Context, Evidence, Judged, KnownOutcome, Outcome
from txnscan.verdict.rules import judge_observation

NOW_MS = 1_700_000_000_000
MINUTE_MS = 60_000
LATE_AFTER_MS = 20 * MINUTE_MS
P = "p-0"
Q = "q-0"


def said(failure: Failure | None, principal: str = UNKNOWN_PRINCIPAL) -> str | None:
    """A failure in words. None if there is no failure."""
    return None if failure is None else explained(failure, principal)


def lacks(permission: Permission, principal: str = UNKNOWN_PRINCIPAL) -> str:
    """The words of a failure in which only this permission is missing."""
    return explained(Failure("", "REFUSED", needs=permission), principal)


def failed(error: str, **changes: Any) -> Failure:
    """A failure in these words. If they name an error of the protocol, its code is the same."""
    return replace(Failure(error, error if error.isupper() else FailureCode.UNREACHABLE), **changes)


def unobserved(
    stage: str, error: str, broker: int | None = None, topic: str | None = None, partition: int | None = None
) -> Unobserved:
    """Something that could not be observed, with a failure in these words."""
    return Unobserved(stage, failed(error), broker, topic, partition)


def observation(**changes: Any) -> Observation:
    """Open through both reads, proven, old enough to be late. first_failure=x changes the first read, and so on."""
    base = Observation(
        topic="p",
        topic_id="t0",
        partition=0,
        producer_id=7,
        producer_epoch=3,
        coordinator_epoch=0,
        start_offset=100,
        last_timestamp_ms=NOW_MS - 60 * MINUTE_MS,
        last_sequence=4,
        leader=1,
        leader_epoch=5,
        first=ProvenRead(NOW_MS - 2_000, 105, 100, 100, 3, 4),
        second=ProvenRead(NOW_MS - 1_000, 105, 100, 100, 3, 4),
        first_seen_ms=NOW_MS - 60 * MINUTE_MS,
    )
    reads = {
        which: {
            field.name: changes.pop(f"{which}_{field.name}")
            for field in fields(ProvenRead)
            if f"{which}_{field.name}" in changes
        }
        for which in ("first", "second")
    }
    first, second = replace(base.first, **reads["first"]), replace(base.second, **reads["second"])
    return replace(base, first=first, second=second, **changes)


def view(state: str, epoch: int = 3, partitions: tuple[str, ...] = (), **changes: Any) -> CoordinatorView:
    """The answer of a proven coordinator about transactional id X."""
    base = CoordinatorView(
        transactional_id="X",
        broker_id=2,
        producer_id=7,
        producer_epoch=epoch,
        state=state,
        timeout_ms=15 * MINUTE_MS,
        start_time_ms=NOW_MS - MINUTE_MS,
        partitions=partitions,
    )
    return replace(base, **changes)


def context(**changes: Any) -> Context:
    """A complete snapshot."""
    return replace(Context(None, None, (), NOW_MS, LATE_AFTER_MS), **changes)


def evidence(*views: CoordinatorView, o: dict[str, Any] | None = None, c: dict[str, Any] | None = None) -> Evidence:
    """Evidence of these views; `o` and `c` change the observation and the context."""
    return Evidence(observation(**(o or {})), views, context(**(c or {})))


def judged(*views: CoordinatorView, **changes: Any) -> Judged:
    """An observation with these changes, judged by the real rules."""
    return judge_observation(observation(**changes), views, context())


def known(outcome: str = "not_committed", why: str = "'X' never committed", **changes: Any) -> KnownOutcome:
    """The outcome from a complete log."""
    return replace(KnownOutcome(Outcome(outcome), why), **changes)


def scan(*transactions: Judged, **changes: Any) -> Scan:
    """A complete sweep of one topic `p` with two partitions that found these transactions."""
    base = Scan(
        sweep_id="sweep-1",
        cluster_id="cluster-1",
        scope="all",
        started_at_ms=NOW_MS,
        finished_at_ms=NOW_MS + 500,
        late_after_ms=LATE_AFTER_MS,
        blocking_after_ms=LATE_AFTER_MS // 4,
        max_timeout_ms=15 * MINUTE_MS,
        brokers=3,
        partitions_planned=2,
        partitions_failed=0,
        producers=5,
        coordinators_planned=6,
        coordinators_proven=6,
        transactional_ids=4,
        visibility_failures=(),
        proven={("p", 0): "t0", ("p", 1): "t0"},
        transactions=transactions,
        errors=(),
        warnings=(),
        settings="{}",
        version="0.1.0",
    )
    found = replace(base, **changes)
    return found if "replicated" in changes else replace(found, replicated=frozenset(found.proven))


def stored(**changes: Any) -> StoredTransaction:
    """The same transaction in the tables. It hangs with a stale epoch and is not committed, so an abort is allowed."""
    base = StoredTransaction(
        incident_id="incident-1",
        topic="p",
        topic_id="t0",
        partition=0,
        producer_id=7,
        producer_epoch=3,
        coordinator_epoch=0,
        start_offset=100,
        verdict="hanging",
        reason="stale_epoch",
        outcome="not_committed",
        outcome_reason="'X' never committed at epoch 3",
        log_failure=None,
        transactional_id="X",
        owner_epoch=9,
        transaction_timeout_ms=15 * MINUTE_MS,
        blocked_records=5,
        explanation="Transactional id 'X' went on to epoch 9 (Empty).",
        first_seen_ms=NOW_MS - 60 * MINUTE_MS,
        swept_at_ms=NOW_MS,
        sweeps=2,
        late_after_ms=LATE_AFTER_MS,
        max_timeout_ms=15 * MINUTE_MS,
    )
    return replace(base, **changes)


def plan(*transactions: StoredTransaction, limits: Limits | None = None) -> Plan:
    """The plan for these of the sweep above, made at its time."""
    return make_plan(
        transactions,
        limits or Limits(),
        cluster_id="cluster-1",
        sweep_id="sweep-1",
        swept_at_ms=NOW_MS - MINUTE_MS,
        planned_at_ms=NOW_MS,
        version="0.1.0",
    )
