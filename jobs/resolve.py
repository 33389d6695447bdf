"""Planning and applying as Spark jobs: `./spark-submit.sh resolve plan ...`, `./spark-submit.sh resolve apply ...`."""

import sys

from txnscan.cli import main

if __name__ == "__main__":
    if sys.argv[1:2] not in (["plan"], ["apply"]):
        print("usage: ./spark-submit.sh resolve plan|apply [options]", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    main(sys.argv[1:])
