"""When and how a transaction ends, in words. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from txnscan.coordinators.transactions import Transaction
from txnscan.explain.facts import Facts
from txnscan.kafka.answers import PREPARED, TWO_PHASE_COMMIT_TIMEOUT_MS, CoordinatorView, State
from txnscan.kafka.units import duration
from txnscan.verdict.ending import coordinator_aborts, timeout_end_ms, utc_time
from txnscan.verdict.evidence import Judged, Reason, Verdict
from txnscan.verdict.predicates import TIMEOUT_SLACK_MS, held_by
from txnscan.waiting.blocking import aborts_by_ms
from txnscan.waiting.writability import WriteState


def claimant(judged: Judged) -> CoordinatorView | None:
    """The coordinator that claims it."""
    held = held_by(judged.evidence, State.ONGOING, *PREPARED)
    return held[0] if held else None


def how_it_ends(f: Facts, judged: Judged) -> str:
    """The words after "a transaction": its owner and its end."""
    verdict, view = judged.judgement.verdict, claimant(judged)
    if verdict is Verdict.HANGING:
        return "that hangs: no coordinator will end it"
    if verdict is Verdict.INDETERMINATE:
        return "that may hang, which is not proven"
    if view is None:
        return "that its coordinator will end"
    if verdict is Verdict.PENDING_MARKER and (stopped := f.writes.blocker_of(judged)) is not None:
        return f"of '{view.transactional_id}' that is decided, and {cannot_end(stopped)}"
    if verdict is Verdict.PENDING_MARKER:
        late = ", and is overdue" if judged.judgement.reason is Reason.STUCK else ""
        return f"of '{view.transactional_id}' that is decided: its marker is owed{late}"
    if (blocker := f.writes.blocker_of(judged)) is not None:
        return f"of '{view.transactional_id}' that {cannot_end(blocker)}"
    torn = ", and its abort would delete committed records" if judged.endangers_commit else ""
    return f"of '{view.transactional_id}'{end_in_words(f.now_ms, view.start_time_ms, view.timeout_ms)}{torn}"


def cannot_end(blocker: WriteState) -> str:
    """The end of a transaction that this partition holds back, after "that"."""
    if blocker.takes_writes is None:
        return f"can end only if {blocker.name} takes writes, which is not known"
    return f"cannot end: {blocker.name} {'has no leader' if blocker.replicas.has_no_leader else 'takes no writes'}"


def due(f: Facts, one: Transaction | CoordinatorView, blocker: WriteState | None) -> str | None:
    """When a live transaction ends at the latest: the time that is left, and the time. None if that is not known."""
    by_ms = aborts_by_ms(one.start_time_ms, one.timeout_ms, blocker)
    if by_ms is None:
        return None
    left_ms = by_ms - f.now_ms
    return f"in {duration(left_ms)} ({utc_time(by_ms)})" if left_ms > 0 else "at any moment"


def end_in_words(now_ms: int, start_ms: int | None, timeout_ms: int | None) -> str:
    """The end of a live transaction, right behind its name."""
    if timeout_ms == TWO_PHASE_COMMIT_TIMEOUT_MS:
        return " that has no timeout: it takes part in a two-phase commit, and only its external coordinator ends it"
    by_ms = timeout_end_ms(start_ms, timeout_ms)
    if by_ms is None:
        return " that its coordinator will end"
    if by_ms + TIMEOUT_SLACK_MS < now_ms:
        overdue = duration(now_ms - by_ms)
        return f" that is past its timeout, {utc_time(by_ms)}, by {overdue}: its coordinator should have aborted it"
    return f": {coordinator_aborts(by_ms, now_ms)}"


def time_of_day(at_ms: int, now_ms: int) -> str:
    """A time of the day; with its date if that is not today."""
    at = datetime.fromtimestamp(at_ms / 1_000, UTC)
    same_day = at.date() == datetime.fromtimestamp(now_ms / 1_000, UTC).date()
    return f"{at:%H:%M:%S} UTC" if same_day else f"{at:%Y-%m-%d %H:%M:%S} UTC"
