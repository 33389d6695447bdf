"""Ask many brokers at once, and return their answers as they arrive."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")

# The number of brokers to ask at once. An answer stays in memory as bytes until its rows are consumed.
_THREADS = 8
# The number of pieces of answers that may wait. A slow terminal then slows down reading, and memory does not grow.
_WAITING_MAX = 16
_LOOK_S = 0.1


def streamed(call: Callable[[Item], Iterable[Answer]], items: Iterable[Item]) -> Iterator[Answer]:
    """The results of the call for each item, in the order of arrival. An exception in a call ends the iteration.

    If the caller stops early, threads remain. They end when the answer for which they wait arrives.
    """
    to_do: queue.SimpleQueue[Item] = queue.SimpleQueue()
    for item in items:
        to_do.put(item)
    given: queue.Queue[tuple[str, Answer | BaseException | None]] = queue.Queue(_WAITING_MAX)
    stopped = threading.Event()

    def give(what: str, value: Answer | BaseException | None = None) -> None:
        while not stopped.is_set():
            try:
                given.put((what, value), timeout=_LOOK_S)
            except queue.Full:
                continue
            return

    def work() -> None:
        try:
            while not stopped.is_set():
                try:
                    item = to_do.get_nowait()
                except queue.Empty:
                    break
                for answer in call(item):
                    give("answer", answer)
        except BaseException as error:
            give("error", error)
        give("end")

    # Daemon threads: an interrupted command does not wait for them.
    workers = [threading.Thread(target=work, daemon=True) for _ in range(min(_THREADS, to_do.qsize()))]
    for worker in workers:
        worker.start()
    left = len(workers)
    try:
        while left:
            what, value = given.get()
            if what == "end":
                left -= 1
            elif isinstance(value, BaseException):
                raise value
            else:
                yield value  # type: ignore[misc]
    finally:
        stopped.set()
