"""Streaming queries of Spark that read a topic of real brokers to the last stable offset, each with a checkpoint.

    python -m tests.streaming HOST:PORT DIRECTORY TOPIC OTHER

It prints a JSON object: by name, the id of each query and the records that it got.
`tests/golden/spark_checkpoints.json` has the checkpoints of a run with PySpark 4.2.0. Its topic had five records and a
marker before a live transaction of three records, and the other topic had two empty partitions.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from txnscan.engine.spark.java import Jar, JarSet, jar_directory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPARK_VERSION = "4.2.0"
# Alone: Spark has all other dependencies of them.
SPARK_KAFKA = JarSet(
    f"spark-kafka-{SPARK_VERSION}",
    f"Spark's source for Kafka {SPARK_VERSION} (10 MB, once)",
    (
        Jar("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_VERSION, alone=True),
        Jar("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", SPARK_VERSION, alone=True),
        Jar("org.apache.kafka", "kafka-clients", "3.9.2", alone=True),
        Jar("org.apache.commons", "commons-pool2", "2.13.1", alone=True),
    ),
)
_FIELDS = ("topic", "partition", "offset")
# By the name of a query: settings of the session.
_OFFSETS_V2 = {"spark.sql.streaming.offsetLog.formatVersion": "2"}
_NAMED = {**_OFFSETS_V2, "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true"}


def source(spark: SparkSession, servers: str, topics: str, level: str, name: str | None = None) -> DataFrame:
    """A stream of these topics from their beginning. level: the isolation level. name: of the source."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topics)
    reader = reader.option("startingOffsets", "earliest").option("kafka.isolation.level", level)
    return (reader if name is None else reader.name(name)).load().selectExpr(*_FIELDS)


def run(stream: DataFrame, checkpoint: Path) -> dict[str, object]:
    """Runs a query until it has no more records to read."""
    counts: list[int] = []
    writer = stream.writeStream.foreachBatch(lambda frame, batch_id: counts.append(frame.count()))
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return {"id": query.id, "records": sum(counts)}


def main(servers: str, directory: Path, topic: str, other: str) -> dict[str, dict[str, object]]:
    """Runs each query."""
    from pyspark.sql import SparkSession

    jars = ",".join(map(str, sorted(jar_directory(SPARK_KAFKA).glob("*.jar"))))
    builder = SparkSession.builder.master("local[1]").config("spark.jars", jars)
    spark = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "1").getOrCreate()

    def of(topics: str, level: str = "read_committed", name: str | None = None) -> DataFrame:
        return source(spark, servers, topics, level, name)

    def set_all(settings: Mapping[str, str]) -> None:
        for name, value in settings.items():
            spark.conf.set(name, value)

    rate = spark.readStream.format("rate").load().selectExpr("'rate' topic", "0 partition", "value offset")
    found = {
        name: run(stream, directory / name)
        for name, stream in (
            ("committed", of(f"{topic},{other}")),
            ("uncommitted", of(topic, "read_uncommitted")),
            ("two", of(topic).union(of(other))),
            ("mixed", of(topic).union(rate)),
        )
    }
    set_all(_OFFSETS_V2)
    found["v2"] = run(of(topic), directory / "v2")
    set_all(_NAMED)
    found["named"] = run(of(topic, name="orders"), directory / "named")
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4])))  # noqa: T201
