"""The jars of Kafka, and the Java that runs them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from txnscan.demo.errors import DemoError
from txnscan.engine.spark.java import Jar, JarSet, JavaError, find_java, jar_directory

KAFKA_VERSION = "4.3.1"
# Transactions v1, before KIP-890: its brokers accept transactional data without asking the coordinator.
OLD_KAFKA_VERSION = "3.5.2"
# Its answers are recorded (`tests/golden`).
NEXT_KAFKA_VERSION = "4.4.0"
_FIRST_MAJOR_WITH_V2 = 4
_FIRST_MAJOR_WITH_LOG4J_2 = 4
_LOG4J_VERSION = "2.25.4"


def kafka_jars(
    version: str = KAFKA_VERSION, *, ivy_cache: Path | None = None, say: Callable[[str], None] = lambda _: None
) -> Path:
    """A directory with the jars of a Kafka broker and its tools. Downloads them if they are not in the cache.

    ivy_cache: an Ivy cache to read and fill, instead of a temporary one.
    say: called with a sentence before a download, which takes about a minute. Raises DemoError.
    """
    try:
        return jar_directory(kafka_set(version), ivy_cache=ivy_cache, say=say)
    except JavaError as error:
        raise DemoError(str(error)) from None


def has_transactions_v2(version: str) -> bool:
    """Whether new clusters of this version use transactions v2."""
    return _major(version) >= _FIRST_MAJOR_WITH_V2


def java() -> Path:
    """A `java` that can run Kafka. Raises DemoError."""
    try:
        return find_java()
    except JavaError as error:
        raise DemoError(str(error)) from None


def kafka_set(version: str) -> JarSet:
    """The jars of a Kafka broker and its tools."""
    # kafka-tools without its dependencies: these are Kafka Connect and a web server, which the transactions command
    # does not need. The log4j binding is for slf4j 1.7, which Kafka uses; PySpark's is for 2.0. Kafka before 4.0 also
    # calls log4j 1, which an installation of Kafka provides; here log4j 2 replaces it (log4j-1.2-api).
    jars = [
        Jar("org.apache.kafka", "kafka_2.13", version),
        Jar("org.apache.kafka", "kafka-tools", version, alone=True),
        Jar("org.apache.logging.log4j", "log4j-slf4j-impl", _LOG4J_VERSION),
    ]
    if _major(version) < _FIRST_MAJOR_WITH_LOG4J_2:
        jars.append(Jar("org.apache.logging.log4j", "log4j-1.2-api", _LOG4J_VERSION))
    return JarSet(f"kafka-{version}", f"Apache Kafka {version} (45 MB, once)", tuple(jars))


def _major(version: str) -> int:
    return int(version.split(".")[0])
