"""Programs that tests need and pip lacks: from the PATH, or from Debian's packages, fetched once into the user's cache.

It installs no package and needs no root: `apt-get download` writes to a directory, with lists of its own if needed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "txnscan"


def program(name: str, package: str) -> str:
    """The path of a program. If it cannot be fetched, the test fails, because it could not test its subject."""
    found = shutil.which(name)
    if found is not None:
        return found
    kept = _CACHE / f"debian-{package}" / name
    if not kept.exists():
        _fetch(name, package, kept.parent)
    return str(kept)


def _fetch(name: str, package: str, kept: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.fail(f"there is no {name}; put it on the PATH (it comes with {package})")
    _CACHE.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{package}-", dir=_CACHE))
    try:
        # First with the machine's lists. If they lack the package, with lists of our own.
        if not _download(package, work):
            own = ["-o", f"Dir::State::Lists={work / 'lists'}", "-o", f"Dir::Cache={work / 'cache'}"]
            for folder in ("lists/partial", "cache/archives/partial"):
                (work / folder).mkdir(parents=True)
            _ran(["apt-get", *own, "-q", "update"], work)
            if not _download(package, work, *own):
                pytest.fail(f"{package} cannot be fetched from Debian's packages; put {name} on the PATH")
        (archive,) = work.glob("*.deb")
        _ran(["dpkg-deb", "-x", str(archive), str(work / "root")], work)
        # Rename a complete directory: another test process may fetch it at the same time.
        if not kept.exists():
            (work / "root" / "usr" / "bin").rename(kept)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _download(package: str, work: Path, *options: str) -> bool:
    return _ran(["apt-get", *options, "-q", "download", package], work) == 0 and bool(list(work.glob("*.deb")))


def _ran(command: list[str], work: Path) -> int:
    return subprocess.run(command, cwd=work, capture_output=True, timeout=600, check=False).returncode
