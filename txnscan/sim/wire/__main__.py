"""`python -m txnscan.sim.wire --brokers 50 --partitions 100000 --hanging 100`: a wire cluster until Ctrl-C."""

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
from dataclasses import fields

from txnscan.sim.wire import ClusterShape, WireCluster


def main() -> None:
    """Prints the bootstrap servers and serves. The options are the numbers of ClusterShape."""
    parser = argparse.ArgumentParser(prog="python -m txnscan.sim.wire", description=__doc__)
    numbers = [one for one in fields(ClusterShape) if isinstance(one.default, int | float)]
    for one in numbers:
        parser.add_argument(f"--{one.name.replace('_', '-')}", type=type(one.default), default=one.default)
    parser.add_argument("--processes", type=int, default=2)
    told = vars(parser.parse_args())
    processes = told.pop("processes")
    try:
        shape = ClusterShape(**told)
    except ValueError as error:
        parser.error(str(error))
    with WireCluster(shape, processes) as cluster, contextlib.suppress(KeyboardInterrupt):
        sys.stdout.write(f"{cluster.bootstrap_servers}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
