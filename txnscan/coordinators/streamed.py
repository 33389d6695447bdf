"""Asking many brokers at once, and giving what they answer as it comes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")

# How many brokers are asked at once: an answer is held as bytes until its rows are gone.
_THREADS = 8
# How many pieces of answers may wait to be taken. So a slow terminal holds up reading, and memory does not grow.
_WAITING_MAX = 16
_LOOK_S = 0.1


def streamed(call: Callable[[Item], Iterable[Answer]], items: Iterable[Item]) -> Iterator[Answer]:
    """What the call gives for each item, in the order in which it comes. What a call raises ends it all.

    A caller that stops early leaves threads behind, which end with the answer that they wait for.
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

    # Daemons: nobody who interrupts a command waits for them.
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
