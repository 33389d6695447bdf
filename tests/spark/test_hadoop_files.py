"""A checkpoint of a streaming query, read through the Hadoop of a Spark session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.golden.spark_checkpoints import lay_out, recorded
from txnscan.engine.spark.files import hadoop_files
from txnscan.kafka.failure import Failure, FailureCode
from txnscan.sweeps.checkpoints import FILE_BYTES_MAX, read_position
from txnscan.waiting.checkpoint import QueryPosition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLICKS = ("clicks", 0)


def test_hadoop_reads_the_same_position(spark: SparkSession, tmp_path: Path) -> None:
    """Hadoop checks Spark's checksums of the recorded files."""
    opened = hadoop_files(spark, FILE_BYTES_MAX)
    assert opened is not None
    path = lay_out(recorded()["mixed"], tmp_path / "mixed").as_uri()
    found = read_position(path, {CLICKS}, opened)
    assert isinstance(found, QueryPosition)
    assert (found.batch_id, found.committed, found.batch.offsets) == (1, True, {CLICKS: (6,)})


def test_files_that_hadoop_cannot_read_are_failures(spark: SparkSession, tmp_path: Path) -> None:
    opened = hadoop_files(spark, FILE_BYTES_MAX)
    assert opened is not None
    for uri in ((tmp_path / "missing").as_uri(), "nosuch://bucket/query"):
        found = read_position(uri, {CLICKS}, opened)
        assert isinstance(found, Failure) and found.code == FailureCode.FILE_UNREADABLE
    large = tmp_path / "large"
    lay_out({"metadata": '{"id":"x"}', "offsets/0": "x" * (FILE_BYTES_MAX + 1)}, large)
    found = read_position(large.as_uri(), {CLICKS}, opened)
    assert isinstance(found, Failure) and found.code == FailureCode.FILE_UNUSABLE
