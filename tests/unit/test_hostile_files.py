"""Untrusted files: reading them is bounded in time and memory, and a failing file is data.

All cases of the offline commands run in one process with hard limits and without root's right to read every file.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cases import Cases
from tests.offline import data, end, partition_directory, plain, shut_down
from tests.process import ROOT, run_here, run_to_end
from txnscan.kafka.client.properties import exposed_files
from txnscan.kafka.security.safe_files import exposed
from txnscan.watch.clusters import ClustersError, read_clusters

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

GB, MB = 1 << 30, 1 << 20
# A case takes less than a second and about 40 MB. Reading a file of 50 GB would take minutes.
MEMORY_MB_MAX, CPU_S_MAX, WALL_S_MAX = 400, 120, 240
_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 24, 1, 2

SEGMENT, NEXT = f"{0:020d}.log", f"{100:020d}.log"


def hanging(root: Path) -> Path:
    """A log directory with a transaction that hangs according to its files, and with another partition."""
    root.mkdir()
    (root / "meta.properties").write_text("cluster.id=abc\nbroker.id=1\n")
    (root / ".lock").touch()
    partition_directory(root, "t-0", {0: data(0) + plain(1)})
    partition_directory(root, "u-0", {0: data(0, pid=8) + plain(1)})
    partition_directory(root, "__transaction_state-0", {0: b""})
    return shut_down(root)


def _sparse(name: str, size: int) -> Callable[[Path], object]:
    def make(root: Path) -> None:
        (root / name).touch()
        os.truncate(root / name, size)

    return make


def _rows(name: str, row: str) -> Callable[[Path], object]:
    """A valid file of 12 MB."""

    def make(root: Path) -> None:
        count = 12 * MB // len(row.format(100_000))
        (root / name).write_text(f"0\n{count}\n" + "".join(row.format(number) for number in range(count)))

    return make


def _replaced(name: str, make: Callable[[Path], object]) -> Callable[[Path], object]:
    def replace(root: Path) -> None:
        (root / name).unlink(missing_ok=True)
        make(root / name)

    return replace


def _loops(root: Path) -> None:
    for number in range(40):
        (root / f"again-{number}").symlink_to(".")


def _control(root: Path) -> None:
    """A marker whose header claims 2 GB, most of them a hole."""
    huge = bytearray(end(1))
    huge[8:12] = (2**31 - 400).to_bytes(4)
    (root / "t-0" / SEGMENT).write_bytes(data(0) + huge)
    os.truncate(root / "t-0" / SEGMENT, 2**31 - 100)


# The change to the log directory, the number of failing files, and the partitions that still hang.
BOTH, OTHER, NONE = ["t-0", "u-0"], ["u-0"], list[str]()
CASES: dict[str, tuple[Callable[[Path], object], int, list[str]]] = {
    "nothing": (lambda root: None, 0, BOTH),
    "directories that link to themselves": (_loops, 0, BOTH),
    "links of other names that lead back": (lambda root: (root / "loop").symlink_to(root), 0, BOTH),
    "a link to itself": (lambda root: (root / "self").symlink_to("self"), 0, BOTH),
    "a segment that links to itself": (lambda root: (root / "t-0" / NEXT).symlink_to(NEXT), 1, OTHER),
    "a partition that links to itself": (lambda root: (root / "t-1").symlink_to("t-1"), 1, BOTH),
    "a pipe as a segment": (lambda root: os.mkfifo(root / "t-0" / NEXT), 1, OTHER),
    "a pipe as a segment of the transaction log": (
        lambda root: os.mkfifo(root / "__transaction_state-0" / NEXT),
        1,
        NONE,
    ),
    "a pipe as a snapshot": (lambda root: os.mkfifo(root / "t-0" / f"{0:020d}.snapshot"), 1, BOTH),
    "a pipe as meta.properties": (_replaced("meta.properties", os.mkfifo), 1, BOTH),
    "a pipe as a checkpoint": (_replaced("replication-offset-checkpoint", os.mkfifo), 1, BOTH),
    "a pipe as .lock": (_replaced(".lock", os.mkfifo), 0, BOTH),
    "a device as a segment": (lambda root: (root / "t-0" / NEXT).symlink_to("/dev/zero"), 1, OTHER),
    "a directory as a segment": (lambda root: (root / "t-0" / NEXT).mkdir(), 1, OTHER),
    "50 GB of segment": (_sparse(f"t-0/{SEGMENT}", 50 * GB), 1, OTHER),
    "50 GB of snapshot": (_sparse(f"t-0/{0:020d}.snapshot", 50 * GB), 1, BOTH),
    "50 GB of index": (_sparse(f"t-0/{0:020d}.txnindex", 50 * GB), 1, BOTH),
    "2 GB of control batch": (_control, 1, OTHER),
    "12 MB of leader epochs": (_rows("t-0/leader-epoch-checkpoint", "{0} {0}\n"), 1, BOTH),
    "12 MB of recovery points": (_rows("recovery-point-offset-checkpoint", "topic {0} {0}\n"), 1, NONE),
    "12 MB of meta.properties": (_rows("meta.properties", "key{0}=value\n"), 1, BOTH),
    "12 MB of partition.metadata": (_rows("t-0/partition.metadata", "key{0}: value\n"), 1, BOTH),
    "a number of 5,000 digits": (
        lambda root: (root / "t-0" / "leader-epoch-checkpoint").write_text(f"0\n1\n{'9' * 5_000} 1\n"),
        1,
        BOTH,
    ),
    "a partition that cannot be listed": (lambda root: (root / "t-0").chmod(0), 1, OTHER),
    "a directory that cannot be listed": (lambda root: (root / "more").mkdir(0), 1, NONE),
    "a segment with another name": (lambda root: (root / "t-0" / "2.log").write_bytes(end(2)), 1, OTHER),
    "a segment of the transaction log with another name": (
        lambda root: (root / "__transaction_state-0" / "2.log").touch(),
        1,
        NONE,
    ),
    "a snapshot with another name": (lambda root: (root / "t-0" / "1.snapshot").touch(), 1, BOTH),
    "a snapshot of the metadata log": (
        lambda root: (root / "t-0" / f"{1:020d}-{1:010d}.checkpoint").touch(),
        1,
        OTHER,
    ),
    "a segment that cannot be read": (lambda root: (root / "t-0" / SEGMENT).chmod(0), 1, OTHER),
}


def limited() -> None:
    """Limits the next process, and drops root's right to read every file."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None)
        for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
            libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S_MAX, CPU_S_MAX))


