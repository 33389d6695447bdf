"""Conversations with several brokers at once, one step at a time, in an order that a seed decides.

A sweep asks brokers in parallel. Here each conversation has a thread of its own, but only one of them runs at any
moment: before each answer it hands over, and chance says who goes on. The same seed gives the same order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Semaphore, local
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
# More than a world has brokers: a conversation that no thread is left for would be waited for in vain.
_THREADS = 16
_pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="txnscan-sim")


class _Conversation:
    """Runs only while it is its turn."""

    def __init__(self) -> None:
        self.turn = Semaphore(0)
        self.over = False


class Turns:
    """Who goes on."""

    def __init__(self, seed: int) -> None:
        self._chooser = random.Random(seed)  # noqa: S311
        self._here = local()
        self._handed_over = Semaphore(0)

    def hand_over(self) -> None:
        """Within a conversation: lets another go on, and waits for its turn."""
        conversation: _Conversation | None = getattr(self._here, "conversation", None)
        if conversation is not None:
            self._handed_over.release()
            conversation.turn.acquire()

    def in_parallel(self, call: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """The results, in the order of the items. Raises what a call raises."""
        under_way: list[_Conversation] = []
        results: list[Future[Result]] = []
        for item in items:
            under_way.append(_Conversation())
            results.append(_pool.submit(self._converse, under_way[-1], call, item))
        while under_way:
            conversation = self._chooser.choice(under_way)
            conversation.turn.release()
            self._handed_over.acquire()
            if conversation.over:
                under_way.remove(conversation)
        return [result.result() for result in results]

    def _converse(self, conversation: _Conversation, call: Callable[[Item], Result], item: Item) -> Result:
        self._here.conversation = conversation
        conversation.turn.acquire()
        try:
            return call(item)
        finally:
            self._here.conversation = None
            conversation.over = True
            self._handed_over.release()
