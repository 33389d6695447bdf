"""The duration of each stage of a sweep."""

from __future__ import annotations

from txnscan.engine.clock import StageTime, Stopwatch


def test_a_stage_lasts_until_the_next_stage_begins() -> None:
    reported: list[tuple[str, int, int]] = []
    at_s = iter((10.0, 12.5, 12.75, 13.0))
    watch = Stopwatch(lambda *progress: reported.append(progress), lambda: next(at_s))
    calls = [("plan", 0, 1), ("plan", 1, 1), ("read every partition", 0, 9), ("judge", 0, 1)]
    for call in calls:
        watch(*call)
    assert reported == calls
    assert watch.times() == (
        StageTime("plan", 2_500),
        StageTime("read every partition", 250),
        StageTime("judge", 250),
    )


def test_an_unreached_stage_has_no_time() -> None:
    assert Stopwatch(lambda *_: None).times() == ()
