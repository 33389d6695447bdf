"""Which implementation of Delta opens a location for a session."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from deltalake import write_deltalake

from tests.builders import scan
from txnscan.config import Location
from txnscan.engine.spark.files import local_file
from txnscan.tables import open as opening
from txnscan.tables.delta import arrow_rows
from txnscan.tables.delta_rs import _AFTER_COMMIT, DeltaRs
from txnscan.tables.open import open_tables
from txnscan.tables.schema import INCIDENTS, SWEEPS
from txnscan.tables.spark import SparkDelta

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_delta_rs_opens_a_disk_of_this_machine_in_a_session_without_executors(
    spark: SparkSession, location: str, scheme: str
) -> None:
    assert isinstance(open_tables(f"{scheme}{location}", spark).delta, DeltaRs)


@pytest.mark.parametrize(
    "statement",
    [
        "REPLACE TABLE {} USING DELTA CLUSTER BY (sweep_id) AS SELECT * FROM {}",
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    ],
)
def test_spark_opens_tables_that_the_user_gave_features(spark: SparkSession, location: str, statement: str) -> None:
    by_spark = SparkDelta(spark, Location.of(location))
    for one in (SWEEPS, INCIDENTS):
        by_spark.create(one)
    assert isinstance(open_tables(location, spark).delta, DeltaRs)
    table = f"delta.`{location}/sweeps`"
    spark.sql(statement.format(table, table))
    assert isinstance(open_tables(location, spark).delta, SparkDelta)


def test_spark_opens_a_catalog(spark: SparkSession, catalog_schema: str) -> None:
    assert isinstance(open_tables(catalog_schema, spark).delta, SparkDelta)


@pytest.mark.parametrize("missing", ["deltalake", "address space", "a whole log"])
def test_spark_opens_what_delta_rs_cannot(
    spark: SparkSession, location: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing == "deltalake":
        monkeypatch.setattr(opening, "find_spec", lambda name: None)
    elif missing == "address space":
        monkeypatch.setattr(opening, "check_address_space", _no_room)
    else:
        log = Path(location, "sweeps", "_delta_log")
        log.mkdir(parents=True)
        (log / f"{0:020}.json").write_text("{")
    assert isinstance(open_tables(location, spark).delta, SparkDelta)


def _no_room() -> None:
    raise MemoryError


class _Session:
    """A session whose Hadoop finds a path here."""

    def __init__(self, master: str, found: str) -> None:
        self._master = master
        self._found = found

    @property
    def sparkContext(self) -> Any:
        scheme, _, path = self._found.partition(":")
        uri = SimpleNamespace(getScheme=lambda: scheme, getPath=lambda: path)
        system = SimpleNamespace(makeQualified=lambda path: SimpleNamespace(toUri=lambda: uri))
        fs = SimpleNamespace(Path=lambda path: SimpleNamespace(getFileSystem=lambda configuration: system))
        return SimpleNamespace(
            master=self._master,
            _jvm=SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=SimpleNamespace(fs=fs)))),
            _jsc=SimpleNamespace(hadoopConfiguration=lambda: None),
        )


@pytest.mark.parametrize(
    ("master", "found", "local"),
    [
        ("local", "file:/data/t", "/data/t"),
        ("local[4]", "file:/data/t", "/data/t"),
        ("local[*, 3]", "file:/data/t", "/data/t"),
        # As `fs.defaultFS` may say.
        ("local[*]", "dbfs:/data/t", None),
        ("local[*]", "hdfs:/data/t", None),
        ("local-cluster[2,1,700]", "file:/data/t", None),
        ("yarn", "file:/data/t", None),
        ("spark://localhost:7077", "file:/data/t", None),
        ("k8s://https://localhost:6443", "file:/data/t", None),
    ],
)
def test_a_file_is_of_this_machine_if_nobody_else_reads_it(master: str, found: str, local: str | None) -> None:
    assert local_file(cast("SparkSession", _Session(master, found)), "/data/t") == local


def test_a_session_finds_files_at_absolute_paths(spark: SparkSession) -> None:
    assert local_file(spark, "/data/t") == "/data/t"
    found = local_file(spark, "t")
    assert found is not None and found.endswith("/t")


def test_a_checkpoint_of_delta_rs_leaves_no_checksum_of_the_one_that_it_replaces(
    spark: SparkSession, location: str
) -> None:
    """Spark would warn that the file is corrupt, and search for the checkpoint for two seconds."""
    rows = arrow_rows(SWEEPS.columns, SWEEPS.rows(scan(), [scan()]))
    by_spark, by_rust = SparkDelta(spark, Location.of(location)), DeltaRs(Location.of(location))
    by_spark.create(SWEEPS)
    table = f"{location}/sweeps"
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    by_spark.append(SWEEPS, rows)
    log = Path(table, "_delta_log")
    assert (log / "._last_checkpoint.crc").exists()
    # Without the removal, Spark's Hadoop refuses the file.
    write_deltalake(table, rows, mode="append", post_commithook_properties=_AFTER_COMMIT)
    with pytest.raises(Exception, match="ChecksumException"):
        _read(spark, log / "_last_checkpoint")
    by_rust.append(SWEEPS, rows)
    assert not (log / "._last_checkpoint.crc").exists()
    assert json.loads(_read(spark, log / "_last_checkpoint"))["version"] == 4


def _read(spark: SparkSession, file: Path) -> bytes:
    """A file as Spark's Hadoop reads it."""
    context: Any = spark.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(str(file))
    stream = path.getFileSystem(context._jsc.hadoopConfiguration()).open(path)
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()
