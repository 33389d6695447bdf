"""The note of `find-hanging` about transactions that cannot become late without a memory of earlier runs."""

from __future__ import annotations

import pytest

from tests.builders import LATE_AFTER_MS, NOW_MS, judged, view
from txnscan.cli.find_hanging import _without_age

AHEAD, MISSING = NOW_MS + LATE_AFTER_MS, -1


@pytest.mark.parametrize(
    ("state", "last_timestamp_ms", "first_seen_ms", "counted"),
    [
        ("Empty", AHEAD, NOW_MS, 1),
        ("Empty", MISSING, NOW_MS, 1),
        # The record gives an age, and the transaction becomes late.
        ("Empty", NOW_MS - 1, NOW_MS, 0),
        ("Empty", NOW_MS - 2 * LATE_AFTER_MS, NOW_MS, 0),
        # Late already.
        ("Empty", AHEAD, NOW_MS - 2 * LATE_AFTER_MS, 0),
        # Not hanging.
        ("Ongoing", AHEAD, NOW_MS, 0),
    ],
)
def test_a_hanging_transaction_whose_records_give_no_age_is_counted(
    state: str, last_timestamp_ms: int, first_seen_ms: int, counted: int
) -> None:
    partitions = ("p-0",) if state == "Ongoing" else ()
    one = judged(view(state, 4, partitions), last_timestamp_ms=last_timestamp_ms, first_seen_ms=first_seen_ms)
    assert _without_age([one]) == counted
