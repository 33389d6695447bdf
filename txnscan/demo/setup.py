"""`python -m txnscan.demo.setup`: prepare what the demo and the tests need in addition to Python packages: jars, and
class data archives that let brokers and Spark start faster. All steps run in parallel, because most of the time is
download.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.errors import DemoError
from txnscan.demo.jars import NEXT_KAFKA_VERSION, OLD_KAFKA_VERSION, java, kafka_jars
from txnscan.demo.node import kafka_archive
from txnscan.demo.producer import Producer
from txnscan.engine.spark.java import SPARK_VERSIONS, JavaError, delta_set, jar_directory
from txnscan.tables.prepare import prepare_spark


def main() -> None:
    """Fetches the jars of Delta, of Kafka, and of the versions of both that only tests use, unless they are cached.
    Archives the classes that the JVMs of the first two load.
    """

    def say(sentence: str) -> None:
        print(sentence, file=sys.stderr)  # noqa: T201

    try:
        # Check Java first, so that a missing Java is reported before any download.
        java()
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda prepare: prepare(say), (prepare_spark, prepare_kafka, fetch_for_tests)))
    except (DemoError, JavaError) as error:
        sys.exit(f"txnscan: {error}")


def prepare_kafka(say: Callable[[str], None]) -> None:
    """Fetches the jars of brokers, and archives the classes that they load. Raises DemoError and JavaError."""
    archive = kafka_archive(java(), kafka_jars(say=say))
    if archive.file is None:
        say("Archiving the classes that brokers load (some seconds, 50 MB)")
        archive.make(_train)


def fetch_for_tests(say: Callable[[str], None]) -> None:
    """Fetches the versions of Kafka and of Delta that only tests use. Raises DemoError and JavaError."""
    for version in (OLD_KAFKA_VERSION, NEXT_KAFKA_VERSION):
        kafka_jars(version, say=say)
    for version in SPARK_VERSIONS:
        jar_directory(delta_set(version), say=say)


def _train(options: Sequence[str]) -> bool:
    """Runs a broker through one transaction, from its start to its clean shutdown."""
    with (
        tempfile.TemporaryDirectory(prefix="txnscan-") as directory,
        KafkaCluster(Path(directory), brokers=1, jvm_options=options) as cluster,
        cluster.wire() as wire,
    ):
        create_topic(wire, "first", [[1]])
        producer = Producer(wire, "first")
        producer.init_producer_id()
        producer.write("first", 0, [b"record"])
        producer.end(commit=True)
        cluster.stop_broker(1)
    return True


if __name__ == "__main__":
    main()
