"""Warn of markers that do not arrive, on partitions without an open transaction that shows it. Pure.

A coordinator stays in PrepareCommit or PrepareAbort until every partition has written its marker. Until then its
transactional id cannot begin another transaction. If such a partition shows the transaction open, its verdict is
`pending_marker`. But if the partition has no leader (Kafka 4.3 skips it then), or is closed already and refuses the
marker, a sweep sees no open transaction to judge. So it warns.

A warning is not a verdict and proves nothing: an id in Prepare* may complete a moment later. The age is the age of the
whole transaction, because brokers do not report when the end was decided.
"""

from __future__ import annotations

from collections.abc import Iterable

from txnscan.kafka.answers import PREPARED, CoordinatorView
from txnscan.kafka.units import first_of
from txnscan.verdict.evidence import Judged, Verdict
from txnscan.verdict.explanations import SENDS_AGAIN
from txnscan.verdict.predicates import held_by

_IDS_NAMED_MAX = 5
_PARTITIONS_NAMED_MAX = 3
_MINUTE_MS = 60_000


def stuck_marker_warning(
    prepared: Iterable[CoordinatorView], judged: Iterable[Judged], now_ms: int, late_after_ms: int
) -> tuple[str, ...]:
    """One warning about all ids in Prepare* whose transaction is older than the threshold and that wait for partitions
    without a `pending_marker` verdict for it. Empty if there are no such ids.
    """
    pending = {
        (view.transactional_id, one.observation.topic_partition)
        for one in judged
        if one.judgement.verdict is Verdict.PENDING_MARKER
        for view in held_by(one.evidence, *PREPARED)
    }
    oldest_first = sorted(
        (view for view in prepared if 0 <= view.start_time_ms < now_ms - late_after_ms),
        key=lambda view: (view.start_time_ms, view.transactional_id),
    )
    clauses = []
    for view in oldest_first:
        waits_for = [name for name in view.partitions if (view.transactional_id, name) not in pending]
        if waits_for or not view.partitions:
            clauses.append(_clause(view, waits_for, now_ms - view.start_time_ms))
    if not clauses:
        return ()
    named = first_of(clauses, _IDS_NAMED_MAX, more="more like it", separator="; ")
    return (
        f"{named}. If this persists, check why the partition accepts no writes. If it accepts writes, the coordinator "
        f"has stopped sending, because a partition refused a marker of this decision. {SENDS_AGAIN}",
    )


def _clause(view: CoordinatorView, waits_for: list[str], age_ms: int) -> str:
    names = first_of(waits_for, _PARTITIONS_NAMED_MAX, more="more partitions")
    where = f"{names}, where no open transaction of it was seen" if names else "no partition that it shows"
    return (
        f"transactional id '{view.transactional_id}' is in {view.state} for a transaction that began "
        f"{age_ms // _MINUTE_MS} minutes ago, and waits for {where}"
    )
