"""A sweep as JSON with stable names, and as text in which foreign names are escaped."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from tests.builders import MINUTE_MS, NOW_MS, P, failed, judged, known, scan, unobserved, view
from tests.cases import Cases
from tests.fakes.write_states import LOG, state
from tests.printed import shown
from txnscan.kafka.failure import Permission
from txnscan.kafka.units import brokers_named, duration, first_of
from txnscan.report import paragraphs
from txnscan.report import sweep as sweep_report
from txnscan.report.impact import time_of
from txnscan.report.json import dumps, scan_object, stored_object
from txnscan.report.offline import commands
from txnscan.report.plain import error_lines, iso_utc
from txnscan.report.sweep import print_sweep
from txnscan.sweeps.column import epoch_ms
from txnscan.sweeps.restored import Fall, Sign
from txnscan.tables.schema import OPEN_TRANSACTIONS, SCAN_ERRORS, SWEEPS
from txnscan.verdict.evidence import Judged, KnownOutcome, Outcome, Verdict
from txnscan.verdict.outcome import with_outcome
from txnscan.waiting.impact import BlockedGroup, BlockReason, Impact
from txnscan.waiting.owner import live_owner_of
from txnscan.waiting.writability import UNREAD, WriteStates

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from txnscan.sweeps.result import Scan

# design.md, 'Commands': the object that `sweep --format json` and `find-hanging --format json` print.
SWEEP = {"sweep_id", "cluster_id", "started_at", "finished_at", "complete", "partitions", "coordinators", "counts"}
# Fields outside the contract. New names need a decision.
SWEEP_MORE = {
    *("candidates", "scope", "late_after_ms", "blocking", "blocking_after_ms", "warnings", "stages"),
    *("engine", "engine_reason", "history", "went_back", "vetoes_dropped"),
}
TRANSACTION = {
    *("topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch", "start_offset"),
    *("last_timestamp_ms", "verdict", "reason", "late", "outcome", "transactional_id", "coordinator_state"),
    "explanation",
}
ERROR = {"stage", "broker", "topic", "partition", "code", "error"}
EVIL_ID = "\x1b[31mred\nhanging (orphan)\r\u202e[bold]x[/bold]"
EVIL_SHOWN = "\\x1b[31mred\\nhanging (orphan)\\r\\u202e[bold]x[/bold]"


def hanging(**changes: Any) -> Judged:
    return judged(view("Empty", 9, transactional_id=changes.pop("transactional_id", "X")), **changes)


# --- JSON -------------------------------------------------------------------------------------------------------------


def test_the_object_has_the_fields_of_the_contract() -> None:
    found = json.loads(dumps(scan_object(scan(hanging(), errors=(unobserved("read", "x", 1, "p", 1),)))))
    assert set(found) == {"sweep", "transactions", "errors"}
    assert set(found["sweep"]) == SWEEP | SWEEP_MORE
    assert set(found["sweep"]["partitions"]) == {"planned", "answered", "failed"}
    assert set(found["sweep"]["coordinators"]) == {"planned", "proven"}
    assert set(found["sweep"]["counts"]) == {verdict.value for verdict in Verdict}
    assert set(found["transactions"][0]) >= TRANSACTION
    assert set(found["errors"][0]) == ERROR


def test_the_object_has_the_values_of_the_sweep() -> None:
    found = json.loads(
        dumps(
            scan_object(
                scan(
                    with_outcome(hanging(), KnownOutcome(Outcome.NOT_COMMITTED, "it was aborted")),
                    judged(view("PrepareCommit", 4, (P,)), partition=0),
                    partitions_failed=1,
                    errors=(unobserved("snapshot", "no"),),
                )
            )
        )
    )
    sweep, (first, second), (error,) = found["sweep"], found["transactions"], found["errors"]
    assert sweep["started_at"] == "2023-11-14T22:13:20.000Z" and sweep["finished_at"] == "2023-11-14T22:13:20.500Z"
    assert sweep["partitions"] == {"planned": 2, "answered": 1, "failed": 1}
    assert (sweep["complete"], sweep["candidates"]) == (False, 1)
    assert {v: n for v, n in sweep["counts"].items() if n} == {"hanging": 1, "pending_marker": 1}
    assert (first["topic"], first["partition"], first["verdict"], first["reason"], first["late"]) == (
        *("p", 0, "hanging", "stale_epoch"),
        True,
    )
    assert (first["transactional_id"], first["coordinator_state"]) == ("X", "Empty")
    assert (first["outcome"], first["outcome_reason"]) == ("not_committed", "it was aborted")
    assert (first["coordinator_epoch"], first["producer_epoch"], first["start_offset"]) == (0, 3, 100)
    assert second["outcome"] is None
    assert error == {
        "stage": "snapshot",
        "broker": None,
        "topic": None,
        "partition": None,
        "code": "UNREACHABLE",
        "error": "no",
    }


def test_an_undescribed_owner_has_no_state_and_no_epoch() -> None:
    found = scan_object(scan(judged(view("", -1, describe_failure=failed("NOT_COORDINATOR")))))["transactions"][0]
    assert (found["transactional_id"], found["coordinator"]) == ("X", 2)
    assert (found["coordinator_state"], found["coordinator_producer_epoch"]) == (None, None)


@pytest.mark.parametrize("transactional_id", [EVIL_ID, "ä日本😀", '","verdict":"gone', "\x00\x9b"])
def test_json_is_ascii_and_preserves_any_id(transactional_id: str) -> None:
    text = dumps(scan_object(scan(hanging(transactional_id=transactional_id))))
    assert text.isascii() and all(c.isprintable() for line in text.split("\n") for c in line)
    (found,) = json.loads(text)["transactions"]
    assert found["transactional_id"] == transactional_id and transactional_id in found["explanation"]


def test_a_sweep_from_the_tables_is_the_same_object() -> None:
    fresh = scan(hanging(), errors=(unobserved("read", "x", 1, "p", 1),))
    (row,) = SWEEPS.rows(fresh, [fresh])
    errors = SCAN_ERRORS.rows(fresh, fresh.errors)
    stored = stored_object(row, OPEN_TRANSACTIONS.rows(fresh, fresh.transactions), errors)
    assert dumps(stored) == dumps(scan_object(fresh))


def test_the_failure_to_read_the_transaction_log_is_an_object_in_json() -> None:
    needs = Permission("Read", "Topic", "__transaction_state")
    lost = with_outcome(hanging(), known("unknown", log_failure=failed("REFUSED", needs=needs)))
    found = json.loads(dumps(scan_object(scan(lost))))
    (row,) = found["transactions"]
    assert row["log_failure"] == asdict(failed("REFUSED", needs=needs))
    assert shown(found) == shown(scan(lost))


def test_a_value_without_a_json_form_is_an_error() -> None:
    with pytest.raises(TypeError, match="object has no JSON form"):
        dumps({"x": object()})


def test_times_are_utc_to_the_millisecond() -> None:
    assert iso_utc(NOW_MS + 7) == "2023-11-14T22:13:20.007Z"


# --- text -------------------------------------------------------------------------------------------------------------


def test_a_hanging_transaction_is_shown_with_its_impact_and_reason(wording: SnapshotAssertion) -> None:
    text = shown(scan(hanging()))
    assert text == wording


def test_verdicts_are_sorted_by_urgency() -> None:
    text = shown(
        scan(
            judged(view("PrepareCommit", 4, (P,))),
            judged(second_failure=failed("NOT_LEADER_OR_FOLLOWER"), partition=1),
            hanging(first_seen_ms=NOW_MS, last_timestamp_ms=NOW_MS, producer_id=8),
            hanging(producer_id=9),
        )
    )
    places = [text.index(f"producer id {n}, epoch 3") for n in (9, 8)]
    places += [text.index("indeterminate (partition)"), text.index("pending_marker (")]
    assert places == sorted(places)
    assert "not late yet" in text


@pytest.mark.parametrize(("start_offset", "blocks"), [(100, True), (101, False)])
def test_only_a_transaction_at_the_last_stable_offset_blocks_records(start_offset: int, blocks: bool) -> None:
    (row,) = scan_object(scan(judged(view("Ongoing", 3, (P,)), start_offset=start_offset)))["transactions"]
    assert (row["holds_lso"], row["last_stable_offset"]) == (blocks, 100) and row["blocked_records"] > 0
    assert ("blocks" in paragraphs.where(row, iso_utc(NOW_MS)).plain) is blocks


@pytest.mark.parametrize(("every", "expected"), [(False, False), (True, True)])
def test_healthy_transactions_are_shown_only_on_request(every: bool, expected: bool) -> None:
    text = shown(scan(judged(view("Ongoing", 3, (P,)))), every=every)
    assert ("ongoing (owned)" in text) is expected
    assert "1 open transaction: 1 ongoing." in text


def live(partition: int, age_ms: int, **changes: Any) -> Judged:
    """A live transaction of a Flink job's id."""
    times = {"start_time_ms": NOW_MS - age_ms, "timeout_ms": 60 * MINUTE_MS, **changes}
    claim = view("Ongoing", partitions=(f"p-{partition}",), transactional_id="sink-0-42", **times)
    return judged(claim, partition=partition)


