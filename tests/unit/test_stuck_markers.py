"""The warning about decisions with undelivered markers on partitions without an open transaction.

tests/brokers/test_undelivered.py has real brokers in this state.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.builders import LATE_AFTER_MS, MINUTE_MS, NOW_MS, P, Q, judged, view
from tests.fakes.cluster import FakeId
from tests.fakes.old_brokers import PRODUCER_IDS, FakeOld, open_on, swept_fake
from txnscan.kafka.answers import CoordinatorView
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.sweeps.stuck_markers import stuck_marker_warning
from txnscan.verdict.evidence import Judged

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

OLD_MS = NOW_MS - 42 * MINUTE_MS
WAITS = view("PrepareCommit", 4, (Q,), start_time_ms=OLD_MS)
# Open on p, with the verdict pending_marker.
REPORTED = judged(view("PrepareCommit", 4, (P, Q), start_time_ms=OLD_MS))


def warned(*prepared: CoordinatorView, judged: tuple[Judged, ...] = ()) -> str | None:
    warnings = stuck_marker_warning(prepared, judged, NOW_MS, LATE_AFTER_MS)
    assert len(warnings) <= 1
    return next(iter(warnings), None)


def test_a_decision_waiting_for_a_partition_is_warned_of_with_a_remedy(
    wording: SnapshotAssertion,
) -> None:
    said = warned(WAITS)
    assert said is not None and all(fact in said for fact in ("'X'", "PrepareCommit", "42 minutes", "q-0"))
    assert said == wording


@pytest.mark.parametrize(
    ("start_time_ms", "warns", "why"),
    [
        (NOW_MS - LATE_AFTER_MS - 1, True, "older than the threshold"),
        (NOW_MS - LATE_AFTER_MS, False, "not older"),
        (0, True, "as old as time itself"),
        (-1, False, "the coordinator knows no start"),
    ],
)
def test_only_decisions_older_than_the_threshold_are_warned_of(start_time_ms: int, warns: bool, why: str) -> None:
    assert (warned(replace(WAITS, start_time_ms=start_time_ms)) is not None) is warns, why


def test_a_partition_with_a_pending_marker_verdict_is_not_warned_of() -> None:
    assert warned(replace(WAITS, partitions=(P,)), judged=(REPORTED,)) is None
    said = warned(replace(WAITS, partitions=(P, Q)), judged=(REPORTED,))
    assert said is not None and "waits for q-0," in said and P not in said


def test_a_pending_marker_of_another_id_does_not_suppress_the_warning() -> None:
    assert warned(replace(WAITS, transactional_id="Y", partitions=(P,)), judged=(REPORTED,)) is not None


def test_another_verdict_on_the_partition_does_not_suppress_the_warning() -> None:
    gone = judged(WAITS, second_start_offset=None, second_producer_epoch=None, second_last_sequence=None)
    assert gone.judgement.verdict == "gone"
    assert warned(replace(WAITS, partitions=(P,)), judged=(gone,)) is not None


def test_an_id_without_partitions_still_waits() -> None:
    assert "waits for no partition" in str(warned(replace(WAITS, partitions=())))


def test_five_ids_are_named_oldest_first_and_the_rest_counted() -> None:
    ids = [replace(WAITS, transactional_id=f"id-{n}", start_time_ms=OLD_MS - n * MINUTE_MS) for n in range(7)]
    said = str(warned(*ids))
    assert [f"'id-{n}'" in said for n in range(7)] == [False, False, True, True, True, True, True]
    assert said.index("'id-6'") < said.index("'id-2'") and "and 2 more like it" in said
    assert "more like it" not in str(warned(*ids[:5]))


def test_three_partitions_of_an_id_are_named_and_the_rest_counted() -> None:
    said = str(warned(replace(WAITS, partitions=tuple(f"q-{n}" for n in range(5)))))
    assert "q-0, q-1, q-2 and 2" in said


# --- a whole sweep


def test_a_warning_does_not_change_verdicts() -> None:
    fake = FakeOld({})
    plain = swept_fake(fake)
    (k,) = fake.cached[2]
    name = next(n for n in map("waits-{}".format, range(99)) if coordinator_partition(n, len(fake.brokers)) == k)
    assert 8 not in PRODUCER_IDS.values()
    fake.ids.setdefault(2, {})[name] = FakeId(8, 4, "PrepareAbort", (("data", 1),), start_time_ms=1_600_000_000_000)
    warned = swept_fake(fake)
    assert (open_on(warned), warned.complete, warned.errors) == (open_on(plain), plain.complete, plain.errors)
    assert plain.warnings == ()
    (warning,) = warned.warnings
    assert warning.startswith(f"transactional id '{name}' is in PrepareAbort") and "waits for data-1," in warning
