"""Restricted environments and hostile names: each command ends in one sentence, and prints names on one line.

Without memory, home, user name, temporary files, disk space, a writable table or stdout. The cluster is simulated.
"""

from __future__ import annotations

import csv
import ctypes
import io
import json
import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.cases import Cases
from tests.process import ROOT, run, run_here, run_to_end
from tests.sim.wire import ClusterShape, WireCluster
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.reads.observation import TransactionKey
from txnscan.report.check import check_object, print_check
from txnscan.report.notifications import SHAPES, bodies
from txnscan.report.rows import CsvRows
from txnscan.sweeps.news import Change, EventNews, News
from txnscan.sweeps.preflight import Checked, Finding, Level, check_security

WALL_S_MAX, CPU_S_MAX = 120, 60
_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 24, 1, 2

_NOBODY = """
import pwd, runpy, sys
def getpwuid(uid):
    raise KeyError(f"getpwuid(): uid not found: {uid}")
pwd.getpwuid = getpwuid
sys.argv[0] = "txnscan"
runpy.run_module("txnscan", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True)
class Surroundings:
    """variables: of the environment. A variable with None is absent. limit: called in the new process before Python."""

    variables: Mapping[str, str | None] = field(default_factory=dict)
    limit: Callable[[], object] = lambda: None
    start: tuple[str, ...] = ("-m", "txnscan")


def _no_rights() -> None:
    """Drops root's right to read and write every file."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None)
        for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
            libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


def _memory(kilobytes: int) -> Callable[[], object]:
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (kilobytes * 1024, kilobytes * 1024))


