"""Make a recorded disk incomplete, in place, and restore it: files that are missing, cut short or of an earlier moment.

Times of files and folders stay as they were, as in a copy that leaves files out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.golden.disks import PARTITIONS, unpacked
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC
from txnscan.offline.disk import PathError
from txnscan.offline.files import CLEANED, checkpoint, offset_of
from txnscan.offline.paths import read_paths
from txnscan.offline.walk import headers
from txnscan.report.offline import offline_scan
from txnscan.verdict.evidence import Verdict

Transaction = tuple[str, int, int]


@dataclass(frozen=True)
class Answer:
    """What `segments --stopped` says of a disk. open, hanging: topic, producer id and start offset."""

    open: frozenset[Transaction]
    hanging: frozenset[Transaction]
    complete: bool


def answer(data: Path) -> Answer:
    """What the files say, if the user asserts all that a user can assert. Files without a disk are incomplete."""
    try:
        read = read_paths([str(data)], late_after_ms=0, vouched=True, log_partitions=PARTITIONS)
    except PathError:
        return Answer(frozenset(), frozenset(), complete=False)
    judged = {
        (o.topic, o.producer_id, o.start_offset): one.judged.judgement.verdict
        for one in read.transactions
        for o in [one.judged.observation]
    }
    hanging = frozenset(one for one, verdict in judged.items() if verdict is Verdict.HANGING)
    return Answer(frozenset(judged), hanging, offline_scan(read, "").complete)


@dataclass(frozen=True)
class Disk:
    """An unpacked disk. earlier: its files at an earlier moment. stash: an empty directory beside it. untraced: all
    files of each segment below the cleaner's offset; no file shows that they are missing.
    """

    data: Path
    earlier: Path
    stash: Path
    untraced: tuple[frozenset[Path], ...]

    @property
    def files(self) -> list[Path]:
        """All its files, in order."""
        return sorted(path for path in self.data.rglob("*") if path.is_file())

    @contextmanager
    def without(self, paths: Sequence[Path]) -> Iterator[None]:
        """Some files are missing."""
        folders = {path.parent: path.parent.stat() for path in paths}
        for number, path in enumerate(paths):
            path.rename(self.stash / str(number))
        _restore(folders)
        try:
            yield
        finally:
            for number, path in enumerate(paths):
                (self.stash / str(number)).rename(path)
            _restore(folders)

    @contextmanager
    def with_content(self, path: Path, content: bytes) -> Iterator[None]:
        """A file has other bytes."""
        before, stamp = path.read_bytes(), path.stat()
        path.write_bytes(content)
        _restore({path: stamp})
        try:
            yield
        finally:
            path.write_bytes(before)
            _restore({path: stamp})

    @contextmanager
    def with_all(self, removed: Sequence[Path], contents: dict[Path, bytes]) -> Iterator[None]:
        """Some files are missing, and others have other bytes."""
        with ExitStack() as stack:
            for path, content in contents.items():
                stack.enter_context(self.with_content(path, content))
            stack.enter_context(self.without(removed))
            yield


def _restore(stamps: dict[Path, os.stat_result]) -> None:
    for path, stamp in stamps.items():
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


def groups(disk: Disk) -> dict[str, list[Path]]:
    """Files that copies leave out together: those of a segment, of a folder, and of a kind everywhere."""
    found: dict[str, list[Path]] = {}
    for path in disk.files:
        folder, broker = path.parent.name, path.relative_to(disk.data).parts[0]
        offset = offset_of(path.name)
        if offset is not None:
            found.setdefault(f"segment {broker} {folder} {offset}", []).append(path)
            found.setdefault(f"segment {folder} {offset} of all brokers", []).append(path)
        found.setdefault(f"folder {broker} {folder}", []).append(path)
        found.setdefault(f"folder {folder} of all brokers", []).append(path)
        found.setdefault(f"log directory {broker}", []).append(path)
        kind = path.suffix if offset is not None else path.name
        found.setdefault(f"kind {kind}", []).append(path)
        found.setdefault(f"kind {kind} of {folder.rpartition('-')[0]}", []).append(path)
    found["indexes"] = [path for path in disk.files if path.name.endswith("index")]
    found["beside the logs"] = [
        path for path in disk.files if offset_of(path.name) is not None and path.suffix != ".log"
    ]
    return found


def disk_in(root: Path, kind: str) -> Disk:
    """A recorded disk, unpacked."""
    data, stash = unpacked(kind, root), root / "stash"
    stash.mkdir()
    untraced = []
    for path in data.glob(f"*/{CLEANED}"):
        for (topic, index), cleaned_until in checkpoint(path.read_bytes()).items():
            folder = path.parent / f"{topic}-{index}"
            for log in folder.glob("*.log") if topic == TRANSACTION_STATE_TOPIC else ():
                if int(log.stem) < cleaned_until:
                    untraced.append(frozenset(one for one in folder.iterdir() if one.name.startswith(f"{log.stem}.")))
    return Disk(data, root / "earlier", stash, tuple(untraced))


def boundaries(path: Path) -> list[int]:
    """Where a file may be cut: at each batch of a log, otherwise at each line or entry."""
    content = path.read_bytes()
    if path.suffix == ".log":
        return [at for at, _ in headers(content)]
    if path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
        return list(range(0, len(content), 12))
    return [number for number, byte in enumerate(content) if byte == 0x0A]


Case = tuple[str, Sequence[Path], dict[Path, bytes]]


def wrong(disk: Disk, whole: Answer, cases: Iterable[Case]) -> Iterator[str | None]:
    """For each case, what the files say and the whole disk does not, if there is something."""
    for name, removed, contents in cases:
        with disk.with_all(removed, contents):
            found = answer(disk.data)
        accused = found.hanging - whole.hanging
        if accused and not any(one <= set(removed) for one in disk.untraced):
            yield f"{name}: hanging {sorted(accused)}"
        elif found.complete and found.open != whole.open:
            yield f"{name}: complete, and not open: {sorted(found.open ^ whole.open)}"
        else:
            yield None
