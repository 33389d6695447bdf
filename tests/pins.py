"""`make pins`: download every set of jars anew, and write the SHA-256 of each jar into `engine/spark/jars.sha256`.

Ivy compares each download with the checksum that the repository publishes beside it. Read the diff before you commit:
new versions bring new lines, but the hash of a published jar never changes.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.streaming import SPARK_KAFKA
from txnscan.demo.jars import KAFKA_VERSION, NEXT_KAFKA_VERSION, OLD_KAFKA_VERSION, kafka_set
from txnscan.engine.spark.java import SPARK_VERSIONS, JarSet, cache_directory, delta_set, find_java, ivy_jar, retrieve
from txnscan.engine.spark.pins import PINS
from txnscan.errors import TxnscanError

JAR_SETS = (
    *map(delta_set, SPARK_VERSIONS),
    *map(kafka_set, (OLD_KAFKA_VERSION, KAFKA_VERSION, NEXT_KAFKA_VERSION)),
    SPARK_KAFKA,
)


def pin(name: str, jars: Path) -> Iterator[str]:
    """The lines of the set with this name, as `sha256sum` prints them."""
    for jar in sorted(jars.glob("*.jar")):
        yield f"{hashlib.sha256(jar.read_bytes()).hexdigest()}  {name}/{jar.name}"


def _downloaded(wanted: JarSet, work: Path, ivy_cache: Path) -> Path:
    work.mkdir()
    cache_directory().mkdir(parents=True, exist_ok=True)
    retrieve(find_java(), ivy_jar(), wanted, work, ivy_cache, cache_directory() / f"{wanted.name}-download.log")
    return work / "jars"


def main() -> None:
    """Writes the file."""
    with tempfile.TemporaryDirectory(prefix="txnscan-", ignore_cleanup_errors=True) as directory:
        work = Path(directory)
        lines = [line for one in JAR_SETS for line in pin(one.name, _downloaded(one, work / one.name, work / "ivy"))]
    PINS.write_text("\n".join([*lines, ""]), "utf-8")


if __name__ == "__main__":
    try:
        main()
    except TxnscanError as error:
        sys.exit(f"txnscan: {error}")
