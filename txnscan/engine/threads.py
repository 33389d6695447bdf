"""The bounded thread pool in this process. It needs no Spark and no Java. Tasks on executors also read with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from txnscan.engine import Batch, Engine, Row, by_producer_id
from txnscan.kafka.answers import CoordinatorView
from txnscan.parallel import as_finished
from txnscan.reads.observation import Observation
from txnscan.reads.rows import OnProgress
from txnscan.verdict.evidence import Context, Judged
from txnscan.verdict.rules import judge_observation

THREADS = 16


class ThreadsEngine:
    """Reads and judges in this process, with at most `threads` reads at once."""

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = threads

    @property
    def driver(self) -> Engine:
        """See Engine."""
        return self

    def read(
        self,
        read: Callable[[Batch], Iterable[Row]],
        batches: Sequence[Batch],
        row_type: type[Row],
        on_progress: OnProgress,
    ) -> list[Row]:
        """See Engine. One thread reads all batches of a lane."""
        rows: list[Row] = []
        done = 0
        for batches_done, found in read_lanes(read, lanes(batches), self._threads):
            rows += found
            done += batches_done
            on_progress(done, len(batches))
        return rows

    def judge(
        self, observations: Sequence[Observation], views: Sequence[CoordinatorView], context: Context
    ) -> list[Judged]:
        """See Engine."""
        known = by_producer_id(views)
        return [judge_observation(o, known.get(o.producer_id, ()), context) for o in observations]


def lanes(batches: Iterable[Batch]) -> list[list[Batch]]:
    """The batches of each lane, in order. Lanes are in the order of their numbers."""
    queues: dict[int, list[Batch]] = defaultdict(list)
    for batch in batches:
        queues[batch.lane].append(batch)
    return [queues[lane] for lane in sorted(queues)]


def read_lanes(
    read: Callable[[Batch], Iterable[Row]], queues: Sequence[Sequence[Batch]], threads: int
) -> Iterator[tuple[int, list[Row]]]:
    """For each finished lane, its number of batches and its rows."""
    with ThreadPoolExecutor(min(threads, len(queues) or 1), thread_name_prefix="txnscan-read") as pool:
        for number, rows in as_finished(pool, threads, lambda lane: [row for one in lane for row in read(one)], queues):
            yield len(queues[number]), rows
