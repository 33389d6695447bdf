"""Files that change during the read, and the lock of a running broker: no transaction in them is hanging.

The file system stands in for a broker here. tests/brokers/test_running_brokers.py has real brokers with Java's lock.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.offline import MS, data, end, partition_directory, plain, shut_down
from txnscan.offline import live_broker, paths
from txnscan.offline.cluster_metadata import Metadata
from txnscan.offline.contents import LogDirectory, Replica, ReplicaFiles
from txnscan.offline.copies import Copies
from txnscan.offline.disk import find
from txnscan.offline.live_broker import is_locked
from txnscan.offline.moment import running_error
from txnscan.offline.paths import FileContents, ReadOne, Spread, read_paths
from txnscan.offline.replica import read_replica

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

HAS, NEXT, OTHER = f"{0:020d}.log", f"{2:020d}.log", f"{5:020d}.log"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log directory with a transaction that hangs according to its files."""
    root = tmp_path / "data"
    root.mkdir()
    (root / "meta.properties").write_text("cluster.id=abc\nbroker.id=1\n")
    (root / ".lock").touch()
    partition_directory(root, "t-0", {0: data(0) + plain(1)}, **{f"{0:020d}.index": b"\0" * 8})
    partition_directory(root, "__transaction_state-0", {0: b""})
    return shut_down(root)


def read(path: Path, act: Callable[[], object] = lambda: None) -> FileContents:
    """Reads, and acts after all replicas were read."""

    def progress(stage: str, done: int, total: int) -> None:
        if stage == "judge":
            act()

    return read_paths([str(path)], late_after_ms=0, vouched=True, log_partitions=1, progress=progress)


def verdicts(found: FileContents) -> list[str]:
    return [one.judged.judgement.verdict.value for one in found.transactions]


def test_unchanged_files_show_the_hanging_transaction(root: Path) -> None:
    found = read(root)
    assert verdicts(found) == ["hanging"] and not found.changing and found.running_error is None


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(end(2))


def _same_size(path: Path) -> None:
    path.write_bytes(path.read_bytes())
    written_ns = path.stat().st_mtime_ns
    os.utime(path, ns=(written_ns, written_ns + 1))


