"""The pinned SHA-256 of every downloaded jar, and the files of a directory that differ from their pins.

`jars.sha256` has the format of `sha256sum`, and `sha256sum --check` in the cache directory gives the same result. `make
pins` renews the file.

Every process computes the hashes again: a stamp file in the same directory would be as easy to change as a jar. Kafka's
45 MB take 45 ms, and Delta's 13 MB take 12 ms.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

PINS = Path(__file__).with_name("jars.sha256")


class Mismatch(Enum):
    """How a file differs from the pinned files."""

    CHANGED = "changed"
    MISSING = "missing"
    UNKNOWN = "unknown"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Difference:
    """A file that differs from its pin."""

    file: str
    mismatch: Mismatch


@cache
def pins() -> Mapping[str, Mapping[str, str]]:
    """The SHA-256 of each jar, by directory and file name."""
    found: dict[str, dict[str, str]] = {}
    for line in PINS.read_text("utf-8").splitlines():
        digest, _, path = line.partition("  ")
        directory, _, file = path.partition("/")
        found.setdefault(directory, {})[file] = digest
    return found


def differences(directory: Path, pinned: Mapping[str, str]) -> list[Difference]:
    """The jars of the directory that are changed, missing or not pinned. Java loads every jar of a directory."""
    present = {path.name for path in directory.iterdir() if path.suffix.lower() == ".jar"}
    found = [Difference(file, Mismatch.UNKNOWN) for file in present - pinned.keys()]
    found += [Difference(file, Mismatch.MISSING) for file in pinned.keys() - present]
    for file in present & pinned.keys():
        try:
            with (directory / file).open("rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
        except OSError:
            found.append(Difference(file, Mismatch.UNREADABLE))
        else:
            if digest != pinned[file]:
                found.append(Difference(file, Mismatch.CHANGED))
    return sorted(found, key=lambda difference: difference.file)