def blocking() -> Scan:
    """A sweep with a live transaction on two partitions that a group waits for, and a live one that is only counted."""
    groups = (BlockedGroup("billing", BlockReason.AT_LSO, "Stable", 100, 5),)
    seen = [live(0, 30 * MINUTE_MS), live(1, 30 * MINUTE_MS), live(2, MINUTE_MS)]
    impacts = {
        one.observation.transaction_key: Impact(
            *(None, None, live_owner_of(one)), groups=groups, groups_blocked=1, groups_asked=4
        )
        for one in seen[:2]
    }
    return scan(*seen, hanging(partition=3), impacts=impacts)


@pytest.mark.parametrize("verbose", [False, True])
def test_live_transactions_that_hold_readers_back_are_shown_after_hanging_ones(
    verbose: bool, wording: SnapshotAssertion
) -> None:
    """With their end. Their verdict stays ongoing."""
    text = shown(blocking(), verbose=verbose)
    assert text.index("hanging (stale_epoch)") < text.index("ongoing (owned)")
    assert "p-2" not in text
    assert text == wording


def test_a_live_transaction_has_its_end_and_whether_it_blocks_in_json() -> None:
    found = scan_object(blocking())
    assert (found["sweep"]["blocking"], found["sweep"]["blocking_after_ms"]) == (2, 5 * MINUTE_MS)
    rows = {row["partition"]: row for row in json.loads(dumps(found))["transactions"]}
    assert {index: row["blocking"] for index, row in rows.items()} == {0: True, 1: True, 2: None, 3: None}
    assert {index: row["verdict"] for index, row in rows.items()}[0] == "ongoing"
    assert (rows[0]["ends_by"], rows[3]["ends_by"]) == ("2023-11-14T22:43:20.000Z", None)
    assert (rows[0]["groups_blocked"], rows[0]["framework"], rows[0]["cause"]) == (1, "Flink", None)
    assert [group["group"] for group in rows[0]["blocked_groups"]] == ["billing"]