CHANGES: dict[str, Callable[[Path], object]] = {
    "a log that grows": lambda root: _append(root / "t-0" / HAS),
    "a log that is written again": lambda root: _same_size(root / "t-0" / HAS),
    "an index": lambda root: _same_size(root / "t-0" / f"{0:020d}.index"),
    "a segment that begins": lambda root: (root / "t-0" / NEXT).touch(),
    "a segment that goes": lambda root: (root / "t-0" / HAS).rename(root / "t-0" / f"{HAS}.deleted"),
    "a snapshot": lambda root: (root / "t-0" / f"{2:020d}.snapshot").touch(),
    "the transaction log": lambda root: _append(root / "__transaction_state-0" / HAS),
    "a partition that comes": lambda root: (root / "u-0").mkdir(),
    "a partition that goes": lambda root: (root / "t-0").rename(root / "t-0.abc-delete"),
    "a checkpoint": lambda root: _same_size(root / "replication-offset-checkpoint"),
    "a start": lambda root: (root / ".kafka_cleanshutdown").unlink(),
    "the lock": lambda root: (root / ".lock").unlink(),
    "the metadata log": lambda root: partition_directory(root, "__cluster_metadata-0", {0: b""}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_during_the_read_makes_every_verdict_indeterminate(root: Path, change: str) -> None:
    """Also with --stopped: evidence from files counts more."""
    found = read(root, lambda: CHANGES[change](root))
    assert verdicts(found) == ["indeterminate"] and found.changing
    (one,) = found.transactions
    assert found.running_error is not None and found.running_error in one.judged.judgement.explanation


def test_errors_name_the_changed_file_and_the_lock(root: Path, wording: SnapshotAssertion) -> None:
    changed = read(root, lambda: _append(root / "t-0" / HAS))
    with _locked_by_another(root / ".lock"):
        locked = read(root)
    said = [str(one.running_error).replace(str(root), "<root>") for one in (changed, locked)]
    assert said == wording


@pytest.mark.parametrize("given", ["", "t-0"])
def test_a_growing_metadata_log_shows_a_running_broker(root: Path, given: str) -> None:
    log = partition_directory(root, "__cluster_metadata-0", {0: plain(0)}) / HAS
    assert not read(root / given).changing
    assert read(root / given, lambda: _append(log)).changing


def test_a_single_file_is_checked_again(root: Path) -> None:
    log = root / "t-0" / HAS
    assert not read(log).changing
    assert read(log, lambda: _append(log)).changing


def test_duplicate_paths_are_compared_once(root: Path) -> None:
    first = find([str(root)]).seen
    both = find([str(root), str(root / "t-0"), str(root / "t-0" / HAS)]).seen
    assert (both.files, both.names) == (first.files, first.names)


def test_a_report_beside_the_files_is_no_change(root: Path) -> None:
    """Like `txnscan segments . > report.json`."""

    def report() -> None:
        for directory in (root, root / "t-0", root.parent):
            (directory / "report.json").write_text("{}")

    assert verdicts(read(root, report)) == ["hanging"]


def test_a_change_during_the_checksum_pass_counts(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checksums are read last, if a transaction would be hanging."""

    def checksum_error(*_: object) -> None:
        _append(root / "t-0" / HAS)

    monkeypatch.setattr(paths, "checksum_error", checksum_error)
    assert verdicts(read(root)) == ["indeterminate"]


def test_files_without_open_transactions_are_checked_again(root: Path) -> None:
    ended = partition_directory(root, "u-0", {0: data(0) + end(1)})
    assert not read(ended).changing
    found = read_paths([str(ended)], late_after_ms=0, spread=_changing(ended / HAS))
    assert found.changing and found.transactions == ()


def _changing(log: Path) -> Spread:
    def spread(one: ReadOne, files: Sequence[ReplicaFiles], sizes: Sequence[int]) -> list[tuple[int, Replica]]:
        found = [(number, one(file)) for number, file in enumerate(files)]
        _append(log)
        return found

    return spread


# --- the lock ---

_LOCKS = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("locked", flush=True)
sys.stdin.read()
"""


def _locked_by_another(path: Path) -> subprocess.Popen[str]:
    """A process that has the lock until its stdin ends."""
    command = [sys.executable, "-c", _LOCKS, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "locked\n"
    return process


@pytest.mark.parametrize("clean", [False, True])
def test_a_locked_log_directory_belongs_to_a_running_broker(root: Path, clean: bool) -> None:
    """Also at the end of a shutdown, and at the beginning of the next start, when its record is still there."""
    if not clean:
        (root / ".kafka_cleanshutdown").unlink()
    with _locked_by_another(root / ".lock"):
        for path in (root, root / "t-0", root / "t-0" / HAS):
            found = read(path)
            assert found.changing and verdicts(found) == ["indeterminate"]
            assert f"{root}/.lock" in str(found.running_error)
    assert verdicts(read(root)) == ["hanging" if clean else "indeterminate"]


def test_a_broker_started_during_the_read_is_detected(root: Path) -> None:
    started: list[subprocess.Popen[str]] = []
    found = read(root, lambda: started.append(_locked_by_another(root / ".lock")))
    with started[0]:
        assert found.changing and verdicts(found) == ["indeterminate"]


def test_probing_a_lock_does_not_take_it_and_needs_no_write_access(root: Path) -> None:
    """A broker that starts at that moment gets its lock."""
    lock = root / ".lock"
    lock.chmod(0o444)
    descriptor = os.open(lock, os.O_RDONLY)
    try:
        assert not live_broker._has_lock(descriptor)
        with _locked_by_another(lock):
            assert live_broker._has_lock(descriptor)
    finally:
        os.close(descriptor)


def test_a_copy_has_no_lock(root: Path) -> None:
    assert not is_locked(str(root / ".lock")) and not is_locked(str(root / "absent"))


def test_an_unreadable_lock_needs_other_evidence(
    root: Path, monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion
) -> None:
    def refused(*_: object) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(fcntl, "fcntl", refused)
    seen = find([str(root)]).seen
    assert seen.locked is None and str(seen.lock_error).replace(str(root), "<root>") == wording
    # --stopped replaces the lock.
    assert verdicts(read(root)) == ["hanging"]
    monkeypatch.setattr(sys, "platform", "plan9")
    assert find([str(root)]).seen.lock_error is not None


@pytest.mark.parametrize(
    ("clean", "vouched", "expected"), [(False, False, "why"), (True, False, None), (False, True, None)]
)
def test_a_clean_shutdown_or_the_option_replaces_an_unreadable_lock(
    clean: bool, vouched: bool, expected: str | None
) -> None:
    directory = LogDirectory("data", "abc", 1, clean=clean)
    replica = read_replica(ReplicaFiles("data/t-0", ("t", 0), whole=True, log_directory=directory))
    copies = Copies({("t", 0): [replica]}, [directory], {1: Metadata(ended_ms=MS)}, vouched, MS, lock_error="why")
    assert running_error(copies) == expected
