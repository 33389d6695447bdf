"""From how many open transactions on a join on executors judges them faster than the driver.

Timed: the call of each engine with the same observations and coordinators' views, in one session that is warm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tests.bench.clusters import session
from tests.bench.harness import Finding, Options, Ratio, Side, Work, timed_in_turn
from tests.builders import context, observation, view
from txnscan.engine import Engine
from txnscan.engine.spark.executors import SparkEngine
from txnscan.engine.threads import ThreadsEngine
from txnscan.kafka.answers import CoordinatorView
from txnscan.reads.observation import Observation
from txnscan.verdict.evidence import Judged
from txnscan.verdict.join import Judge, batches_of, by_producer_id

_SIZES = (100, 1_000, 5_000, 20_000)
_MASTER = "local[2]"


def run(options: Options) -> Finding:
    """Each number of transactions, by both engines in turn."""
    sizes = [size for size in _SIZES if size <= max(options.partitions, _SIZES[0])]
    with session(_MASTER) as spark:
        sides = [
            Side(_named(name, size), _judging(engine, size))
            for size in sizes
            for name, engine in (("driver", ThreadsEngine()), ("executors", SparkEngine(spark)))
        ]
        timed, _ = timed_in_turn(sides, options.runs)
    ratios = [Ratio(_named("executors", size), _named("driver", size)) for size in sizes]
    return Finding("judge", "judge open transactions", {"sizes": ", ".join(map(str, sizes))}, timed, ratios)


def _named(engine: str, size: int) -> str:
    return f"{engine}, {size:,} transactions"


def _judging(engine: Engine, size: int) -> Callable[[], Work]:
    observations = [observation(producer_id=number, partition=number) for number in range(size)]
    # Half of them have an owner that moved on.
    views = [view("CompleteAbort", 4, producer_id=number) for number in range(0, size, 2)]
    return partial(_judge, engine, observations, views)


def _judge(engine: Engine, observations: Sequence[Observation], views: Sequence[CoordinatorView]) -> Work:
    judge = Judge(by_producer_id(views), context())
    judged = engine.map(judge, batches_of(observations), Judged, lambda done, total: None)
    return {f"hanging of {len(judged)}": sum(one.judgement.verdict == "hanging" for one in judged)}
