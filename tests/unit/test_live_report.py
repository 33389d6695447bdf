"""Progress output of an apply, also if it is interrupted."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tests.builders import plan, stored
from tests.fakes.applying import FakeBrokers, FakeJournal
from txnscan.report.progress import TerminalProgress
from txnscan.report.resolution import LiveReport
from txnscan.resolve.apply import Status, apply_plan
from txnscan.resolve.plan import Action

TWO = plan(stored(), stored(incident_id="incident-2", partition=1))
DONE = (
    "resolved  ABORT p-{}\n"
    "  the marker was written and the transaction is gone: the last stable offset went from 100 to 105.\n"
)


def applied(breaks_at: tuple[str, int] | None, *, execute: bool = True) -> tuple[LiveReport, str]:
    """An apply of two markers, interrupted at this step of this partition, and its output."""
    out = io.StringIO()
    with TerminalProgress(Console(file=io.StringIO())) as progress:
        report = LiveReport(len(TWO.actions), progress, Console(file=out, width=200))

        def on_step(step: str, action: Action) -> None:
            report.on_step(step, action)
            if (step, action.partition) == breaks_at:
                raise KeyboardInterrupt

        try:
            apply_plan(
                TWO,
                FakeBrokers(),
                FakeJournal(),
                execute=execute,
                options=(),
                sleep=lambda seconds: None,
                on_step=on_step,
                on_result=report.on_result,
            )
        except KeyboardInterrupt:
            assert breaks_at is not None
    return report, out.getvalue()


def test_each_result_is_printed_at_once() -> None:
    report, out = applied(None)
    assert out == DONE.format(0) + DONE.format(1)
    assert [result.status for result in report.results] == [Status.RESOLVED] * 2


NOTHING, FIRST = "0 of 2 markers processed, 0 done", "1 of 2 markers processed, 1 done"
SO_FAR = [
    ("intend", 0, f"{NOTHING}; ABORT p-0 was under way: its marker was not sent; 1 not started"),
    ("prove", 0, f"{NOTHING}; ABORT p-0 was under way: its marker was not sent; 1 not started"),
    (
        "send",
        0,
        f"{NOTHING}; ABORT p-0 was under way: its marker may have been sent, and the next apply --execute checks it "
        "first; 1 not started",
    ),
    (
        "conclude",
        0,
        f"{FIRST}; the result of ABORT p-0 may not be in the journal, and the next apply --execute checks it; "
        "1 not started",
    ),
    ("look", 1, f"{FIRST}; ABORT p-1 was under way: its marker was not sent; 0 not started"),
]


@pytest.mark.parametrize(("step", "partition", "says"), SO_FAR)
def test_an_interrupted_apply_reports_its_finished_actions(step: str, partition: int, says: str) -> None:
    report, out = applied((step, partition))
    assert report.has_begun and report.so_far(executed=True) == says
    assert out == (DONE.format(0) if says.startswith(FIRST) else "")


def test_an_interrupted_dry_run_has_sent_nothing() -> None:
    report, _ = applied(("prove", 1), execute=False)
    assert report.so_far(executed=False) == f"{FIRST}; no marker was sent"
