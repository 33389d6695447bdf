"""The bounded thread pool in this process. It needs no Spark and no Java. Tasks on executors also read with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from txnscan.engine import Batch, Engine, Row
from txnscan.parallel import OnProgress, as_finished

THREADS = 16


class ThreadsEngine:
    """Maps in this process, with at most `threads` lanes at once."""

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = threads

    @property
    def driver(self) -> Engine:
        """See Engine."""
        return self

    def map(
        self,
        function: Callable[[Batch], Iterable[Row]],
        batches: Sequence[Batch],
        row_type: type[Row],
        on_progress: OnProgress,
    ) -> list[Row]:
        """See Engine. One thread reads all batches of a lane."""
        rows: list[Row] = []
        done = 0
        for batches_done, found in in_lanes(function, lanes(batches), self._threads):
            rows += found
            done += batches_done
            on_progress(done, len(batches))
        return rows


def lanes(batches: Iterable[Batch]) -> list[list[Batch]]:
    """The batches of each lane, in order. Lanes are in the order of their numbers."""
    queues: dict[int, list[Batch]] = defaultdict(list)
    for batch in batches:
        queues[batch.lane].append(batch)
    return [queues[lane] for lane in sorted(queues)]


def in_lanes(
    function: Callable[[Batch], Iterable[Row]], queues: Sequence[Sequence[Batch]], threads: int
) -> Iterator[tuple[int, list[Row]]]:
    """For each finished lane, its number of batches and its rows."""
    with ThreadPoolExecutor(min(threads, len(queues) or 1), thread_name_prefix="txnscan-read") as pool:
        for number, rows in as_finished(
            pool, threads, lambda lane: [row for one in lane for row in function(one)], queues
        ):
            yield len(queues[number]), rows
