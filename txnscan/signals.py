"""Bring each signal to the main thread at once.

Python runs the handlers of signals in the main thread. The kernel may hand a signal to another thread, for example to
one that just starts a thread. Then nothing wakes the main thread, and a wait without a time limit never ends.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress

# Interrupts what the main thread waits for. Programs ignore it by default, and no library here uses it.
WAKE = signal.SIGURG
# A signal is lost if it comes just before a wait begins. So it is repeated until the handlers have run.
_REPEAT_S = 0.2


def bring_to_main_thread() -> None:
    """From here on, every signal with a handler interrupts what the main thread waits for. Call this once, from the
    main thread, in a process that runs one command.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    runs = [0]

    def count(*_: object) -> None:
        runs[0] += 1

    def forward(main_thread: int) -> None:
        while numbers := os.read(reader, 4096):
            if all(number == WAKE for number in numbers):
                continue
            before = runs[0]
            while runs[0] == before:
                signal.pthread_kill(main_thread, WAKE)
                time.sleep(_REPEAT_S)

    # Python gives `count` its turn after the handlers of the signals with lower numbers, SIGINT and SIGTERM included.
    signal.signal(WAKE, count)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    # Without room for a thread, signals work as in any Python program.
    with suppress(RuntimeError):
        threading.Thread(target=forward, args=(threading.get_ident(),), name="txnscan-signals", daemon=True).start()