NO_HOME = Surroundings({"HOME": None, "XDG_CACHE_HOME": None}, start=("-c", _NOBODY))
SURROUNDINGS: dict[str, Surroundings] = {
    "no HOME, and a user without a name": NO_HOME,
    "a HOME that cannot be entered": Surroundings({"HOME": "<locked>", "XDG_CACHE_HOME": None}, _no_rights),
    "400 MB": Surroundings(limit=_memory(400_000)),
    "200 MB": Surroundings(limit=_memory(200_000)),
    "1 GB": Surroundings(limit=_memory(1_000_000)),
    "a full disk": Surroundings(limit=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))),
    "a full stdout": Surroundings(limit=lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 1)),
    "no TMPDIR": Surroundings({"TMPDIR": "/nonexistent/directory"}),
    "no right to write": Surroundings(limit=_no_rights),
    "no stdout": Surroundings(limit=lambda: os.close(1)),
}
# By environment and command: the allowed exit statuses. Memory depends on the machine.
FIND, CHECK = ("find-hanging",), ("check", "--tables", "<good>")
SWEEP, SHOW = ("sweep", "--engine", "threads", "--tables", "<new>"), ("show", "--tables", "<good>")
AGAIN = ("sweep", "--engine", "threads", "--tables", "<copy>")
PLAN, MAINTAIN = ("plan", "--tables", "<good>", "--out", "<new>"), ("maintain", "--tables", "<copy>")
REPORT, LIST = ("report", "--tables", "<good>", "--out", "<new>"), ("list",)
# They contact no broker.
OF_TABLES = {"show", "plan", "maintain", "report"}
CASES: list[tuple[str, tuple[str, ...], set[int]]] = [
    ("no HOME, and a user without a name", FIND, {0}),
    ("no HOME, and a user without a name", CHECK, {0, 1}),
    ("no HOME, and a user without a name", SWEEP, {0}),
    ("no HOME, and a user without a name", SHOW, {0}),
    ("no HOME, and a user without a name", ("show", "--tables", "~/tables"), {1}),
    ("a HOME that cannot be entered", CHECK, {0, 1}),
    ("400 MB", FIND, {0, 1}),
    ("400 MB", CHECK, {0, 1}),
    ("400 MB", SWEEP, {1}),
    ("200 MB", FIND, {0, 1}),
    ("200 MB", CHECK, {1}),
    ("200 MB", SWEEP, {1}),
    ("200 MB", REPORT, {1}),
    ("200 MB", LIST, {0, 1}),
    ("1 GB", SHOW, {1}),
    ("a full disk", (*FIND, "--metrics-file", "<new>"), {2}),
    ("a full disk", SWEEP, {2}),
    ("a full disk", AGAIN, {1}),
    ("a full disk", PLAN, {2}),
    ("a full disk", MAINTAIN, {2}),
    ("a full disk", REPORT, {2}),
    ("a full disk", SHOW, {0}),
    ("a full stdout", FIND, {1}),
    ("a full stdout", SHOW, {1}),
    ("a full stdout", LIST, {1}),
    ("a full stdout", ("plan", "--tables", "<good>", "--out", "/dev/full"), {2}),
    ("no TMPDIR", SWEEP, {0}),
    ("no right to write", ("sweep", "--engine", "threads", "--tables", "<locked>/tables"), {2}),
    ("no right to write", ("sweep", "--engine", "threads", "--tables", "<read-only>"), {1}),
    ("no right to write", ("show", "--tables", "<read-only>"), {0}),
    ("no stdout", FIND, {1}),
    ("no stdout", CHECK, {1}),
    ("no stdout", SWEEP, {1}),
    ("no stdout", SHOW, {1}),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[WireCluster]:
    shape = ClusterShape(brokers=1, partitions=20, hanging=1, transactional_ids=20, log_records=50, groups=1)
    with WireCluster(shape) as wired:
        yield wired


def run_in(surroundings: Surroundings, arguments: list[str], locked: Path) -> tuple[int, str, str]:
    """Status, stdout and stderr."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S_MAX, CPU_S_MAX))
        surroundings.limit()

    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    for name, value in surroundings.variables.items():
        variables.pop(name, None)
        if value is not None:
            variables[name] = value.replace("<locked>", str(locked))
    command = [sys.executable, *surroundings.start, *arguments]
    done = run_to_end(command, environment=variables, timeout_s=WALL_S_MAX, limit=limit)
    return done.returncode, done.stdout, done.stderr


def test_in_a_restricted_environment_a_command_ends_in_one_sentence(tmp_path: Path, cluster: WireCluster) -> None:
    servers = ("--bootstrap-server", cluster.bootstrap_servers)
    good, locked = tmp_path / "good", tmp_path / "locked"
    assert run("sweep", *servers, "--engine", "threads", "--tables", f"{good}/").returncode == 0
    shutil.copytree(good, tmp_path / "read-only")
    for path in (tmp_path / "read-only").rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    locked.mkdir(0)
    with Cases() as cases:
        for number, (name, command, statuses) in enumerate(CASES):
            with cases.case(f"{command[0]}: {name}"):
                if "<copy>" in command:
                    shutil.copytree(good, tmp_path / f"copy-{number}")
                arguments = [
                    one.replace("<copy>", f"{tmp_path}/copy-{number}")
                    .replace("<new>", f"{tmp_path}/new-{number}")
                    .replace("<locked>", str(locked))
                    .replace("<good>", str(good))
                    .replace("<read-only>", f"{tmp_path}/read-only")
                    for one in command
                ]
                more = () if command[0] in OF_TABLES else servers
                status, stdout, stderr = run_in(SURROUNDINGS[name], [*arguments, *more], locked)
                assert status in statuses, stderr
                lines = stderr.splitlines()
                # One sentence by txnscan. A failing library prints its own text.
                assert len(lines) <= 1 and all(line.startswith("txnscan: ") for line in lines), stderr
                # Status 1 needs a sentence on stderr, or a finding of check.
                assert status == 0 or lines or (command[0] == "check" and stdout)


# --- output


def test_a_person_reads_where_a_sweep_is_stored_and_a_scheduler_gets_no_mail(
    cluster: WireCluster, tmp_path: Path
) -> None:
    words = ("sweep", "--bootstrap-server", cluster.bootstrap_servers, "--engine", "threads")
    location = str(tmp_path / "tables")
    for terminal in (False, True):
        # rich takes this variable for a terminal.
        environment = {"FORCE_COLOR": "1"} if terminal else {}
        stored = run_here(*words, "--tables", location, environment=environment).stderr
        assert (location in stored) == terminal
        assert ("--tables" in run_here(*words, environment=environment).stderr) == terminal


HOSTILE = ("\x1b[2Jx\r\n\x07", "\u202etxt", "a\x00b", "\x9b31m", "ä" * 50_000)


def test_csv_quotes_every_cell_and_runs_no_formula(capsys: pytest.CaptureFixture[str]) -> None:
    with Cases() as cases:
        for value, shown in (
            ("plain", "plain"),
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\tx", "'\\tx"),
            ("\rx", "'\\rx"),
            ('a"b,c', 'a"b,c'),
            ("a\nb", "a\\nb"),
            (["=a", "b"], "'=a b"),
            (-1, "-1"),
            (None, ""),
            (True, "true"),
        ):
            with cases.case(repr(value)):
                rows = CsvRows(("id", "n"))
                rows.write([{"id": value, "n": 1}])
                rows.end([])
                printed = capsys.readouterr().out
                assert list(csv.reader(io.StringIO(printed))) == [["id", "n"], [shown, "1"]]
                assert all(line.startswith('"') and line.endswith('"') for line in printed.splitlines())
                assert len(printed.splitlines()) == 2


def _texts(value: Any) -> Iterator[str]:
    """All texts in a JSON object."""
    if isinstance(value, str):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(one)


def test_names_in_notifications_are_one_line_of_plain_text() -> None:
    row = {
        "producer_epoch": 1,
        "reason": "no_owner",
        "transactional_id": "id",
        "outcome": None,
        "blocked_records": 3,
        "explanation": "why",
        "groups_blocked": None,
        "groups_error": "why",
        "owner_id": "me",
        "cause": "late",
    }
    news = News(Change.OPENED, "c", "cid", "0f", TransactionKey("t", "id", 0, 7, 100), 0, 1_000, row=row, how=None)
    hostile: dict[str, Callable[[str], News]] = {
        "topic": lambda text: replace(news, where=news.where._replace(topic=text)),
        "cluster": lambda text: replace(news, cluster=text),
        "transactional id": lambda text: replace(news, row=row | {"transactional_id": text}),
        "reason": lambda text: replace(news, row=row | {"reason": text}),
        "error": lambda text: replace(news, row=row | {"groups_blocked": None, "groups_error": text}),
        "explanation": lambda text: replace(news, row=row | {"explanation": text}),
        "owner": lambda text: replace(news, row=row | {"owner_id": text}),
    }
    marks = ("@all", "<!channel>", "[pay](https://evil.example)", "https://evil.example")
    with Cases() as cases:
        for shape, make in SHAPES.items():
            for source, with_text in hostile.items():
                for text in (*HOSTILE, *marks):
                    with cases.case(f"{shape}: {source} {text[:20]!r}"):
                        one = with_text(text)
                        event = EventNews(Change.OPENED, one.cluster, "cid", "0f", 0, 1_000, 1, opened=(one,))
                        (body,) = bodies(make, [event], "key")
                        assert len(body) < 50_000
                        texts = [one.replace("\u200b", "") for one in _texts(json.loads(body))]
                        assert all(one.isprintable() for one in texts)
                        if shape == "slack":
                            sent = json.loads(body)
                            assert not [mark for mark in marks if mark in sent["text"]] and sent["mrkdwn"] is False


def test_the_page_of_check_prints_each_finding_on_one_line() -> None:
    with Cases() as cases:
        for text in HOSTILE:
            settings = ConnectionSettings(
                security_protocol="SASL_PLAINTEXT", sasl_mechanism=text, sasl_username="u", sasl_password="p"
            )
            findings = (
                *check_security(settings),
                Finding("connection", Level.FAILED, f"mechanisms are {text}"),
                Finding("apis", Level.INCOMPLETE, f"version {text}"),
                Finding("acls", Level.NOTE, text),
            )
            for terminal in (False, True):
                with cases.case(f"{text[:20]!r} terminal {terminal}"):
                    page = io.StringIO()
                    console = Console(file=page, force_terminal=terminal, color_system=None, width=200)
                    print_check(console, Checked(text, findings))
                    lines = page.getvalue().splitlines()
                    assert all(line.isprintable() for line in page.getvalue().split("\n"))
                    assert len(page.getvalue()) < 40_000
                    assert terminal or len(lines) == len(findings) + 2
            with cases.case(f"JSON {text[:20]!r}"):
                assert json.dumps(check_object(Checked(text, findings))).isascii()
