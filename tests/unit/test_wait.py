"""`wait_until`, whose deadline counts ticks, and commands that run to their end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.process import run_to_end
from txnscan.demo.errors import DemoError
from txnscan.demo.wait import wait_until
from txnscan.kafka.errors import RequestFailed

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion


class Clock:
    """Time that passes only in calls of the condition and in pauses. asleep_s: how much longer each pause takes."""

    def __init__(self, asleep_s: float = 0.0) -> None:
        self.now_s = 1_000.0
        self.calls = 0
        self.asleep_s = asleep_s

    @property
    def waited_s(self) -> float:
        return self.now_s - 1_000.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds + self.asleep_s

    def condition(self, *, takes_s: float = 0.0, true_at: float = float("inf")) -> Callable[[], str | None]:
        """A condition that is true from the call `true_at` on."""

        def call() -> str | None:
            self.calls += 1
            self.now_s += takes_s
            return "answer" if self.calls >= true_at else None

        return call

    def wait(self, condition: Callable[[], str | None], timeout_s: float = 60.0, every_s: float = 0.05) -> str:
        return wait_until(
            condition, "it happened", timeout_s, every_s=every_s, monotonic_s=lambda: self.now_s, sleep=self.sleep
        )

    def waits_in_vain(self, condition: Callable[[], str | None], timeout_s: float = 60.0, every_s: float = 0.05) -> str:
        with pytest.raises(DemoError) as raised:
            self.wait(condition, timeout_s, every_s)
        return str(raised.value)


def test_a_true_condition_is_returned_without_a_pause() -> None:
    clock = Clock()
    assert clock.wait(clock.condition(true_at=1)) == "answer"
    assert (clock.calls, clock.waited_s) == (1, 0.0)


def test_the_condition_is_called_until_it_is_true() -> None:
    clock = Clock()
    assert clock.wait(clock.condition(true_at=4), every_s=0.5) == "answer"
    assert (clock.calls, clock.waited_s) == (4, 1.5)


@pytest.mark.parametrize(("takes_s", "every_s"), [(0.0, 0.25), (0.75, 0.25), (4.0, 2.0), (5.0, 0.5)])
def test_on_a_steady_machine_the_wait_ends_at_its_timeout(takes_s: float, every_s: float) -> None:
    clock = Clock()
    clock.waits_in_vain(clock.condition(takes_s=takes_s), every_s=every_s)
    assert 60.0 <= clock.waited_s < 60.0 + takes_s + every_s


def test_a_timeout_of_zero_calls_the_condition_once() -> None:
    clock = Clock()
    clock.waits_in_vain(clock.condition(), timeout_s=0.0)
    assert (clock.calls, clock.waited_s) == (1, 0.0)


def test_the_condition_is_called_once_more_after_the_last_pause() -> None:
    clock = Clock()
    assert clock.wait(clock.condition(true_at=2), timeout_s=1.0, every_s=1.0) == "answer"


def test_a_machine_asleep_in_every_pause_spends_two_intervals_for_each() -> None:
    clock = Clock(asleep_s=3_600.0)
    assert clock.wait(clock.condition(true_at=10), timeout_s=10.0, every_s=0.5) == "answer"
    assert clock.waited_s > 9 * 3_600
    clock.calls = 0
    clock.waits_in_vain(clock.condition(), timeout_s=10.0, every_s=0.5)
    assert clock.calls == 11


def test_a_machine_asleep_in_a_call_spends_five_seconds_for_it() -> None:
    clock = Clock()
    assert clock.wait(clock.condition(takes_s=3_600.0, true_at=12)) == "answer"
    clock.calls = 0
    clock.waits_in_vain(clock.condition(takes_s=3_600.0))
    assert clock.calls == 12


def test_slow_calls_prolong_the_wait_by_a_bounded_factor() -> None:
    """30 s is the timeout of a request: a broker that never answers is waited for six times as long."""
    clock = Clock()
    clock.waits_in_vain(clock.condition(takes_s=30.0))
    assert 5.5 * 60.0 < clock.waited_s < 6.5 * 60.0


def test_a_failed_request_counts_as_not_yet() -> None:
    clock = Clock()
    answers: list[str | None] = ["answer", None]

    def condition() -> str | None:
        if len(answers) == 2:
            answers.pop()
            raise RequestFailed("broker 2 is down")
        return answers.pop()

    assert clock.wait(condition) == "answer"


def test_the_error_names_the_awaited_event_and_the_last_failure(wording: SnapshotAssertion) -> None:
    def fails() -> str | None:
        raise RequestFailed("broker 2 is down")

    assert Clock().waits_in_vain(fails) == wording
    assert Clock().waits_in_vain(lambda: None).endswith("it happened")


def test_other_errors_end_the_wait() -> None:
    def fails() -> str | None:
        raise ValueError

    with pytest.raises(ValueError):
        Clock().wait(fails)


def test_a_command_runs_to_its_end_and_returns_its_output() -> None:
    ran = run_to_end([sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"])
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, "out\n", "err\n")


def test_an_endless_command_is_killed() -> None:
    with pytest.raises(DemoError):
        run_to_end([sys.executable, "-c", "import time; time.sleep(600)"], timeout_s=0.5)
