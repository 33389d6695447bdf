"""May a broker stop: `check --before-stop` beside `find_hanging` of the same busy cluster.

The check reads only the partitions that the broker has a replica of, and all replicas in Metadata, twice.

- the check of one broker, and of a third of the brokers, which stop together.
- find_hanging, no Spark.

Timed: the calls as a whole. Not timed: the time in which the brokers make an answer for the first time.
"""

from __future__ import annotations

from collections.abc import Collection

from tests.bench.clusters import big, described
from tests.bench.harness import Finding, Options, Ratio, Side, Work, timed_in_turn
from tests.sim.wire import WireCluster
from txnscan import ScanConfig, find_hanging
from txnscan.api import check_before_stop

FIND_HANGING, ONE, ZONE = (
    "find_hanging",
    "check --before-stop, one broker",
    "check --before-stop, a third of the brokers",
)
# The check of one broker may take at most this many times as long as find_hanging.
_TARGET = 1.2


def run(options: Options) -> Finding:
    """All in turn."""
    shape = big(options)
    brokers = list(shape.broker_ids)
    with WireCluster(shape) as cluster:
        config = ScanConfig(cluster.bootstrap_servers)
        timed, work = timed_in_turn(
            [
                Side(FIND_HANGING, lambda: {"partitions": find_hanging(config).partitions_planned}),
                Side(ONE, lambda: _checked(ONE, config, brokers[:1])),
                Side(ZONE, lambda: _checked(ZONE, config, brokers[: max(1, len(brokers) // 3)])),
            ],
            options.runs,
        )
    return Finding(
        "stop",
        "may a broker stop",
        described(shape),
        timed,
        [Ratio(ONE, FIND_HANGING, _TARGET)],
        work,
        notes=["the simulated brokers have no DescribeQuorum, so each check is not_observed, or unsafe"],
    )


def _checked(side: str, config: ScanConfig, brokers: Collection[int]) -> Work:
    found = check_before_stop(config, brokers)
    failures = [one for one in found.errors if one.failure.lacks_api is None]
    return {
        "partitions": found.partitions,
        f"partitions held, {side}": found.held,
        f"other failures, {side}": len(failures),
    }
