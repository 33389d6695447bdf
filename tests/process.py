"""The checkout, and the command line in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs `txnscan` with these arguments, and with this in its environment besides."""
    command = [sys.executable, "-m", "txnscan", *arguments]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=variables, check=False)
