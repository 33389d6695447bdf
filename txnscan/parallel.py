"""Call a function on many items with a few threads.

A cluster may name thousands of brokers, and after the time limit of a sweep each request fails at once. So the threads
take their items from one queue: a future for each item would cost many times more than such a call.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
# Called with the number of finished items and the number of all items.
OnProgress = Callable[[int, int], None]


def as_finished(
    pool: Executor, threads: int, call: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[tuple[int, Result]]:
    """The number of each item and the result of its call, in the order in which the calls end. threads: the number of
    calls at once. An exception in a call ends the iteration. Then, or if the caller stops early, no other call begins.
    """
    to_do = deque(enumerate(items))
    count = len(to_do)
    done: queue.SimpleQueue[tuple[int, Result] | BaseException] = queue.SimpleQueue()

    def work() -> None:
        try:
            while True:
                try:
                    number, item = to_do.popleft()
                except IndexError:
                    return
                done.put((number, call(item)))
        except BaseException as error:
            done.put(error)

    try:
        for _ in range(min(threads, count)):
            pool.submit(work)
        for _ in range(count):
            one = done.get()
            if isinstance(one, BaseException):
                raise one
            yield one
    finally:
        to_do.clear()
