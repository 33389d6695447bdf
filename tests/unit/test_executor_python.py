"""The packages sent to executors on other machines, and errors of their Python. `tests/brokers/test_nodes.py` runs a
real cluster.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cases import Cases
from tests.nodes import python_of_nodes
from tests.process import ROOT
from txnscan.engine.spark.errors import spark_reason
from txnscan.engine.spark.nodes import NOT_SENT, archive, in_one_jvm, remedy

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion


def test_executors_get_kafka_python_and_this_package_without_demo_and_tests() -> None:
    sent = archive()
    assert sent is not None
    names = zipfile.ZipFile(sent).namelist()
    assert {name.split("/")[0] for name in names} == {"kafka", "txnscan"}
    assert [name for name in names if name.startswith(("txnscan/demo", "tests")) or "__pycache__" in name] == []
    assert {"txnscan/reads/tasks.py", "txnscan/engine/spark/executors.py", "kafka/net/manager.py"} <= set(names)
    assert any(name.endswith(".json") for name in names), "kafka-python reads its messages' schemas from files"
    assert not [name for name in names if name.endswith((".so", ".pyd"))], "any machine can import it"


def test_the_sent_packages_cover_all_imports_of_a_task(tmp_path: Path) -> None:
    python = python_of_nodes(tmp_path / "python")
    sent = archive()
    modules = "txnscan.reads.tasks, txnscan.engine.spark.executors, txnscan.verdict.rules"
    script = f"import sys; sys.path.insert(0, {str(sent)!r}); import {modules}"
    ran = subprocess.run([python, "-I", "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("master", "local"),
    [
        *(("local", True), ("local[2]", True), ("local[*, 3]", True), ("local-cluster[2,1,700]", False)),
        *(("spark://127.0.0.1:7077", False), ("yarn", False), ("k8s://https://127.0.0.1", False), ("", False)),
    ],
)
def test_packages_are_sent_only_to_executors_in_other_processes(master: str, local: bool) -> None:
    assert in_one_jvm(master) is local


HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
OTHER = "[PYTHON_VERSION_MISMATCH] Python in worker has different version: {} than that in driver: 3.11, PySpark cannot"
# The text of Spark, and the words of the sentence for it.
WRONG_PYTHON: list[tuple[str, tuple[str, ...]]] = [
    (OTHER.format("3.99"), ("3.99", HERE, "PYSPARK_PYTHON")),
    (OTHER.format("3.10"), ("3.10", "3.11", "PYSPARK_PYTHON")),
    # Fails before it reports its version.
    (
        '  File "/usr/lib/python3.8/runpy.py", line 185, in _run_module_as_main\n'
        "AttributeError: module 'importlib.resources' has no attribute 'files'",
        ("3.8", "3.11", "PYSPARK_PYTHON"),
    ),
    (
        'java.io.IOException: Cannot run program "/opt/none/python3": error=2, No such file or directory',
        ("/opt/none/python3", "PYSPARK_PYTHON"),
    ),
    (
        "  File \"/usr/lib/python3.12/x.py\"\nModuleNotFoundError: No module named 'pyarrow'",
        ("no pyarrow", "PYSPARK_PYTHON"),
    ),
    (
        "[PACKAGE_NOT_INSTALLED] PyArrow >= 15.0.0 must be installed; however, it was not found.",
        ("no pyarrow", "PYSPARK_PYTHON"),
    ),
    (
        "[UNSUPPORTED_PACKAGE_VERSION] PyArrow >= 15.0.0 must be installed; however, your version is 9.0.0.",
        ("PyArrow", "15.0.0"),
    ),
    ("ModuleNotFoundError: No module named 'txnscan'", ("no txnscan", "--engine threads")),
]


def test_a_wrong_python_on_the_nodes_is_one_sentence_with_a_remedy(wording: SnapshotAssertion) -> None:
    sentences = {}
    with Cases() as cases:
        for said, named in WRONG_PYTHON:
            with cases.case(said):
                sentence = remedy(said)
                assert sentence is not None and all(word in sentence for word in named)
                error = Exception(f"An error occurred while calling o1.x.\n{said}\n\tat a.b")
                assert spark_reason(error) == sentence
                sentences[said] = sentence.replace(HERE, "<this Python>")
    assert sentences == wording


@pytest.mark.parametrize(
    "said", ["ModuleNotFoundError: No module named 'grpc'", "[TABLE_OR_VIEW_NOT_FOUND] The table cannot be found."]
)
def test_an_unrelated_error_keeps_its_text(said: str) -> None:
    assert remedy(said) is None


def test_a_driver_on_the_cluster_is_started_by_spark_submit_with_jars_and_settings(tmp_path: Path) -> None:
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 5\n')
    submit.chmod(0o755)
    variables = {"SPARK_HOME": str(tmp_path), "MASTER": "yarn", "PYSPARK_DRIVER_PYTHON": sys.executable}
    ran = subprocess.run(
        [ROOT / "spark-submit.sh", "sweep", "--format", "json"],
        env={**os.environ, **variables, "SPARK_SUBMIT_OPTS_TXNSCAN": "--deploy-mode cluster"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    words = ran.stdout.splitlines()
    assert ran.returncode == 5
    assert words[:2] == ["--master", "yarn"] and words[-3:] == [str(ROOT / "jobs" / "sweep.py"), "--format", "json"]
    assert words[-5:-3] == ["--deploy-mode", "cluster"]
    assert "delta-spark" in words[words.index("--jars") + 1]


@pytest.mark.parametrize(
    ("variables", "master"),
    [({}, "local[*]"), ({"MASTER": "yarn"}, "yarn"), ({"SPARK_REMOTE": "sc://localhost"}, "")],
)
def test_a_job_has_a_master(tmp_path: Path, variables: dict[str, str], master: str) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nprintf %s "${MASTER:-}"\n')
    python.chmod(0o755)
    others = {name: value for name, value in os.environ.items() if name not in ("MASTER", "SPARK_REMOTE")}
    ran = subprocess.run(
        [ROOT / "spark-submit.sh", "sweep"],
        env={**others, "PYSPARK_DRIVER_PYTHON": str(python), **variables},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.stdout, ran.stderr) == (master, "")


def test_spark_submit_passes_exit_status_and_streams_on() -> None:
    ran = subprocess.run(
        [ROOT / "spark-submit.sh", "resolve", "apply", "--nothing"],
        env={**os.environ, "PYSPARK_DRIVER_PYTHON": sys.executable}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "--nothing" in ran.stderr


def test_each_excluded_folder_exists() -> None:
    assert all((ROOT / "txnscan" / folder).is_dir() for folder in NOT_SENT["txnscan"])
