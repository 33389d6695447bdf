"""The parent of one broker process: a script of the standard library, run by `process.py`, never imported.

It starts the command in its arguments and obeys single bytes on its standard input, a socket: T, K, S and C send
SIGTERM, SIGKILL, SIGSTOP and SIGCONT. After S, once the command has stopped, it answers with the same byte. When its
own parent ends, in any way, that input ends, and this process kills the broker. Only the process that also reaps the
command sends signals, so a signal cannot reach another process with the same id. Its exit status is that of the command
(128 + n after signal n).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys

_SIGNALS = {b"T": signal.SIGTERM, b"K": signal.SIGKILL, b"S": signal.SIGSTOP, b"C": signal.SIGCONT}
_INPUT = 0
# How often the parent's id is checked, because another process may keep the other end of the socket open.
_LOOK_S = 1.0
_PR_SET_PDEATHSIG = 1


def main(command: list[str]) -> int:
    """Runs the command until it ends, or the parent ends."""
    wake, woken_by = os.pipe()
    os.set_blocking(woken_by, False)
    signal.set_wakeup_fd(woken_by)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    parent = os.getppid()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_die_with_guard)
    while child.poll() is None:
        ready, _, _ = select.select([_INPUT, wake], [], [], _LOOK_S)
        if wake in ready:
            os.read(wake, 4096)
        orders = os.read(_INPUT, 1) if _INPUT in ready else None
        if orders == b"" or os.getppid() != parent:
            child.kill()
            child.wait()
        elif orders in _SIGNALS:
            child.send_signal(_SIGNALS[orders])
            if orders == b"S":
                os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
                os.write(_INPUT, orders)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _die_with_guard() -> None:
    """Runs in the child: on Linux, the kernel kills the child if this process is killed."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
