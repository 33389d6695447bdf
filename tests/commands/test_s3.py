"""Tables on an S3 server, through delta-rs: commits are exclusive, or `apply --execute` is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake.exceptions import DeltaError

from tests.builders import judged, scan
from tests.process import ROOT
from tests.s3 import BUCKET, s3_server
from txnscan.config import ConfigError, Location
from txnscan.resolve.apply import ApplyRunning
from txnscan.resolve.lock import Lock, check_exclusive
from txnscan.tables.delta_rs import DeltaRs
from txnscan.tables.open import open_tables
from txnscan.tables.schema import INCIDENTS, SWEEPS

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

LOCATION = f"s3a://{BUCKET}/txnscan"
_RACES = """
import sys, time
from pathlib import Path
from tests.builders import judged, scan
from txnscan.resolve.apply import ApplyRunning
from txnscan.resolve.lock import Lock
from txnscan.tables.open import open_tables

who, location, seen = sys.argv[1:]
tables = open_tables(location, None)
for number in range(4):
    while True:
        try:
            with Lock(tables, "cluster-1"):
                with open(seen, "a") as file:
                    file.write(f"{who} in\\n")
                tables.write(scan(judged(), sweep_id=f"{who}-{number}"))
                with open(seen, "a") as file:
                    file.write(f"{who} out\\n")
            break
        except ApplyRunning:
            time.sleep(0.01)
    # And without a turn of its own.
    tables.write(scan(judged(), sweep_id=f"{who}-{number}-more"))
"""


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    with s3_server() as environment:
        yield environment


@pytest.fixture
def at_s3(s3: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("at_s3")
def test_two_processes_that_race_lose_no_commit_and_never_apply_at_once(tmp_path: Path) -> None:
    tables = open_tables(LOCATION, None)
    tables.create()
    check_exclusive(tables)
    seen = tmp_path / "seen"
    racing = [
        subprocess.Popen([sys.executable, "-c", _RACES, who, LOCATION, str(seen)], cwd=ROOT) for who in ("one", "other")
    ]
    assert [one.wait(900) for one in racing] == [0, 0]
    lines = seen.read_text().split("\n")[:-1]
    assert len(lines) == 16
    assert all(came.replace(" in", " out") == went for came, went in zip(lines[::2], lines[1::2], strict=True)), lines
    swept = [row["sweep_id"] for row in tables.rows(SWEEPS)]
    assert len(swept) == len(set(swept)) == 16
    assert len(tables.rows(INCIDENTS)) == 1


@pytest.mark.usefixtures("at_s3")
def test_a_running_apply_blocks_another() -> None:
    tables = open_tables(LOCATION, None)
    tables.create()
    with Lock(tables, "cluster-2"), pytest.raises(ApplyRunning), Lock(open_tables(LOCATION, None), "cluster-2"):
        pass
    with Lock(tables, "cluster-2"):
        pass


def test_apply_is_refused_if_a_commit_can_overwrite_another(
    monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    with s3_server("--takes-no-notice") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        tables = open_tables(LOCATION, None)
        tables.create()
        tables.write(scan(judged(), sweep_id="sweep"))
        with pytest.raises(ConfigError) as error:
            check_exclusive(tables)
        assert str(error.value) == wording


@pytest.mark.usefixtures("at_s3")
def test_an_unconditional_put_is_refused_without_a_trial(
    monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "true")
    with pytest.raises(ConfigError) as error:
        check_exclusive(open_tables(LOCATION, None))
    assert str(error.value) == wording


@pytest.mark.usefixtures("at_s3")
def test_apply_is_refused_if_commits_cannot_be_tried(
    monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    nowhere = f"s3a://{BUCKET}-that-is-not-there/txnscan"
    with pytest.raises(ConfigError) as error:
        check_exclusive(open_tables(nowhere, None))
    what_storage_says = "Object at location "
    assert str(error.value).partition(what_storage_says)[0] == wording
    monkeypatch.setattr("txnscan.tables.delta_rs.find_spec", lambda _: None)
    with pytest.raises(ConfigError) as error:
        check_exclusive(open_tables(LOCATION, None))
    assert str(error.value) == wording


def test_amazon_s3_needs_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    check_exclusive(open_tables(LOCATION, None))


def test_a_storage_error_is_one_plain_sentence_without_colours(wording: SnapshotAssertion) -> None:
    error = DeltaError(
        "Kernel error -> Generic S3 error \x1b[31m\u21b3\x1b[0m Error performing GET http://host/b/_last_checkpoint "
        "in 5 s, "
        "after 10 retries - HTTP error \x1b[31m\u21b3\x1b[0m error sending request"
    )
    assert DeltaRs(Location("s3://b/x")).said(error) == wording
