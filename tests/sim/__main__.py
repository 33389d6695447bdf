"""Show a history of a simulated cluster step by step: the events, the verdicts of a sweep, and the truth.

make simulate ARGS="--world two-brokers --seed 7"
"""

from __future__ import annotations

import argparse
import sys

from tests.sim.show import lines_of, listed, named_history, named_protocol, table_lines
from txnscan.errors import TxnscanError


def main(arguments: list[str] | None = None) -> int:
    """Runs the command, and returns its exit status."""
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--story", metavar="NAME", help="a history in which a sweep without one obligation is wrong")
    parser.add_argument("--world", metavar="NAME", help="a random history of this world, by its --seed")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same history (default: 0)")
    parser.add_argument("--several", action="store_true", help="several sweeps in the random history (`wander_again`)")
    parser.add_argument("--without", metavar="NAME", help="sweep without this obligation, to see it go wrong")
    parser.add_argument("--list", action="store_true", help="list the stories, worlds and obligations")
    parser.add_argument("--transitions", action="store_true", help="show the transitions, and what each models")
    options = parser.parse_args(arguments)
    try:
        if options.list:
            lines = listed()
        elif options.transitions:
            lines = table_lines()
        else:
            history = named_history(options.story, options.world, options.seed, several=options.several)
            lines = lines_of(history, named_protocol(options.without))
        for line in lines:
            print(line)  # noqa: T201
    except TxnscanError as error:
        print(f"{error.option}: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
