"""A child process that never outlives this one, with its output in a file."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from txnscan.demo import parent


class GuardedProcess:
    """A command that runs under `parent.py`: in a session of its own, so that Ctrl-C does not reach it, and killed when
    this process ends in whatever way.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.log = log
        self._orders, orders = socket.socketpair()
        with log.open("ab") as output, orders:
            # -I and -S: the parent starts in 20 ms and reads nothing of the user's.
            self._parent = subprocess.Popen(
                [sys.executable, "-I", "-S", str(parent.__file__), *command],
                stdin=orders.fileno(),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def exit_status(self) -> int | None:
        """None while it runs."""
        return self._parent.poll()

    def terminate(self) -> None:
        """SIGTERM: it may shut down in good order."""
        self._order(b"T")

    def kill(self) -> None:
        """SIGKILL: it ends at once."""
        self._order(b"K")

    def pause(self) -> None:
        """SIGSTOP: it holds its connections and answers nothing, from when this returns."""
        self._order(b"S")
        # No answer comes where it has ended.
        with contextlib.suppress(OSError):
            self._orders.recv(1)

    def resume(self) -> None:
        """SIGCONT."""
        self._order(b"C")

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended within that time."""
        try:
            self._parent.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        self._orders.close()
        return True

    def _order(self, order: bytes) -> None:
        # One that has ended takes no orders.
        with contextlib.suppress(OSError):
            self._orders.sendall(order)
