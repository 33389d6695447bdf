"""Open only regular files, up to a size, and find files of secrets that other users can read."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

# A client.properties, a key store or a file of clusters has some kilobytes.
SETTINGS_BYTES_MAX = 1 << 20


def open_regular(path: str | Path) -> int:
    """A descriptor to read a regular file. Opening a pipe or a device could wait for ever. Raises OSError."""
    if "\0" in str(path):
        # Python raises a ValueError for such names. A file of settings may have them, escaped.
        raise OSError(errno.EINVAL, "its name has a zero byte")
    # The path may become another file between the two checks.
    if stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
    if Path(path).is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, "it is no regular file")


def read_limited(path: str | Path, bytes_max: int = SETTINGS_BYTES_MAX) -> bytes:
    """The contents of a regular file up to this size. Raises OSError."""
    with os.fdopen(open_regular(path), "rb") as file:
        too_large = os.fstat(file.fileno()).st_size > bytes_max
        data = b"" if too_large else file.read(bytes_max + 1)
    if too_large or len(data) > bytes_max:
        raise OSError(errno.EFBIG, f"it is larger than {bytes_max} bytes, which no such file is")
    return data


def exposed(path: str | Path) -> str | None:
    """The warning, with the remedy, if other users can read this file of secrets.

    If the file belongs to another user, its group may be the only way for this user to read it, as with secrets in
    Kubernetes. Then only access by all users is a warning.
    """
    try:
        state = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    shared = os.geteuid() not in (0, state.st_uid)
    who = "every user" if state.st_mode & stat.S_IROTH else "its group"
    if not state.st_mode & (stat.S_IROTH if shared else stat.S_IROTH | stat.S_IRGRP):
        return None
    return f"{path} holds secrets and {who} can read it; take that right away (chmod {'o' if shared else 'go'}-r)"
