"""A rolling restart under transactions of Java clients: with the check between the steps no commit is torn, and without
it some are. `rolling.py` has the steps; docs/prevention.md has the figures of more runs.
"""

from __future__ import annotations

import pytest

from tests.brokers.rolling import SOLOS, rolled
from txnscan.waiting import before_stop

_ROLLS_MAX = 4


def test_a_rolling_restart_tears_no_commit_if_each_step_was_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    # A paused writer counts as at work for less than a minute, so that the test is shorter. Its transactions last less.
    monkeypatch.setattr(before_stop, "RECENT_MS", 5_000)
    assert rolled(checked=True) == []


def test_a_rolling_restart_without_the_check_tears_commits() -> None:
    """Only of topics with one replica, and nearly always: a writer must be between its writes and its commit."""
    torn = next((found for _ in range(_ROLLS_MAX) if (found := rolled(checked=False))), [])
    assert torn and {*torn} <= {f"{topic}-0" for topic in SOLOS}
