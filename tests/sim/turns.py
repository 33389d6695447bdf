"""Conversations with several brokers at once, one step at a time, in an order that a seed decides.

A sweep asks brokers in parallel. Here each conversation has its own thread, but only one thread runs at any moment:
before each answer it hands over, and chance decides which one continues. The same seed gives the same order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Semaphore, local
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
# More than a world has brokers: a conversation without a thread would wait forever.
_THREADS = 16
_pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="txnscan-sim")


class Turns:
    """Decides which conversation continues."""

    def __init__(self, seed: int) -> None:
        self._chooser = random.Random(seed)
        self._here = local()
        # The turn of each active conversation, and the semaphore that is released after the last one.
        self._under_way: list[Semaphore] = []
        self._all_over = Semaphore(0)

    def hand_over(self) -> None:
        """In a conversation: lets another one continue, and waits for its own turn, which may come at once."""
        turn: Semaphore | None = getattr(self._here, "turn", None)
        if turn is not None and self._go_on() is not turn:
            turn.acquire()

    def in_parallel(self, call: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """The results, in the order of the items. Raises the error of a call."""
        results: list[Future[Result]] = []
        for item in items:
            self._under_way.append(Semaphore(0))
            results.append(_pool.submit(self._converse, self._under_way[-1], call, item))
        if results:
            self._go_on()
            self._all_over.acquire()
        return [result.result() for result in results]

    def _go_on(self) -> Semaphore:
        """Chooses a conversation, gives it the turn, and returns the turn."""
        turn = self._chooser.choice(self._under_way)
        if turn is not getattr(self._here, "turn", None):
            turn.release()
        return turn

    def _converse(self, turn: Semaphore, call: Callable[[Item], Result], item: Item) -> Result:
        turn.acquire()
        self._here.turn = turn
        try:
            return call(item)
        finally:
            self._here.turn = None
            self._under_way.remove(turn)
            if self._under_way:
                self._go_on()
            else:
                self._all_over.release()
