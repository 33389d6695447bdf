"""A temporary directory of this process."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path


@cache
def own_directory() -> Path:
    """A directory that is removed when this process ends."""
    made = Path(tempfile.mkdtemp(prefix="txnscan-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made
