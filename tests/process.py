"""The checkout, and commands in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from txnscan.demo.wait import wait_until

ROOT = Path(__file__).parents[1]
_POLL_S = 1.0
# The most memory of this process in KiB, for code of a process of its own. That of `getrusage` includes the memory of
# the process that started it.
PEAK_KIB = "int(__import__('re').search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"


def run(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run `txnscan` with these arguments, and with these variables added to the environment."""
    return run_python("-m", "txnscan", *arguments, environment=environment)


def run_here(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """As `run`, but in this process, which saves its start. There is no terminal, and stdin is empty."""
    from typer.testing import CliRunner

    from txnscan.cli.app import app
    from txnscan.report.help import as_txnscan_writes

    ran = CliRunner().invoke(app, as_txnscan_writes([*arguments]), env=environment)
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return subprocess.CompletedProcess(arguments, ran.exit_code, ran.stdout, ran.stderr)


def run_python(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments. The checkout is on its path."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
    return run_to_end([sys.executable, *arguments], environment=variables)


def run_to_end(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    timeout_s: float = 600.0,
    limit: Callable[[], None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command as `subprocess.run` does, with a deadline that counts ticks (`wait_until`).

    environment: all variables. Without it the command inherits the environment. directory: where the command runs.
    limit: called in the new process before the command, such as to set its resource limits.
    """
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=directory,
        preexec_fn=limit,
    ) as process:
        try:
            stdout, stderr = ended(process, timeout_s=timeout_s)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def ended(process: subprocess.Popen[str], *, timeout_s: float = 600.0) -> tuple[str, str]:
    """Wait until the process has ended, and return its output and its errors. Raises DemoError."""

    def output() -> tuple[str, str] | None:
        try:
            return process.communicate(timeout=_POLL_S)
        except subprocess.TimeoutExpired:
            return None

    return wait_until(output, f"{process.args!r} ended", timeout_s)