def run_limited(*arguments: str) -> tuple[int, str, str]:
    """Status, stdout and stderr of Python with these arguments."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *arguments]
    done = run_to_end(command, environment=variables, timeout_s=WALL_S_MAX, limit=limited)
    return done.returncode, done.stdout, done.stderr


_SCRIPT = """
import json, sys
from pathlib import Path
from tests.process import run_here
for command in json.loads(Path(sys.argv[1]).read_text("utf-8")):
    ran = run_here(*command)
    # Not ru_maxrss: Linux begins it at the peak of the process that started this one.
    status = Path("/proc/self/status").read_text("utf-8")
    peak = int(status.partition("VmHWM:")[2].split()[0]) // 1024
    print(json.dumps([command, ran.returncode, peak, ran.stdout, ran.stderr]), flush=True)
"""


def run_all(folder: Path, commands: list[list[str]]) -> list[Any]:
    """Command, status, peak of memory in MB, stdout and stderr of each, all in one limited process."""
    (folder / "commands.json").write_text(json.dumps(commands), "utf-8")
    _, stdout, stderr = run_limited("-c", _SCRIPT, str(folder / "commands.json"))
    lines = [json.loads(line) for line in stdout.splitlines()]
    assert [line[0] for line in lines] == commands, f"the next one did not end: {stderr[-500:]}"
    return lines


def test_a_hostile_file_fails_only_itself(tmp_path: Path) -> None:
    roots = {str(hanging(tmp_path / f"case{number}")): name for number, name in enumerate(CASES)}
    for root, name in roots.items():
        CASES[name][0](Path(root))
    options = ["--stopped", "--transaction-log-partitions", "1", "--format", "json"]
    commands = [["segments", *options, root] for root in roots]
    commands += [["transaction-log", *command[1:]] for command in commands]
    with Cases() as cases:
        for command, status, peak_mb, printed, errors in run_all(tmp_path, commands):
            with cases.case(f"{command[0]}: {roots[command[-1]]}"):
                _, failed, hangs = CASES[roots[command[-1]]]
                assert "Traceback" not in errors and status == 0 and peak_mb < MEMORY_MB_MAX
                found = json.loads(printed)
                of_files = [one["error"] for one in found["errors"] if one["stage"] == "read files"]
                assert len(of_files) == failed, of_files
                assert [
                    f"{one['topic']}-{one['partition']}" for one in found["transactions"] if one["verdict"] == "hanging"
                ] == hangs


# --- files of settings and of secrets

SASL = (
    "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config="
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";\n'
)
KEYS = "security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.location={0}\n"
TRUST = "security.protocol=SSL\nssl.truststore.type={1}\nssl.truststore.location={0}\n"


def _large(path: Path) -> None:
    path.touch()
    os.truncate(path, 50 * MB)


BAD: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "50 MB": _large,
    "a device": lambda p: p.symlink_to("/dev/zero"),
}


def test_a_hostile_settings_file_is_refused_in_one_sentence(tmp_path: Path, wording: SnapshotAssertion) -> None:
    commands: dict[str, list[str]] = {}
    for number, (kind, make) in enumerate(BAD.items()):
        bad = tmp_path / f"bad-{number}"
        make(bad)
        for name, content in (
            ("key store", KEYS.format(bad)),
            ("PEM trust store", TRUST.format(bad, "PEM")),
            ("JKS trust store", TRUST.format(bad, "JKS")),
        ):
            settings = tmp_path / f"{name} {number}.properties"
            settings.write_text(content, "utf-8")
            commands[f"{name}: {kind}"] = [
                "check",
                "--bootstrap-server",
                "127.0.0.1:1",
                "--command-config",
                str(settings),
            ]
        commands[f"--command-config: {kind}"] = [*commands[f"key store: {kind}"][:-1], str(bad)]
        commands[f"clusters.toml: {kind}"] = ["watch", "--config", str(bad)]
        notify = ["watch", "--bootstrap-server", "127.0.0.1:1", "--notify", f"@{bad}"]
        commands[f"--notify: {kind}"] = notify
    sentences = {}
    with Cases() as cases:
        for name, (_, status, peak_mb, printed, errors) in zip(
            commands, run_all(tmp_path, list(commands.values())), strict=True
        ):
            with cases.case(name):
                assert (status, printed, errors.count("\n")) == (2, "", 1) and peak_mb < MEMORY_MB_MAX
                sentences[name] = errors.replace(str(tmp_path), "<folder>")
    assert sentences == wording


def _exposed_by(*modes: int) -> list[bool]:
    return [bool(mode & 0o044) for mode in modes]


def test_readable_files_with_secrets_are_reported(tmp_path: Path) -> None:
    """Each file at each mode, and a file of the same mode without a secret."""
    clusters = '[clusters.a]\nbootstrap-server = "127.0.0.1:1"\n'
    with_url = '[[notify]]\nurl = "https://127.0.0.1/secret"\n'
    with Cases() as cases:
        for mode in (0o600, 0o640, 0o604, 0o644):
            folder = tmp_path / f"{mode:o}"
            folder.mkdir()

            def file(name: str, content: str, folder: Path = folder, mode: int = mode) -> Path:
                (folder / name).write_text(content, "utf-8")
                (folder / name).chmod(mode)
                return folder / name

            with cases.case(f"settings {mode:o}"):
                said = exposed_files(file("sasl.properties", SASL))
                assert [bool(said)] == _exposed_by(mode) and len(said) < 2
                assert exposed_files(file("plain.properties", "client.id=x\n")) == []
            with cases.case(f"key store {mode:o}"):
                keys = file("keys.properties", KEYS.format(file("key.pem", "")))
                said = exposed_files(keys)
                assert [bool(said)] == _exposed_by(mode) and all("key.pem" in one for one in said)
            with cases.case(f"check {mode:o}"):
                checked = run_here(
                    "check", "--bootstrap-server", "127.0.0.1:1", "--command-config", str(folder / "sasl.properties")
                )
                lines = [line for line in checked.stdout.splitlines() if "can read it" in line]
                assert [line.split()[:2] == ["note", "security"] for line in lines] == [True] * _exposed_by(mode)[0]
                assert checked.stderr.count("can read it") == _exposed_by(mode)[0]
            with cases.case(f"clusters {mode:o}"):
                assert read_clusters(file("plain.toml", clusters), {}).secrets == ()
                named = read_clusters(file("url.toml", clusters + with_url), {}).secrets
                assert named == (folder / "url.toml",) and [bool(exposed(named[0]))] == _exposed_by(mode)
                file("url", "https://127.0.0.1/secret")
                named = read_clusters(file("file.toml", clusters + '[[notify]]\nurl-file = "url"\n'), {}).secrets
                assert named == (folder / "url",)


def test_clusters_that_are_nested_or_counted_without_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "clusters.toml"
    texts = {
        "lists": f"a={'[' * 100_000}",
        "tables": f"a={'{a=' * 100_000}",
        "a key": f"a{'.a' * 200_000}=1",
        "a name of a table": f"[a{'. a' * 200_000}]",
        "a key in a table": "a={b" + '."a"' * 100_000 + "=1}",
        "a number": f"a={'9' * 5_000}",
    }
    with Cases() as cases:
        for name, text in texts.items():
            with cases.case(name):
                path.write_text(text)
                began = time.monotonic()
                with pytest.raises(ClustersError):
                    read_clusters(path, {})
                assert time.monotonic() - began < 2


def test_group_access_is_accepted_for_a_file_of_another_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret"
    path.touch()
    path.chmod(0o440)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert exposed(path) is None
    path.chmod(0o444)
    assert "chmod o-r" in (exposed(path) or "")
