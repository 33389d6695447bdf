"""The bounded thread pool in this process: needs no Spark and no Java."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from txnscan.engine import OnProgress, Row
from txnscan.model import Context, CoordinatorView, Judged, Observation, ReadBatch
from txnscan.rules import judge_observation


class ThreadsEngine:
    """Reads and judges in this process, with at most `threads` reads under way."""

    def __init__(self, threads: int = 16) -> None:
        self._threads = threads

    def read(
        self,
        read: Callable[[ReadBatch], Iterable[Row]],
        batches: Sequence[ReadBatch],
        row_type: type[Row],
        on_progress: OnProgress,
    ) -> list[Row]:
        """See Engine. One thread works through one lane."""
        lanes: dict[int, list[ReadBatch]] = defaultdict(list)
        for batch in batches:
            lanes[batch.lane].append(batch)
        rows: list[Row] = []
        done = 0
        with ThreadPoolExecutor(self._threads, thread_name_prefix="txnscan-read") as pool:
            futures = {pool.submit(_read_lane, read, lane): len(lane) for lane in lanes.values()}
            for future in as_completed(futures):
                rows.extend(future.result())
                done += futures[future]
                on_progress(done, len(batches))
        return rows

    def judge(
        self, observations: Sequence[Observation], views: Sequence[CoordinatorView], context: Context
    ) -> list[Judged]:
        """See Engine."""
        by_producer_id: dict[int, list[CoordinatorView]] = defaultdict(list)
        for view in views:
            by_producer_id[view.producer_id].append(view)
        return [judge_observation(o, by_producer_id.get(o.producer_id, ()), context) for o in observations]


def _read_lane(read: Callable[[ReadBatch], Iterable[Row]], lane: Sequence[ReadBatch]) -> list[Row]:
    return [row for batch in lane for row in read(batch)]