def test_a_transaction_whose_log_takes_no_writes_has_no_end() -> None:
    one = live(0, 10 * MINUTE_MS)
    states = WriteStates({LOG: state((1,), LOG)}, log_partitions=1)
    ends = [scan_object(scan(one, writes=w))["transactions"][0]["ends_by"] for w in (UNREAD, states)]
    assert [end is None for end in ends] == [False, True]


def test_a_transaction_of_two_phase_commit_has_no_end() -> None:
    endless = live(0, 30 * MINUTE_MS, timeout_ms=2**31 - 1)
    (row,) = scan_object(scan(endless))["transactions"]
    assert (row["reason"], row["ends_by"]) == ("two_phase_commit", None)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "No transaction hangs."),
        ({"partitions_failed": 1}, "No observed transaction hangs, but not everything was observed."),
        ({"coordinators_proven": 5}, "No observed transaction hangs, but not everything was observed."),
        ({"visibility_failures": (failed("x"),)}, "No observed transaction hangs, but not everything was observed."),
    ],
)
def test_an_empty_result_reports_whether_the_sweep_was_complete(changes: dict[str, Any], said: str) -> None:
    assert said in shown(scan(**changes))


@pytest.mark.parametrize("terminal", [False, True])
def test_a_hostile_id_is_escaped_on_its_own_line(terminal: bool) -> None:
    plain = shown(scan(hanging(transactional_id="X")), terminal=terminal)
    text = shown(scan(hanging(transactional_id=EVIL_ID), cluster_id=EVIL_ID), terminal=terminal)
    assert text.count(EVIL_SHOWN) == 2, "markup is shown as it is, and nothing is obeyed"
    assert "\u202e" not in text and "\r" not in text and "\x1b[31mred" not in text
    assert len(text.splitlines()) == len(plain.splitlines())


def test_hostile_topics_errors_and_warnings_are_escaped() -> None:
    error = unobserved("read", "bad\nnews\x1b[2J", 1, "to\npic\x1b]0;", 3)
    text = shown(scan(errors=(error,), warnings=("watch\nout\x07",)))
    for escaped in ("bad\\nnews\\x1b[2J", "to\\npic\\x1b]0;-3", "warning: watch\\nout\\x07"):
        assert escaped in text
    assert "\x1b" not in text and "\x07" not in text


