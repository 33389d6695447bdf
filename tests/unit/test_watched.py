"""The time that a transaction was watched, for any clock."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from tests.cases import Cases
from txnscan.engine.clock import BootTime, boot_time
from txnscan.resolve.watch_time import SweepTime, watched_ms
from txnscan.waiting.disk import JUMP_MS

MINUTE_MS = 60_000


def at(wall_min: float, boot_min: float | None = None, boot_id: str = "one") -> SweepTime:
    """A sweep of one minute that read the partition in the middle. minutes: its begin."""
    began_ms = round(wall_min * MINUTE_MS)
    boot = BootTime(boot_id, round((boot_min + 1) * MINUTE_MS)) if boot_min is not None else None
    return SweepTime(began_ms + MINUTE_MS // 2, began_ms, began_ms + MINUTE_MS, boot)


@dataclass(frozen=True)
class Case:
    why: str
    last: SweepTime
    seen: tuple[SweepTime, ...]
    minutes: float


CASES = (
    Case(
        "one boot, from the end of one sweep to the beginning of the other", at(20, 120), (at(0, 100), at(20, 120)), 19
    ),
    Case("another machine, by the wall clock", at(20, 120), (at(0, 7, "two"), at(20, 120)), 20),
    Case("no time since boot", at(20), (at(0), at(20)), 20),
    Case("the wall clock was set forward", at(90, 120), (at(0, 100), at(90, 120)), 19),
    Case("it was set back", at(5, 120), (at(0, 100), at(5, 120)), 19),
    Case(
        "where it was set, it does not count for other machines either", at(90, 120), (at(0, 100), at(0, 7, "two")), 19
    ),
    Case("it was corrected by seconds", at(20.5, 120), (at(0, 100), at(0, 7, "two")), 20.5),
    Case("the last sweep alone", at(20, 120), (at(20, 120),), 0),
    Case("no sweep", at(20, 120), (), 0),
)


def test_each_case_is_watched_for_the_specified_time() -> None:
    with Cases() as cases:
        for case in CASES:
            with cases.case(case.why):
                assert watched_ms(case.last, case.seen) == case.minutes * MINUTE_MS


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(-300, 300)), min_size=1, max_size=5))
def test_no_clock_of_a_single_machine_makes_a_transaction_older(made: list[tuple[int, int]]) -> None:
    sweeps = [at(minute + jump, minute) for minute, jump in sorted(made)]
    true_ms = max(minute for minute, _ in made) - min(minute for minute, _ in made)
    assert watched_ms(sweeps[-1], sweeps) <= true_ms * MINUTE_MS


def test_the_time_since_boot_is_consistent_or_missing() -> None:
    before, after = boot_time(), boot_time()
    if before is None or after is None:
        assert before is after
    else:
        assert before.boot_id == after.boot_id
        assert 0 <= after.since_boot_ms - before.since_boot_ms < JUMP_MS
