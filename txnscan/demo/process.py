"""A child process that never outlives this process, with its output in a file."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from txnscan.demo import parent


class GuardedProcess:
    """A command that runs under `parent.py`: in its own process session, so that Ctrl-C does not reach it, and killed
    when this process ends in any way.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.log = log
        self._orders, orders = socket.socketpair()
        with log.open("ab") as output, orders:
            # -I and -S: the parent starts in 20 ms and reads no files of the user.
            self._parent = subprocess.Popen(
                [sys.executable, "-I", "-S", str(parent.__file__), *command],
                stdin=orders.fileno(),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def exit_status(self) -> int | None:
        """None while the command runs."""
        return self._parent.poll()

    def terminate(self) -> None:
        """Sends SIGTERM: the command may shut down cleanly."""
        self._order(b"T")

    def kill(self) -> None:
        """Sends SIGKILL: the command ends at once."""
        self._order(b"K")

    def pause(self) -> None:
        """Sends SIGSTOP. When this returns, the command keeps its connections, but answers no requests."""
        self._order(b"S")
        # If the command has ended, no answer comes.
        with contextlib.suppress(OSError):
            self._orders.recv(1)

    def resume(self) -> None:
        """Sends SIGCONT."""
        self._order(b"C")

    def wait(self, timeout_s: float) -> bool:
        """Whether the command has ended within that time."""
        try:
            self._parent.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        self._orders.close()
        return True

    def _order(self, order: bytes) -> None:
        # A command that has ended receives no orders.
        with contextlib.suppress(OSError):
            self._orders.sendall(order)