@pytest.mark.parametrize(
    "error",
    [
        "broker 1 ([fd00::1]:9092) cannot be reached",
        "broker 1 answered [/] in [bold]bold[/bold]",
        "[/nothing] was open",
    ],
)
def test_an_error_with_brackets_is_unchanged(error: str) -> None:
    assert error in shown(scan(errors=(unobserved("metadata", error, 1),)))


def test_an_error_of_many_partitions_is_one_line() -> None:
    errors = tuple(unobserved("read", "NOT_LEADER_OR_FOLLOWER", 1, "p", n) for n in range(30))
    text = shown(scan(errors=errors))
    assert text.count("NOT_LEADER_OR_FOLLOWER") == 1 and "p-0 and 29 more" in text


@pytest.mark.parametrize(
    ("first_seen_ms", "record_ms", "said"),
    [
        (NOW_MS, -1, "open, first seen now, "),
        (NOW_MS - 90_000, -1, "open, first seen 1 min 30 s ago, "),
        (NOW_MS, NOW_MS - 50 * MINUTE_MS, "open for 50 min by its records' time, first seen now, "),
        (NOW_MS - 90_000, NOW_MS - 50 * MINUTE_MS, "open for 50 min by its records' time, first seen 1 min 30 s ago, "),
    ],
)
def test_an_age_from_record_times_is_marked(first_seen_ms: int, record_ms: int, said: str) -> None:
    found = hanging(first_seen_ms=first_seen_ms, last_timestamp_ms=record_ms)
    assert f"p-0  {said}" in shown(scan(found, started_at_ms=NOW_MS))


@pytest.mark.parametrize(
    ("age_ms", "said"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (45_000, "45 s"),
        (345_000, "5 min 45 s"),
        (60_000, "1 min"),
        (3 * 3_600_000 + 1, "3 h"),
        (47 * 3_600_000 + 2 * MINUTE_MS, "1 d 23 h"),
        (2 * 86_400_000 + MINUTE_MS, "2 d"),
        (-90_500, "-1 min 30 s"),
    ],
)
def test_a_duration_has_its_two_largest_units(age_ms: int, said: str) -> None:
    assert duration(age_ms) == said


@pytest.mark.parametrize(
    ("most", "options", "said"),
    [
        (3, {}, "a, b, c"),
        (2, {}, "a, b and 1 more"),
        (1, {"separator": "; ", "more": "more like it"}, "a; and 2 more like it"),
    ],
)
def test_the_first_of_some_items_are_named_and_the_others_counted(most: int, options: Any, said: str) -> None:
    assert first_of(["a", "b", "c"], most, **options) == said


def test_each_outcome_has_words() -> None:
    assert paragraphs._OUTCOMES.keys() == {outcome.value for outcome in Outcome}


def test_commands_are_shown_only_for_uncommitted_outcomes() -> None:
    (row,) = scan_object(scan(hanging()))["transactions"]
    shown = {one: len(commands({**row, "outcome": one.value, "outcome_reason": "x"})) for one in Outcome}
    assert {one.value: count for one, count in shown.items() if count} == {"not_committed": 2}
    never = ({"partition": -1}, {"verdict": "indeterminate"}, {"reason": "live_epoch"}, {"reason": "maybe_committed"})
    for change in never:
        assert commands({**row, "outcome": "not_committed", **change}) == []
    # Running brokers have their log, and a sweep reads it.
    assert commands({**row, "outcome": "unknown", "log_failure": failed("no file has it")}) == []


@pytest.mark.parametrize(("seen_ms", "waits"), [((16, 20), False), ((16, 2), True), ((0,), True)])
def test_a_plan_that_must_wait_until_sweeps_have_seen_enough_says_so(seen_ms: tuple[int, ...], waits: bool) -> None:
    found = scan_object(scan(hanging()))
    (row,) = found["transactions"]
    began_ms = epoch_ms(time_of(found["sweep"]["started_at"]))
    hangs = {**row, "outcome": "not_committed", "outcome_reason": "x"}
    stuck = {**hangs, "outcome": "maybe_committed", "first_seen_at": found["sweep"]["started_at"]}
    seen = [{**hangs, "first_seen_at": iso_utc(began_ms - minutes * MINUTE_MS)} for minutes in seen_ms]
    said = sweep_report._next(
        {"sweep": {**found["sweep"], "late_after_ms": 15 * MINUTE_MS}, "transactions": [*seen, stuck]}
    )
    assert ("observed them for 15 min" in said) is waits and said.endswith(f"the end of {len(seen_ms)}.")


