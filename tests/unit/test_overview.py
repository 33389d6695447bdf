"""The short tables of a sweep: a table for each event, a line for each transaction, in 80 columns."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tests.builders import judged, scan, view
from txnscan.report.impact import impact_sentences
from txnscan.report.json import scan_object
from txnscan.report.overview import ROWS_MAX, grouped
from txnscan.report.sweep import print_sweep

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

EVIL = "\x1b[31mred\nhanging (orphan)\u202e[bold]x[/bold]"


def transaction(topic: str, partition: int = 0, **changes: Any) -> dict[str, Any]:
    """A hanging transaction that is late, of event e1."""
    (made,) = scan_object(scan(judged(view("Empty", 9))))["transactions"]
    of_event = {"event_id": "e1" + "0" * 30, "cause": "marker_missing", "cause_reason": "its marker is missing"}
    return {**made, **of_event, "topic": topic, "partition": partition, "late": True, **changes}


def shown(transactions: Sequence[dict[str, Any]], every: bool = False, verbose: bool = False) -> list[str]:
    found = scan_object(scan())
    found["sweep"]["counts"]["hanging"] = len(transactions)
    output = io.StringIO()
    console = Console(file=output, width=80, highlight=False, color_system=None)
    print_sweep(console, {**found, "transactions": list(transactions)}, every=every, verbose=verbose)
    return output.getvalue().splitlines()


def tables(lines: Sequence[str]) -> list[list[str]]:
    """The names of partitions in each table."""
    found = []
    for start, line in enumerate(lines, 1):
        if line.endswith("  PARTITION"):
            rows = takewhile(lambda row: row.startswith("  ") and not row.startswith("  and "), lines[start:])
            found.append([row.split()[-1] for row in rows])
    return found


def test_an_event_is_one_table_with_a_line_for_each_partition(wording: SnapshotAssertion) -> None:
    groups = [{"group": "billing", "reason": "at_lso", "committed_offset": 1, "lag": 2, "partitions": ()}]
    of_event = [
        transaction("orders", n, age_ms=9_000 - n, outcome=outcome, outcome_reason=f"record {n}", blocked_groups=groups)
        for n, outcome in enumerate(("committed", "not_committed", "committed"))
    ]
    lines = shown([*of_event, transaction("clicks", event_id="e2", cause="late_write", age_ms=1)])
    assert tables(lines) == [["orders-0", "orders-1", "orders-2"], ["clicks-0"]]
    assert "\n".join(lines) == wording


def test_an_event_of_several_transactions_has_all_causes_that_are_known() -> None:
    for causes, words in (
        (["never_added", "never_added"], ["never added"]),
        (["never_added", "marker_missing"], ["lack a marker", "never added"]),
        (["never_added", "unknown"], ["never added", "not known"]),
        (["unknown", "unknown"], []),
    ):
        of_event = [transaction("orders", n, cause=cause, cause_reason=f"reason {n}") for n, cause in enumerate(causes)]
        lines = [line for line in shown(of_event) if "Cause:" in line]
        assert len(lines) == bool(words)
        assert all(word in line for line in lines for word in words)


def waited_for(*names: str) -> dict[str, Any]:
    return {
        "blocked_groups": [{"group": one, "reason": "at_lso", "committed_offset": 1, "lag": 2} for one in names],
        "groups_blocked": len(names),
    }


def test_the_event_that_blocks_most_readers_comes_first() -> None:
    """By the distinct groups and queries of all its partitions; then late ones, blocked records and age."""
    query = {"blocked_readers": [{"path": "/q"}], "readers_blocked": 1}
    events = [
        transaction("old", event_id="e1", age_ms=9_000_000, blocked_records=900),
        transaction("much", event_id="e2", age_ms=10, blocked_records=5_000),
        transaction("young", event_id="e3", age_ms=1, late=False, candidate=False, blocked_records=9_000),
        transaction("one", 0, event_id="e4", **waited_for("a", "b")),
        transaction("many", 0, event_id="e5", age_ms=2, late=False, candidate=False, **waited_for("a")),
        transaction("many", 1, event_id="e5", age_ms=1, **waited_for("b"), **query),
        transaction("cut", event_id="e6", blocked_groups=[], groups_blocked=101),
        transaction("not known", event_id="e7", groups_blocked=None, age_ms=0, blocked_records=None),
    ]
    order = [group[0]["topic"] for group in grouped([*events[4:], *events[:4]])]
    assert order == ["cut", "many", "one", "much", "old", "not known", "young"]


def test_lines_fit_into_80_columns() -> None:
    lines = shown([transaction("payments", outcome="maybe_committed", outcome_reason="x", groups_blocked=12_345)])
    assert max(len(line) for line in lines if line.endswith(("PARTITION", "payments-0"))) <= 80


def test_a_paragraph_names_an_earlier_transaction_once() -> None:
    """Whether the impact was examined or not."""
    for changes in ({}, {"cause": None, "groups_asked": None}, {"groups_asked": 0}):
        later = transaction("orders", holds_lso=False, **changes)
        said, *_ = impact_sentences(later)
        lines = shown([later], verbose=True)
        assert [said in line for line in lines].count(True) == 1
        assert not any("last stable offset" in line for line in lines)


def test_columns_without_any_value_are_left_out() -> None:
    (header,) = [line for line in shown([transaction("orders")]) if line.endswith("PARTITION")]
    assert "OUTCOME" not in header and "GROUPS" not in header and "LATE" in header


def test_other_verdicts_have_a_table_for_each_reason_and_explanation() -> None:
    unsure: dict[str, Any] = {"verdict": "indeterminate", "event_id": None, "cause": None}
    of = [
        transaction("orders", 1, **unsure, reason="coverage", explanation="broker 3"),
        transaction("orders", 2, **unsure, reason="coverage", explanation="broker 3"),
        transaction("orders", 3, **unsure, reason="split", explanation="two answers"),
    ]
    lines = shown(of)
    assert tables(lines) == [["orders-1", "orders-2"], ["orders-3"]]
    assert sum("broker 3" in line for line in lines) == 1


def test_healthy_transactions_are_shown_on_request() -> None:
    healthy = [transaction("orders", verdict="ongoing", reason="owned", event_id=None)]
    assert (tables(shown(healthy)), tables(shown(healthy, every=True))) == ([], [["orders-0"]])


def test_a_long_table_is_cut_and_counts_the_rest() -> None:
    lines = shown([transaction("orders", n) for n in range(ROWS_MAX + 7)])
    assert len(tables(lines)[0]) == ROWS_MAX
    assert any("7 more partitions" in line for line in lines)


def test_names_cannot_add_lines_or_control_characters() -> None:
    evil = transaction(EVIL, transactional_id=EVIL, owner_id=EVIL, explanation=EVIL)
    plain = transaction("orders", transactional_id="x", owner_id="x", explanation="x")
    assert len(shown([evil])) == len(shown([plain]))
    assert all(line.isprintable() for line in shown([evil]))
