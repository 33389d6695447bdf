"""Processes of two kinds: some make one call and end, others prepare first and then work on request."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from tests.bench.harness import ROOT

Result = TypeVar("Result")
# Fresh processes, without this process's threads, sockets or memory.
_SPAWN = multiprocessing.get_context("spawn")


class Failed(Exception):
    """Another process failed. The text is its traceback."""


class Worker:
    """A process that prepares itself and then works on request. Use it as a context manager.

    prepare: a context manager that yields the function to call with the arguments of each request, and cleans up. Both
    run in the process. The constructor returns when the process is ready.
    """

    def __init__(self, prepare: Callable[..., AbstractContextManager[Callable[..., Any]]], *arguments: Any) -> None:
        self._here, there = _SPAWN.Pipe()
        # Not a daemon: it may have processes of its own. It ends when the pipe does.
        self._process = _SPAWN.Process(target=_serve, args=(there, prepare, arguments))
        self._process.start()
        there.close()
        try:
            self.hear()
        except BaseException:
            self.close()
            raise

    def tell(self, *arguments: Any) -> None:
        """Starts the work. Does not wait for the result."""
        self._here.send(arguments)

    def hear(self) -> Any:
        """Waits for the result. Raises Failed."""
        try:
            failure, result = self._here.recv()
        except EOFError:
            raise Failed("a process has ended") from None
        if failure is not None:
            raise Failed(failure)
        return result

    def ask(self, *arguments: Any) -> Any:
        """Starts the work and waits for the result. Raises Failed."""
        self.tell(*arguments)
        return self.hear()

    def close(self) -> None:
        """Ends the process."""
        self._here.close()
        self._process.join()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def together(workers: Sequence[Worker]) -> list[Any]:
    """Has all workers work at once. Returns their results."""
    for worker in workers:
        worker.tell()
    return [worker.hear() for worker in workers]


def crew(
    stack: ExitStack, prepare: Callable[..., AbstractContextManager[Callable[..., Any]]], shares: Sequence[Any]
) -> list[Worker]:
    """A worker for each share of the work; they end with the stack."""
    return [stack.enter_context(Worker(prepare, share)) for share in shares]


def apart(call: Callable[..., Result], *arguments: Any) -> Result:
    """The result of a call in a process of its own. Raises Failed."""
    with Worker(_calling, call, arguments) as worker:
        result: Result = worker.ask()
    return result


@contextmanager
def _calling(call: Callable[..., Any], arguments: Sequence[Any]) -> Iterator[Callable[[], Any]]:
    yield lambda: call(*arguments)


def _serve(there: Connection, prepare: Callable[..., AbstractContextManager[Any]], arguments: Sequence[Any]) -> None:
    # Python workers of Spark import the modules of the functions that they receive.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with suppress(EOFError, KeyboardInterrupt, BrokenPipeError), ExitStack() as stack:
        try:
            work = stack.enter_context(prepare(*arguments))
            there.send((None, None))
            while True:
                told = there.recv()
                there.send((None, work(*told)))
        except Exception as error:
            if isinstance(error, EOFError | BrokenPipeError):
                raise
            there.send((traceback.format_exc(), None))
