"""`python -m txnscan.demo.setup`: downloads what the demo and the tests need besides Python packages."""

from __future__ import annotations

import sys

from txnscan.demo.errors import DemoError
from txnscan.demo.jars import kafka_jars
from txnscan.engine.java import DELTA, JavaError, jar_directory


def main() -> None:
    """Fetches the jars of Kafka and Delta, unless they are in the cache."""

    def say(sentence: str) -> None:
        print(sentence, file=sys.stderr)  # noqa: T201

    try:
        jar_directory(DELTA, say=say)
        kafka_jars(say=say)
    except (DemoError, JavaError) as error:
        sys.exit(f"txnscan: {error}")


if __name__ == "__main__":
    main()
