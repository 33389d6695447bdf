"""Engines map a pure function over batches: on Spark executors (`spark/`) or in threads (`threads.py`).

Both return the same rows, and only when all rows are in the driver, as plain values. A lazy result could read the
cluster again later, after the coordinators were asked, and would silently break the proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from txnscan.parallel import OnProgress


class Laned(Protocol):
    """A piece of work. lane: the number of its queue. size: its duration, relative to other pieces."""

    @property
    def lane(self) -> int: ...
    @property
    def size(self) -> int: ...


Row = TypeVar("Row")
Batch = TypeVar("Batch", bound=Laned)


# With more partitions than this, executors on two cores read faster than threads of the driver, which share one core.
# With fewer, threads finish the whole sweep sooner: `python -m tests.bench distribution`.
EXECUTORS_PAY_FROM_PARTITIONS = 100_000


def advice(engine: str, partitions: int) -> str | None:
    """A sentence about the faster engine for a sweep of this size, if `engine` is not the faster engine."""
    few = partitions < EXECUTORS_PAY_FROM_PARTITIONS
    if few == (engine == "threads"):
        return None
    border = f"about {EXECUTORS_PAY_FROM_PARTITIONS:,}"
    quicker = (
        f"below {border}, threads of the driver (--engine threads) are done sooner"
        if few
        else f"from {border} on, executors (--engine spark) read faster"
    )
    return f"this sweep read {partitions:,} partitions; {quicker}"


class Engine(Protocol):
    """Runs a function on many batches."""

    @property
    def driver(self) -> Engine:
        """The engine in this process. It finishes a few batches before executors would start. Self if this engine is
        in this process.
        """
        ...

    def map(
        self,
        function: Callable[[Batch], Iterable[Row]],
        batches: Sequence[Batch],
        row_type: type[Row],
        on_progress: OnProgress,
    ) -> list[Row]:
        """Calls the function on every batch: lanes in parallel, the batches of a lane in order. Rows come in no order.
        Executors get the function with all that it holds, once for each task.
        """
        ...
