"""A process killed between two commits leaves tables that can be read and written."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.process import run_python
from tests.tables.stored import ORPHAN, SEEN_COMMIT, SWEEP, next_sweep, reads_of
from txnscan.tables.open import open_tables
from txnscan.tables.schema import INCIDENTS, OPEN_TRANSACTIONS, TABLES

READ = reads_of(SWEEP)
# Forks a process for each write, before delta-rs starts a thread, and kills it instead of that write.
KILLED = """
import json, os, signal, sys
from tests.tables.stored import SWEEP
from txnscan.tables.delta_rs import DeltaRs
from txnscan.tables.open import open_tables

commits = 0

def mortal(write, number):
    def writes(*arguments, **options):
        global commits
        commits += 1
        if commits == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return write(*arguments, **options)
    return writes

def killed_at(location, number):
    for name in ("append", "replace", "merge", "create"):
        setattr(DeltaRs, name, mortal(getattr(DeltaRs, name), number))
    tables = open_tables(location, None)
    tables.create()
    tables.write(SWEEP)

ended = {}
for number in map(int, sys.argv[2:]):
    child = os.fork()
    if not child:
        killed_at(f"{sys.argv[1]}/{number}", number)
        os._exit(0)
    ended[number] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps(ended))
"""
# The sweep has no errors, so scan_errors is not written.
WRITTEN = ("facts", "open_transactions", "candidates", "first_seen", "incidents", "sweeps")
CREATES, WRITES = len(TABLES), len(WRITTEN)
COMMITS = range(1, CREATES + WRITES + 2)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """A folder of tables for each write before which the process was killed, and its exit codes."""
    directory = tmp_path_factory.mktemp("killed")
    ran = run_python("-c", KILLED, str(directory), *map(str, COMMITS))
    assert ran.returncode == 0, ran.stderr
    return directory, json.loads(ran.stdout)


@pytest.mark.parametrize("commit", COMMITS)
def test_a_process_killed_before_a_write_leaves_usable_tables(killed: tuple[Path, dict[str, int]], commit: int) -> None:
    from deltalake import DeltaTable

    directory, ended = killed
    location = str(directory / str(commit))
    finished = commit > CREATES + WRITES
    assert ended[str(commit)] == (0 if finished else -signal.SIGKILL)
    tables = open_tables(location, None)
    tables.create()
    for table in TABLES:
        has = DeltaTable(f"{location}/{table.name}").metadata().configuration
        assert {f"delta.constraints.{check}" for check, _ in table.checks} <= has.keys()
    visible = tables.last_sweep()
    assert (visible is not None) == finished
    assert len(tables.read(OPEN_TRANSACTIONS, "sweep-1")) == (2 if finished else 0)
    # A fact counts even if its sweep is unfinished.
    facts = tables.facts("cluster-1", {7})()[7]
    assert list(facts.reads) in ([READ] if finished else [[], READ])
    assert facts.commits in ([(SEEN_COMMIT,)] if finished else [(), (SEEN_COMMIT,)])
    tables.write(next_sweep(2, ORPHAN))
    counted = {row["start_offset"]: row["sweeps"] for row in tables.rows(INCIDENTS)}
    assert counted[ORPHAN.observation.start_offset] in (1, 2)
    assert len(tables.read(OPEN_TRANSACTIONS, "sweep-2")) == 1
