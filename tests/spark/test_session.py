"""The Spark session: its settings for each master, and how Python workers start."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.process import run_python
from txnscan.engine.spark.java import delta_jars, jar_directory
from txnscan.engine.spark.session import _SEARCHED_FIRST, launch_arguments, local_settings, spark_archive
from txnscan.tables.prepare import prepare_spark

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

CLASS_PATH, JARS, DAEMON = "spark.driver.extraClassPath", "spark.jars", "spark.python.daemon.module"
WAREHOUSE = "spark.sql.warehouse.dir"


def printed(code: str) -> str:
    """The output of this code in a Python process of its own."""
    ran = run_python("-c", code)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[*, 3]"])
def test_a_local_master_has_deltas_jars_on_its_class_path(master: str) -> None:
    settings = local_settings(master)
    assert {str(jar) for jar in jar_directory(delta_jars()).glob("*.jar")} <= set(settings[CLASS_PATH].split(":"))
    assert JARS not in settings


@pytest.mark.parametrize("master", ["local-cluster[2,1,700]", "spark://127.0.0.1:7077", "yarn", "k8s://127.0.0.1"])
def test_other_masters_send_deltas_jars_to_their_executors(master: str) -> None:
    settings = local_settings(master)
    assert sorted(settings[JARS].split(",")) == sorted(str(jar) for jar in jar_directory(delta_jars()).glob("*.jar"))
    assert settings.keys().isdisjoint({CLASS_PATH, DAEMON})


def test_each_jar_on_the_class_path_exists_once() -> None:
    jars = local_settings("local")[CLASS_PATH].split(":")
    assert [jar for jar in jars if not Path(jar).is_file()] == []
    assert len(jars) == len({Path(jar).name for jar in jars})


def test_the_jars_with_most_classes_are_searched_before_delta() -> None:
    jars = [Path(jar).name for jar in local_settings("local")[CLASS_PATH].split(":")]
    before_delta = jars[: min(jars.index(jar.name) for jar in jar_directory(delta_jars()).glob("*.jar"))]
    found = [next((jar for jar in before_delta if jar.startswith(name)), None) for name in _SEARCHED_FIRST]
    assert None not in found and found == before_delta


def test_the_archive_is_prepared_once_and_mapped_by_the_next_session(spark: SparkSession) -> None:
    lines: list[str] = []
    cache = prepare_spark(lines.append)
    made = spark_archive(sorted(jar_directory(delta_jars()).glob("*.jar"))).file
    assert lines == [] and made is not None and made.parent == cache
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    arguments = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    assert f"-XX:SharedArchiveFile={made}" in list(arguments)


def test_arguments_of_spark_submit_override_the_settings_of_conf() -> None:
    theirs = {
        "SPARK_SUBMIT_OPTS_TXNSCAN": "--executor-memory 2g --conf 'a=b c'",
        "PYSPARK_SUBMIT_ARGS": "-v pyspark-shell",
    }
    words = shlex.split(launch_arguments({"spark.executor.memory": "640m", "x": "-Da=1 -Db=2"}, theirs))
    ours = ["--conf", "spark.executor.memory=640m", "--conf", "x=-Da=1 -Db=2"]
    assert words == [*ours, "--executor-memory", "2g", "--conf", "a=b c", "-v", "pyspark-shell"]
    assert launch_arguments({}, {}) == "pyspark-shell"


def test_the_warehouse_is_deleted_with_the_process() -> None:
    imported = "from txnscan.engine.spark.session import local_settings"
    script = f"{imported}; print(local_settings('local')['spark.sql.warehouse.dir'])"
    warehouse = printed(script)
    assert warehouse.startswith("file:///")
    assert not Path(warehouse.removeprefix("file://")).parent.exists()


def test_a_warehouse_of_the_site_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert WAREHOUSE in local_settings("local")
    (tmp_path / "spark-defaults.conf").write_text(f"{WAREHOUSE}   hdfs:///warehouse\n")
    assert WAREHOUSE not in local_settings("local")


def test_if_spark_home_is_set_only_deltas_jars_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    of_delta = {str(jar) for jar in jar_directory(delta_jars()).glob("*.jar")}
    assert set(local_settings("local")[CLASS_PATH].split(":")) == of_delta


def test_workers_are_forked_from_the_daemon_of_this_package(spark: SparkSession) -> None:
    def parents(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os

        import pyarrow as pa

        command = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode()
        for batch in batches:
            yield pa.record_batch([pa.array([command] * batch.num_rows)], names=["command"])

    rows = spark.range(0, 2, 1, 2).mapInArrow(parents, "command string").collect()
    assert [row["command"].split("\0")[1:3] for row in rows] == [["-m", "txnscan.engine.spark.daemon"]] * 2


def test_the_daemon_has_imported_the_modules_of_a_worker() -> None:
    code = "import txnscan.engine.spark.daemon, sys; print(*sys.modules)"
    imported = printed(code).split()
    assert {"txnscan.reads.tasks", "kafka", "pyarrow", "pandas"} <= set(imported)
