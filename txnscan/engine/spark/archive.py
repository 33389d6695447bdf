"""Class data archives: the loaded and checked classes of a JVM, to be mapped into later JVMs (JEP 350).

Loading classes takes half of a broker's start, and a fifth of a cold sweep through Spark. An archive belongs to a Java
and a list of jars, and its file name contains digests of both. If an archive does not fit a JVM, the JVM continues
without it. An archive is complete or absent: it is written under a temporary name and then renamed.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from txnscan.engine.spark.java import JavaError, cache_directory
from txnscan.errors import system_reason

# A JVM warns if its build differs from the archive's build. The user need not act on that warning.
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


@dataclass(frozen=True, slots=True)
class Archive:
    """The archive of the classes that this Java loads from these jars. name: of the program, for people."""

    name: str
    java: Path
    jars: tuple[Path, ...]

    @property
    def file(self) -> Path | None:
        """The file of the archive, if it exists and is complete. A JVM would crash on a truncated file."""
        for found in cache_directory().glob(f"{self._name}-*.jsa"):
            if found.stem.endswith(f"-{found.stat().st_size}"):
                return found
        return None

    @property
    def options(self) -> tuple[str, ...]:
        """The options with which a JVM uses the archive. Empty if there is no archive."""
        found = self.file
        return (f"-XX:SharedArchiveFile={found}", *_QUIET) if found is not None else ()

    def make(self, train: Callable[[Sequence[str]], bool]) -> Path:
        """Makes the archive, and removes older archives of the same Java and jars.

        train: starts a JVM with these options, lets it do its normal work, and waits for its end. Returns whether it
        succeeded. Raises JavaError.
        """
        cache = cache_directory()
        try:
            cache.mkdir(parents=True, exist_ok=True)
            work = tempfile.TemporaryDirectory(prefix=f".{self.name}-", dir=cache)
        except OSError as error:
            why = f"{cache} cannot be written ({system_reason(error)})"
            raise JavaError(f"{why}; set XDG_CACHE_HOME to a directory that can") from None
        with work as directory:
            made = Path(directory, "archive.jsa")
            if not train((f"-XX:ArchiveClassesAtExit={made}", *_QUIET)) or not made.is_file():
                raise JavaError(f"Java made no class data archive of {self.name}; its disk may be full: {cache}")
            for former in cache.glob(f"{self._place}-*.jsa"):
                former.unlink(missing_ok=True)
            return made.rename(cache / f"{self._name}-{made.stat().st_size}.jsa")

    @property
    def _place(self) -> str:
        return f"{self.name}-{_digest([str(self.java), *map(str, self.jars)])}"

    @property
    def _name(self) -> str:
        return f"{self._place}-{_digest(_changes(self.java, self.jars))}"


def _changes(java: Path, jars: Sequence[Path]) -> list[str]:
    """The data that a JVM compares before it uses an archive: its own build, and each jar's time and size."""
    release = java.resolve().parents[1] / "release"
    own = release.read_text("utf-8", "replace") if release.is_file() else ""
    return [own, *(f"{found.st_size} {found.st_mtime_ns}" for found in map(os.stat, jars))]


def _digest(words: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:12]
