"""How a pure function is mapped over batches: on Spark executors (`spark.py`) or in threads (`threads.py`).

Both give the same rows. Both return only when every row is here, in the driver, as plain values: nothing is left lazy
that could read the cluster again later, after the coordinators were asked, which would silently break the proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from txnscan.kafka.answers import CoordinatorView
from txnscan.reads.observation import Observation
from txnscan.reads.rows import OnProgress
from txnscan.verdict.evidence import Context, Judged


class Laned(Protocol):
    """A piece of work. lane: the queue that it waits in. size: how long it takes, relative to others."""

    @property
    def lane(self) -> int: ...
    @property
    def size(self) -> int: ...


Row = TypeVar("Row")
Batch = TypeVar("Batch", bound=Laned)


# From about so many partitions on, executors read faster on two cores than threads of the driver, which share one; with
# fewer, threads are done with the whole sweep sooner: `python -m tests.bench distribution`.
EXECUTORS_PAY_FROM_PARTITIONS = 100_000


def advice(engine: str, partitions: int) -> str | None:
    """A sentence on the quicker engine for a sweep of so many partitions; None where `engine` is that one."""
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


def by_producer_id(views: Iterable[CoordinatorView]) -> dict[int, tuple[CoordinatorView, ...]]:
    """The coordinators' views of each producer id, in order: what observations are joined with."""
    found: dict[int, tuple[CoordinatorView, ...]] = {}
    for view in views:
        found[view.producer_id] = (*found.get(view.producer_id, ()), view)
    return found


class Engine(Protocol):
    """Where reads and judgements run."""

    @property
    def driver(self) -> Engine:
        """The engine that reads in this process: for little work, which is done before executors would have begun. Self
        where this engine reads in this process anyway.
        """
        ...

    def read(
        self,
        read: Callable[[Batch], Iterable[Row]],
        batches: Sequence[Batch],
        row_type: type[Row],
        on_progress: OnProgress,
    ) -> list[Row]:
        """Calls `read` on every batch, lanes in parallel and the batches of a lane in order; all rows, in no order."""
        ...

    def judge(
        self, observations: Sequence[Observation], views: Sequence[CoordinatorView], context: Context
    ) -> list[Judged]:
        """Joins the observations with the coordinators' views by producer id and judges each, in no order."""
        ...
