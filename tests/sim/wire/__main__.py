"""A cluster on the wire until Ctrl-C: brokers on 127.0.0.1 that speak Kafka's protocol and store almost no data.

It is a cluster at work: some partitions have live transactions, and there are many transactional ids.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import sys
import threading
from collections.abc import Sequence
from dataclasses import fields

from tests.sim.wire import ClusterShape, WireCluster

_PROCESSES = 2
# The meaning of each option, and its default if the shape's own default is not used.
_MEANINGS: dict[str, tuple[str, str | None]] = {
    "brokers": ("their ids are 1, 2, ...", None),
    "partitions": ("of all user topics together", None),
    "partitions_per_topic": ("the last topic may have fewer", None),
    "producers_per_partition": ("idle ones, besides those with an open transaction", None),
    "hanging": ("transactions that no coordinator knows, on one partition each", None),
    "live_share": ("the part of the partitions that have a live transaction, 0 to 1", None),
    "partitions_per_transaction": ("of each live transaction", None),
    "ongoing": ("how many transactions are live", "as many as the live share makes"),
    "prepared": ("how many are decided, with markers still to come", "one for 50 live ones"),
    "transactional_ids": ("those without a transaction, in the states Empty, CompleteCommit, CompleteAbort", None),
    "log_records": ("of __transaction_state, at least; each id has one or more", None),
    "groups": ("consumer groups, which commit offsets of each topic", None),
    "replication_factor": ("of all topics", "3, or as many as there are brokers"),
    "transaction_state_partitions": ("of __transaction_state", None),
    "consumer_offsets_partitions": ("of __consumer_offsets, which is there if there are groups", None),
    "busy_share": ("the part of the partitions that broker 1 leads, 0 to 1", "0: as many as any other"),
    "latency_ms": ("from a request to its answer", None),
    "error_every": ("every n-th partition refuses DescribeProducers", "0: none"),
    "reset_every": ("a broker hangs up at every n-th DescribeProducers request", "0: never"),
    "epochs_lower_by": ("lowers the leader epochs of all user partitions, 0 to 5", None),
}


def parsed(arguments: Sequence[str] | None = None) -> tuple[ClusterShape, int]:
    """The requested shape, and the number of processes for its brokers."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.wire", description=__doc__)
    parser.add_argument("--quiet", action="store_true", help="nothing is live, and there are no transactional ids")
    defaults = {one.name: one.default for one in fields(ClusterShape)}
    own = {name: p.default for name, p in inspect.signature(ClusterShape.busy).parameters.items()}
    for name, (meaning, default) in _MEANINGS.items():
        value = own.get(name, defaults.get(name))
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=float if isinstance(value, float) else int,
            default=argparse.SUPPRESS,
            metavar="N",
            help=f"{meaning} (default: {default or f'{value:,}'})",
        )
    parser.add_argument(
        "--processes", type=int, default=_PROCESSES, metavar="N", help="of the brokers (default: %(default)s)"
    )
    given = vars(parser.parse_args(arguments))
    processes, quiet = given.pop("processes"), given.pop("quiet")
    if quiet and "live_share" in given:
        parser.error("--quiet leaves no transaction live: leave out --live-share, or --quiet")
    try:
        return (ClusterShape(**given) if quiet else ClusterShape.busy(**given)), processes
    except ValueError as error:
        parser.error(str(error))


def main() -> None:
    """Prints the bootstrap servers and serves."""
    shape, processes = parsed()
    with WireCluster(shape, processes) as cluster, contextlib.suppress(KeyboardInterrupt):
        sys.stdout.write(f"{cluster.bootstrap_servers}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
