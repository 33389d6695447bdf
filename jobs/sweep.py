"""The sweep as a Spark job: `./spark-submit.sh sweep --bootstrap-server ... --tables ...`."""

import sys

from txnscan.cli import main

if __name__ == "__main__":
    main(["sweep", *sys.argv[1:]])
