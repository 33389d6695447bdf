"""Finding a Java that Kafka runs on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from txnscan.demo.errors import DemoError

JAVA_VERSION_MIN = 17
_VERSION = re.compile(r'version "(?:1\.)?(?P<major>\d+)')
_ANSWER_S = 30


def java() -> Path:
    """The `java` of JAVA_HOME, or else of PATH. Raises DemoError when there is none that Kafka runs on."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java on PATH"
        raise DemoError(f"the demo needs Java {JAVA_VERSION_MIN} or newer, but {where}; install one or set JAVA_HOME")
    version = _major_version(found)
    if version is None:
        raise DemoError(f"{found} does not tell its version; set JAVA_HOME to a Java {JAVA_VERSION_MIN} or newer")
    if version < JAVA_VERSION_MIN:
        raise DemoError(
            f"the demo needs Java {JAVA_VERSION_MIN} or newer, but {found} is Java {version}; "
            "install a newer one or set JAVA_HOME"
        )
    return Path(found)


def _major_version(executable: str) -> int | None:
    try:
        ran = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=_ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    told = _VERSION.search(ran.stderr + ran.stdout)
    return int(told["major"]) if told else None
