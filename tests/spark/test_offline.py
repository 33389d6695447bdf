"""Reading many directories of brokers' files with Spark executors gives the same result as on one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.offline import data, end, partition_directory
from txnscan.offline.disk import PathError
from txnscan.offline.paths import read_paths

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_executors_give_the_same_verdicts_as_one_process(spark: SparkSession, tmp_path: Path) -> None:
    from txnscan.engine.spark.executors import spread_files

    for broker in range(3):
        root = tmp_path / f"broker-{broker}" / "data"
        for index in range(6):
            log = data(0, pid=index) + (end(1, pid=index) if index % 3 else data(1, pid=index, sequence=1))
            partition_directory(root, f"t-{index}", {0: log[: -1 if index == 4 else None]})
        (root / "meta.properties").write_text(f"cluster.id=abc\nnode.id={broker}\n")
    progress: list[tuple[int, int]] = []
    on_executors = spread_files(spark, lambda done, total: progress.append((done, total)))
    alone = read_paths([str(tmp_path)], late_after_ms=0, check_crc=True)
    assert read_paths([str(tmp_path)], late_after_ms=0, check_crc=True, spread=on_executors) == alone
    assert len(alone.replicas) == 18 and len(alone.transactions) == 3 and len(alone.errors) == 3
    # Spark is polled for its progress: the last report may come before the end.
    assert {total for _, total in progress} <= {18}
    with pytest.raises(PathError):
        read_paths([str(tmp_path / "absent")], late_after_ms=0, spread=on_executors)
