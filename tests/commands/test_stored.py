"""Stored sweeps: the selection of a sweep, its maximum age, and the output of show, plan and history."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from tests.builders import MINUTE_MS, NOW_MS, context, known, observation, scan, unobserved, view
from tests.process import ROOT
from txnscan import api
from txnscan.cli.app import app
from txnscan.config import ConfigError
from txnscan.resolve.plan import from_json
from txnscan.sweeps.result import Scan
from txnscan.tables import delta_rs
from txnscan.tables.delta_rs import DeltaRs
from txnscan.tables.open import open_tables
from txnscan.tables.selection import choose, stale
from txnscan.tables.tables import Tables
from txnscan.verdict.evidence import Judged
from txnscan.verdict.outcome import with_outcome
from txnscan.verdict.rules import judge_observation

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

# --- selection --------------------------------------------------------------------------------------------------------


def row(number: int, scope: str = "all", cluster_id: str = "c1") -> dict[str, Any]:
    started = datetime.fromtimestamp(NOW_MS / 1_000 + 60 * number, UTC)
    return {"sweep_id": f"s{number}", "cluster_id": cluster_id, "scope": scope, "started_at": started}


ONE, ALL = row(2, "topic=x"), row(1)
# Words in the notes.
LATER, NARROW, OTHERS = "--sweep-id s2", "topic=x", "--cluster-id"
CHOICES = [
    ([ALL], "s1", ()),
    ([ALL, ONE], "s1", (LATER,)),
    ([ONE, ALL], "s1", (LATER,)),
    ([row(0, "topic=x"), ALL], "s1", ()),
    ([ONE], "s2", (NARROW,)),
    ([ALL, row(0, cluster_id="c2")], "s1", (OTHERS,)),
    ([ALL, row(3, "topic=y", "c2")], "s1", (OTHERS,)),
    ([row(0, "topic=z"), ONE, row(1, "topic=y", "c2")], "s2", (NARROW, OTHERS)),
]


@pytest.mark.parametrize(("sweeps", "chosen", "notes"), CHOICES)
def test_the_last_full_sweep_is_chosen_and_others_are_noted(
    sweeps: list[dict[str, Any]], chosen: str, notes: tuple[str, ...], wording: SnapshotAssertion
) -> None:
    found = choose(sweeps)
    assert found.sweep["sweep_id"] == chosen
    assert all(named in note for named, note in zip(notes, found.notes, strict=True))
    assert found.notes == wording


def test_a_missing_sweep_names_the_option(wording: SnapshotAssertion) -> None:
    with pytest.raises(ConfigError) as error:
        choose([])
    assert str(error.value) == wording
    with pytest.raises(ConfigError) as error:
        choose([], "c9")
    assert str(error.value) == wording


def test_a_stale_sweep_is_reported_with_its_age(wording: SnapshotAssertion) -> None:
    now_ms = NOW_MS + 60_000 + 20 * MINUTE_MS
    assert stale(ALL, None, now_ms) is stale(ALL, 20 * MINUTE_MS, now_ms) is None
    assert stale(ALL, 15 * MINUTE_MS, now_ms) == wording


# --- the commands -----------------------------------------------------------------------------------------------------


@cache
def since_ms() -> int:
    """Relative to the first of these tests, which may run an hour after the start of the run. The second sweep is 2
    days
    and 12 and a half hours old: the duration of the tests changes no word.
    """
    return int(datetime.now(UTC).timestamp() * 1_000) - (60 * 60 + 30 + 20) * MINUTE_MS


def hanging(**changes: Any) -> Judged:
    """Hanging for an hour before the first sweep."""
    o = observation(first_seen_ms=since_ms() - 60 * MINUTE_MS, **changes)
    found = judge_observation(o, (view("Empty", 9),), context(now_ms=since_ms()))
    return with_outcome(found, known())


def swept(number: int, *transactions: Judged, **changes: Any) -> Scan:
    at_ms = since_ms() + number * 10 * MINUTE_MS
    times = {"started_at_ms": at_ms, "finished_at_ms": at_ms + 500}
    return scan(*transactions, sweep_id=f"sweep-{number}", **{**times, **changes})


def without_times(text: str) -> str:
    """The output of a command without the times and ids that differ from run to run."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?", "<time>", text)
    text = re.sub(r"\b[0-9a-f]{12,}\b", "<id>", re.sub(r"\d{3,} d( \d+ h)?", "<age>", text))
    # The width of a column depends on the age.
    return re.sub(r"(OPEN FOR|<age>) +", r"\1  ", text)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two full sweeps with a hanging transaction, and a later sweep of a topic without any."""
    location = str(tmp_path_factory.mktemp("stored") / "tables")
    tables = open_tables(location, None)
    tables.create()
    tables.write(swept(1, hanging(first_read_at_ms=since_ms() - 60 * MINUTE_MS)))
    tables.write(swept(2, hanging(first_read_at_ms=since_ms()), warnings=("a broker is old",)))
    tables.write(swept(3, scope="topic=backfill", proven={}))
    return location


@pytest.fixture
def damaged(written: str, tmp_path: Path) -> Iterator[Path]:
    """A copy of the tables, to be damaged."""
    shutil.copytree(written, tmp_path / "tables")
    yield tmp_path / "tables"


def invoke(*arguments: str) -> tuple[int, str, str]:
    ran = CliRunner().invoke(app, list(arguments))
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return ran.exit_code, ran.stdout, ran.stderr


(NOTE,) = choose([{**row(3, "topic=backfill"), "sweep_id": "sweep-3"}, {**row(2), "sweep_id": "sweep-2"}]).notes
LATER_NOTE = f"note: {NOTE}\n"


def test_a_narrow_sweep_never_represents_the_cluster(written: str, wording: SnapshotAssertion) -> None:
    status, out, said = invoke("show", "--tables", written, "--fail-on", "hanging", "--fail-on", "incomplete")
    assert (status, said) == (3, LATER_NOTE)
    first, *_ = out.splitlines()
    assert first.startswith("Sweep sweep-2 ") and "2 d 12 h" in first
    assert "1 hanging" in out and "warning: a broker is old" in out
    assert without_times(out) == wording


def test_a_named_narrow_sweep_shows_its_scope(written: str, wording: SnapshotAssertion) -> None:
    status, out, said = invoke("show", "--tables", written, "--sweep-id", "sweep-3", "--fail-on", "incomplete")
    assert (status, said) == (0, "")
    assert out.startswith("Sweep sweep-3 of topic=backfill alone")
    assert without_times(out) == wording


def test_json_has_the_scope_times_and_stored_warnings(written: str) -> None:
    status, out, said = invoke("show", "--tables", written, "--format", "json")
    sweep = json.loads(out)["sweep"]
    assert (status, sweep["sweep_id"], sweep["scope"], sweep["warnings"]) == (0, "sweep-2", "all", ["a broker is old"])
    assert said == f"{LATER_NOTE}warning: a broker is old\n"


OLD = "began 2 d 12 h ago, and at most 15 min is allowed; sweep again, or see why sweeps have stopped\n"


@pytest.mark.parametrize(("fail_on", "expected"), [((), 4), (("--fail-on", "hanging"), 3)])
def test_stale_data_fails_and_is_still_shown(written: str, fail_on: tuple[str, ...], expected: int) -> None:
    status, out, said = invoke("show", "--tables", written, "--max-age", "15m", *fail_on)
    assert (status, said) == (expected, f"{LATER_NOTE}txnscan: --max-age: sweep sweep-2 {OLD}")
    assert "1 hanging" in out
    assert invoke("show", "--tables", written, "--max-age", "3d")[0] == 0


def test_stale_data_gives_no_plan(written: str, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    status, printed, said = invoke("plan", "--tables", written, "--out", str(out), "--max-age", "15m")
    assert (status, printed, out.exists()) == (4, "", False)
    assert said == f"{LATER_NOTE}txnscan: --max-age: sweep sweep-2 {OLD}"


def test_a_plan_uses_the_last_full_sweep_and_its_json_is_valid_for_apply(written: str, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    status, printed, said = invoke("plan", "--tables", written, "--out", str(out), "--format", "json")
    assert (status, said) == (0, LATER_NOTE)
    assert printed == out.read_text()
    made = from_json(printed)
    assert (made.sweep_id, made.scope, made.warnings) == ("sweep-2", "all", ("a broker is old",))
    assert [action.topic_partition for action in made.actions] == ["p-0"]


def test_a_plan_of_a_narrow_sweep_names_its_scope(written: str, tmp_path: Path, wording: SnapshotAssertion) -> None:
    out = tmp_path / "plan.json"
    status, printed, _ = invoke("plan", "--tables", written, "--out", str(out), "--sweep-id", "sweep-3")
    assert status == 0
    assert "sweep sweep-3 of topic=backfill" in printed
    assert without_times(printed).replace(str(out), "<out>") == wording


@pytest.mark.parametrize("command", [("show",), ("plan", "--out", "{out}")])
def test_an_unknown_sweep_is_a_usage_error(
    written: str, tmp_path: Path, command: tuple[str, ...], wording: SnapshotAssertion
) -> None:
    words = [word.format(out=tmp_path / "plan.json") for word in command]
    status, out, said = invoke(*words, "--tables", written, "--sweep-id", "nosuch")
    assert (status, out) == (2, "")
    assert said == wording
    status, _, said = invoke(*words, "--tables", written, "--sweep-id", "sweep-1", "--cluster-id", "x")
    assert status == 2
    assert said == wording


# --- unobserved parts -------------------------------------------------------------------------------------------------


def test_a_sweep_with_an_error_is_not_complete() -> None:
    assert scan().complete and not scan(errors=(unobserved("config", "denied", 1),)).complete


# --- damaged tables ---------------------------------------------------------------------------------------------------

SWEEP = ("sweep", "--bootstrap-server", "127.0.0.1:1", "--tables")


def test_a_missing_table_is_not_recreated_silently(damaged: Path, wording: SnapshotAssertion) -> None:
    shutil.rmtree(damaged / "open_transactions" / "_delta_log")
    status, out, said = invoke(*SWEEP, str(damaged), "--engine", "threads")
    assert (status, out) == (2, "") and said.startswith("txnscan: --tables: open_transactions ")
    assert said.replace(str(damaged), "<tables>") == wording
    assert invoke("show", "--tables", str(damaged), "--sweep-id", "sweep-2") == (2, "", said)
    assert not (damaged / "open_transactions" / "_delta_log").exists()


@pytest.mark.parametrize("command", [SWEEP, ("show", "--tables")])
def test_a_damaged_commit_is_named_before_any_request(
    damaged: Path, command: tuple[str, ...], wording: SnapshotAssertion
) -> None:
    last = max((damaged / "sweeps" / "_delta_log").glob("*.json"))
    last.write_text('{"add":{"pa')
    status, out, said = invoke(*command, str(damaged))
    assert (status, out) == (2, "") and said.startswith("txnscan: --tables: ")
    assert said.replace(str(last), "<file>") == wording


@pytest.mark.parametrize("spoil", [lambda file: os.truncate(file, file.stat().st_size // 2), os.remove])
@pytest.mark.parametrize("command", ["show", "history"])
def test_a_damaged_data_file_is_named(damaged: Path, command: str, spoil: Callable[[Path], object]) -> None:
    for file in (damaged / "sweeps").rglob("*.parquet"):
        spoil(file)
    status, out, said = invoke(command, "--tables", str(damaged))
    assert (status, out) == (2, "") and said.startswith("txnscan: --tables: ") and said.count("\n") == 1
    assert f"{damaged}/sweeps/" in said and "restore" in said


# --- findings survive storage -----------------------------------------------------------------------------------------

STORED = [((), 1), (("--fail-on", "hanging"), 3), (("--fail-on", "incomplete"), 1)]


@pytest.mark.parametrize("format", ["table", "json"])
@pytest.mark.parametrize(("fail_on", "expected"), STORED)
def test_findings_are_printed_even_if_the_tables_cannot_be_written(
    damaged: Path,
    monkeypatch: pytest.MonkeyPatch,
    format: str,
    fail_on: tuple[str, ...],
    expected: int,
    wording: SnapshotAssertion,
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(api, "_scan", lambda *_, **__: swept(9, hanging()))
    monkeypatch.setattr(DeltaRs, "append", full)
    options = ("--engine", "threads", "--format", format)
    status, out, said = invoke(*SWEEP, str(damaged), *options, *fail_on)
    assert status == expected
    assert "1 hanging" in out if format == "table" else json.loads(out)["sweep"]["candidates"] == 1
    assert said.startswith("txnscan: --tables: ") and said.count("\n") == 1
    assert said.replace(str(damaged), "<tables>") == wording


def test_findings_are_printed_even_if_delta_rs_panics(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def panics(*_: object, **__: object) -> None:
        raise type("PanicException", (BaseException,), {})("called Option::unwrap() on a None value")

    monkeypatch.setattr(api, "_scan", lambda *_, **__: swept(9, hanging()))
    monkeypatch.setattr(delta_rs, "write_deltalake", panics)
    status, out, said = invoke(*SWEEP, str(damaged), "--engine", "threads", "--format", "json")
    assert (status, json.loads(out)["sweep"]["candidates"]) == (1, 1)
    assert said.startswith("txnscan: --tables: ") and said.count("\n") == 1


def test_findings_are_printed_even_if_ctrl_c_interrupts_storing(
    damaged: Path, monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(api, "_scan", lambda *_, **__: swept(9, hanging()))
    monkeypatch.setattr(Tables, "write", interrupted)
    status, out, said = invoke(*SWEEP, str(damaged), "--engine", "threads", "--format", "json")
    assert (status, json.loads(out)["sweep"]["candidates"]) == (130, 1)
    assert said == wording


def test_in_python_the_exception_has_the_result(
    damaged: Path, monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    def denied(*_: object, **__: object) -> None:
        raise OSError(13, "Permission denied")

    monkeypatch.setattr(api, "_scan", lambda *_, **__: swept(9, hanging()))
    monkeypatch.setattr(DeltaRs, "append", denied)
    from txnscan import NotStored, ScanConfig, sweep

    with pytest.raises(NotStored) as raised:
        sweep(None, ScanConfig("127.0.0.1:1", tables=str(damaged), engine="threads"))
    assert str(raised.value).replace(str(damaged), "<tables>") == wording
    assert raised.value.result.summary["candidates"] == raised.value.result.candidates.num_rows == 1


# --- history ----------------------------------------------------------------------------------------------------------


def test_history_lists_sweeps_incidents_and_the_journal(written: str, wording: SnapshotAssertion) -> None:
    status, out, said = invoke("history", "--tables", written)
    assert (status, said) == (0, "")
    sweeps, incidents = out.index("Sweeps:"), out.index("Incidents:")
    assert sweeps < out.index("sweep-3  cluster cluster-1, topic=backfill") < out.index("sweep-2  ")
    before_journal, _, _ = out.partition("Journal of apply:")
    assert incidents < before_journal.index("p-0  stale_epoch, producer id 7")
    assert without_times(before_journal) == wording


def test_an_incident_has_a_timeline(written: str, wording: SnapshotAssertion) -> None:
    found = json.loads(invoke("history", "--tables", written, "--format", "json", "--limit", "2")[1])
    assert [sweep["sweep_id"] for sweep in found["sweeps"]] == ["sweep-3", "sweep-2"]
    (incident,) = found["incidents"]
    status, out, said = invoke("history", "--tables", written, "--incident", incident["incident_id"][:6])
    assert (status, said) == (0, "")
    assert out.index("sweep-1  hanging (stale_epoch)") < out.index("sweep-2  hanging")
    assert without_times(out.partition("Journal of apply:")[0]) == wording
    told = json.loads(
        invoke("history", "--tables", written, "--incident", incident["incident_id"], "--format", "json")[1]
    )
    assert (told["incident"], [seen["sweep_id"] for seen in told["seen"]]) == (incident, ["sweep-1", "sweep-2"])


def test_an_unknown_incident_is_a_usage_error(written: str, wording: SnapshotAssertion) -> None:
    status, out, said = invoke("history", "--tables", written, "--incident", "nosuch")
    assert (status, out) == (2, "") and said.startswith("txnscan: --incident: ")
    assert said == wording


def test_a_program_can_use_pandas_after_calling_a_command(written: str) -> None:
    """The process of a command omits pandas, which Arrow would import without need."""
    script = f"""
import sys
from typer.testing import CliRunner
from txnscan.cli.app import app
assert CliRunner().invoke(app, ["show", "--tables", {written!r}]).exit_code == 0
import pandas, pyarrow
pyarrow.table({{"a": [1]}}).to_pandas()
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr
