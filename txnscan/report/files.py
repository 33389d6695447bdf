"""Files that the user names. Every complaint names the option, and a file is written whole or not at all."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from txnscan.config import ConfigError, printable
from txnscan.errors import system_reason
from txnscan.kafka.security.safe_files import SETTINGS_BYTES_MAX, read_limited


def read_text(path: Path, option: str, bytes_max: int = SETTINGS_BYTES_MAX) -> str:
    """The text of a regular file up to this size. Raises ConfigError."""
    try:
        return read_limited(path, bytes_max).decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(option, f"{printable(str(path))} is not a text file") from None
    except OSError as error:
        raise ConfigError(option, f"{printable(str(path))} cannot be read: {system_reason(error)}") from None


def check_writable(path: Path, option: str) -> None:
    """Checks, before any work is done for it, that a file can be written there. Raises ConfigError."""
    if path == Path("-"):
        raise ConfigError(option, "- does not mean stdout here; name a file")
    _check_link(path, option)
    if path.exists() and not path.is_file():
        raise ConfigError(option, f"{printable(str(path))} is not a regular file; name a regular file")
    if not path.parent.is_dir() or not os.access(_target(path).parent, os.W_OK):
        raise ConfigError(option, f"{printable(str(path))} cannot be written; name a file in an existing folder")


def _target(path: Path) -> Path:
    """The file that is replaced, behind links. `Path.resolve` raises a RuntimeError for links that lead in a circle."""
    return Path(os.path.realpath(path))


def _check_link(path: Path, option: str) -> None:
    """Raises ConfigError for a link of another user, except of root: in a shared folder it may lead to any file of this
    user, which would be replaced.
    """
    try:
        found = path.lstat()
    except OSError:
        return
    if stat.S_ISLNK(found.st_mode) and found.st_uid not in (0, os.geteuid()):
        raise ConfigError(option, f"{printable(str(path))} is a link of another user; remove it, or name another file")


def write_whole(path: Path, text: str, option: str) -> None:
    """Writes or replaces the file: whole, or not at all. Raises ConfigError."""
    _check_link(path, option)
    target = _target(path)
    written = target.with_name(f".{target.name}-{os.getpid()}")
    try:
        with written.open("x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        written.replace(target)
    except OSError as error:
        with suppress(OSError):
            written.unlink()
        raise ConfigError(option, f"{printable(str(path))} cannot be written: {system_reason(error)}") from None
