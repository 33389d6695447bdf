"""The session of one's own: which settings a master needs, and how Python starts in it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from txnscan.engine.java import DELTA, jar_directory
from txnscan.engine.session import _SEARCHED_FIRST, launch_arguments, local_settings, spark_archive
from txnscan.store.prepare import prepare_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLASS_PATH, JARS, DAEMON = "spark.driver.extraClassPath", "spark.jars", "spark.python.daemon.module"
WAREHOUSE = "spark.sql.warehouse.dir"


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[*, 3]"])
def test_where_the_driver_is_the_executor_delta_is_on_its_class_path_and_nothing_is_sent(master: str) -> None:
    settings = local_settings(master)
    assert {str(jar) for jar in jar_directory(DELTA).glob("*.jar")} <= set(settings[CLASS_PATH].split(":"))
    assert JARS not in settings


@pytest.mark.parametrize("master", ["local-cluster[2,1,700]", "spark://127.0.0.1:7077", "yarn", "k8s://127.0.0.1"])
def test_executors_in_processes_of_their_own_are_sent_deltas_jars_and_start_python_as_spark_does(master: str) -> None:
    settings = local_settings(master)
    assert sorted(settings[JARS].split(",")) == sorted(str(jar) for jar in jar_directory(DELTA).glob("*.jar"))
    assert settings.keys().isdisjoint({CLASS_PATH, DAEMON})


def test_every_jar_on_the_class_path_is_there_and_there_once() -> None:
    jars = local_settings("local")[CLASS_PATH].split(":")
    assert [jar for jar in jars if not Path(jar).is_file()] == []
    assert len(jars) == len({Path(jar).name for jar in jars})


def test_the_jars_that_most_classes_come_from_are_in_this_pyspark_and_searched_before_delta() -> None:
    jars = [Path(jar).name for jar in local_settings("local")[CLASS_PATH].split(":")]
    before_delta = jars[: min(jars.index(jar.name) for jar in jar_directory(DELTA).glob("*.jar"))]
    found = [next((jar for jar in before_delta if jar.startswith(name)), None) for name in _SEARCHED_FIRST]
    assert None not in found and found == before_delta


def test_what_is_prepared_is_not_prepared_again_and_the_next_session_maps_it(spark: SparkSession) -> None:
    said: list[str] = []
    cache = prepare_spark(said.append)
    made = spark_archive(sorted(jar_directory(DELTA).glob("*.jar"))).file
    assert said == [] and made is not None and made.parent == cache
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    arguments = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    assert f"-XX:SharedArchiveFile={made}" in list(arguments)


def test_what_the_user_tells_spark_submit_counts_more_than_the_settings_of_conf() -> None:
    theirs = {
        "SPARK_SUBMIT_OPTS_TXNSCAN": "--executor-memory 2g --conf 'a=b c'",
        "PYSPARK_SUBMIT_ARGS": "-v pyspark-shell",
    }
    words = shlex.split(launch_arguments({"spark.executor.memory": "640m", "x": "-Da=1 -Db=2"}, theirs))
    ours = ["--conf", "spark.executor.memory=640m", "--conf", "x=-Da=1 -Db=2"]
    assert words == [*ours, "--executor-memory", "2g", "--conf", "a=b c", "-v", "pyspark-shell"]
    assert launch_arguments({}, {}) == "pyspark-shell"


def test_spark_makes_its_warehouse_in_a_directory_that_goes_with_the_process() -> None:
    script = (
        "from txnscan.engine.session import local_settings; print(local_settings('local')['spark.sql.warehouse.dir'])"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
    assert told.startswith("file:///")
    assert not Path(told.removeprefix("file://")).parent.exists()


def test_a_warehouse_that_the_site_has_named_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert WAREHOUSE in local_settings("local")
    (tmp_path / "spark-defaults.conf").write_text(f"{WAREHOUSE}   hdfs:///warehouse\n")
    assert WAREHOUSE not in local_settings("local")


def test_the_jars_of_pyspark_are_not_mixed_with_those_of_another_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    of_delta = {str(jar) for jar in jar_directory(DELTA).glob("*.jar")}
    assert set(local_settings("local")[CLASS_PATH].split(":")) == of_delta


def test_workers_of_this_machine_are_forked_from_a_process_of_this_package(spark: SparkSession) -> None:
    def parents(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os

        command = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode()
        for batch in batches:
            yield pa.record_batch([pa.array([command] * batch.num_rows)], names=["command"])

    rows = spark.range(0, 2, 1, 2).mapInArrow(parents, "command string").collect()
    assert [row["command"].split("\0")[1:3] for row in rows] == [["-m", "txnscan.evidence.daemon"]] * 2


def test_that_process_has_imported_what_a_worker_would() -> None:
    code = "import txnscan.evidence.daemon, sys; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"txnscan.evidence.tasks", "txnscan.judge.rules", "kafka", "pyarrow", "pandas"} <= set(imported)