def test_in_a_pipe_each_sentence_is_one_line() -> None:
    found = scan_object(scan(judged(view("CompleteCommit", 4))))
    (transaction,) = found["transactions"]
    out = io.StringIO()
    print_sweep(Console(file=out, width=40), found, verbose=True)
    assert f"  {transaction['explanation']}\n" in out.getvalue()
    assert all(line == line.rstrip() for line in out.getvalue().splitlines())


def test_on_a_terminal_lines_are_wrapped_and_indented() -> None:
    out = io.StringIO()
    console = Console(file=out, width=40, force_terminal=True, color_system=None)
    print_sweep(console, scan_object(scan(judged())), verbose=True)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 40
    start = next(number for number, line in enumerate(lines) if "No transactional id" in line)
    assert lines[start].startswith("  ") and lines[start + 1].startswith("  ")


def test_the_first_line_says_that_the_history_went_back() -> None:
    fell = Fall(Sign.LEADER_EPOCH, 7, 5, "p-0")
    found = scan_object(scan(fall=fell, history=1))
    assert found["sweep"]["went_back"] == {"code": "leader_epoch", "reason": str(fell)}
    assert found["sweep"]["history"] == 1
    assert shown(found).splitlines()[0] == f"The cluster's history went back: {fell}."
    assert "went back" not in shown(scan_object(scan()))


@pytest.mark.parametrize(
    ("ids", "named"), [((1,), "broker 1"), ((2, 1), "brokers 2 and 1"), ((1, 2, 10), "brokers 1, 2 and 10")]
)
def test_brokers_are_named_in_the_plural(ids: tuple[int, ...], named: str) -> None:
    assert brokers_named(ids) == named


def an_error(error: str, stage: str = "read", broker: int | None = None, key: Any = (None, None)) -> dict[str, Any]:
    return {"stage": stage, "broker": broker, "topic": key[0], "partition": key[1], "code": "X", "error": error}


DOWN = "broker 2 (b:9092) takes connections and does not answer"
# Errors, with their lines for a command that only shows answers, and for a sweep, which has stages.
ERROR_LINES: tuple[tuple[str, list[dict[str, Any]], list[str], list[str]], ...] = (
    ("nothing", [], [], []),
    ("a partition", [an_error("is gone", key=("t", 0))], ["t-0: is gone"], ["read: t-0: is gone"]),
    ("a topic", [an_error("is gone", key=("t", None))], ["t: is gone"], ["read: t: is gone"]),
    (
        "named in the words",
        [an_error("t-0 has no leader", key=("t", 0))],
        ["t-0 has no leader"],
        ["read: t-0 has no leader"],
    ),
    ("the name of another", [an_error("t-01 has it", key=("t", 0))], ["t-0: t-01 has it"], ["read: t-0: t-01 has it"]),
    ("a broker in the words", [an_error(DOWN, "plan", 2)], [DOWN], [f"plan: {DOWN}"]),
    ("a broker", [an_error("is slow", "plan", 2)], ["is slow"], ["plan: broker 2: is slow"]),
    ("nobody", [an_error("no answer", "plan")], ["no answer"], ["plan: cluster: no answer"]),
    ("twice", [an_error(DOWN, "plan", 2), an_error(DOWN, "list", 2)], [DOWN], [f"plan, list: {DOWN}"]),
    (
        "many partitions of a broker in several stages",
        [an_error(DOWN, "plan", 2), *(an_error(DOWN, "read", 2, ("t", index)) for index in (0, 1, 2, 1))],
        [f"t-0 and 2 more: {DOWN}"],
        [f"plan, read: t-0 and 2 more: {DOWN}"],
    ),
    (
        "different words",
        [an_error("a", key=("t", 0)), an_error("b", key=("t", 0))],
        ["t-0: a", "t-0: b"],
        ["read: t-0: a", "read: t-0: b"],
    ),
)


def test_no_error_says_a_name_or_a_sentence_twice() -> None:
    with Cases() as cases:
        for name, errors, plain, staged in ERROR_LINES:
            with cases.case(name):
                assert [line for line, _ in error_lines(errors)] == plain
                found = error_lines(errors, with_stage=True)
                assert [line for line, _ in found] == staged and sum(count for _, count in found) == len(errors)
