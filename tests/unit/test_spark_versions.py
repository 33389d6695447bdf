"""The version of Spark selects Delta's jars. A version that cannot work is named."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from tests.cases import Cases
from txnscan.engine.spark.errors import SparkUnavailable, require_pyspark
from txnscan.engine.spark.java import JavaError, delta_jars
from txnscan.sweeps.machine import Part, lacking

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

# A jar of Spark's home, and the directory of Delta's jars for it.
SELECTED = (
    ("spark-core_2.13-4.0.1.jar", "delta-4.4.0-spark-4.0"),
    ("spark-core_2.13-4.0.5.jar", "delta-4.4.0-spark-4.0"),
    ("spark-core_2.13-4.1.4.jar", "delta-4.4.0-spark-4.1"),
    ("spark-core_2.13-4.2.0-amzn-1.jar", "delta-4.4.0-spark-4.2"),
)
REFUSED = (("spark-core_2.12-3.5.9.jar", "3.5.9"), ("spark-core_2.13-4.3.0.jar", "4.3.0"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty SPARK_HOME."""
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    (tmp_path / "jars").mkdir()
    return tmp_path / "jars"


def test_each_spark_gets_the_jars_of_delta_that_were_built_for_it(home: Path) -> None:
    with Cases() as cases:
        for jar, expected in SELECTED:
            with cases.case(jar):
                (home / jar).touch()
                chosen = delta_jars()
                (home / jar).unlink()
                assert chosen.name == expected
                assert chosen.jars[0].name == f"delta-spark_{expected[-3:]}_2.13"


def test_a_spark_without_jars_of_delta_is_named(home: Path, wording: SnapshotAssertion) -> None:
    errors = {}
    for jar, version in REFUSED:
        (home / jar).touch()
        with pytest.raises(JavaError, match=version) as error:
            delta_jars()
        (refused,) = [one for one in lacking(frozenset({Part.JVM})) if isinstance(one, JavaError)]
        assert version in str(refused)
        (home / jar).unlink()
        errors[version] = str(error.value)
    assert errors == wording


def test_a_pyspark_before_4_0_is_named(monkeypatch: pytest.MonkeyPatch, wording: SnapshotAssertion) -> None:
    old = ModuleType("pyspark")
    vars(old)["__version__"] = "3.5.9"
    monkeypatch.setitem(sys.modules, "pyspark", old)
    with pytest.raises(SparkUnavailable) as error:
        require_pyspark()
    assert str(error.value) == wording


@pytest.mark.parametrize("version", ["4.0.0", "4.3.0.dev1", "dev"])
def test_later_and_unnumbered_versions_of_pyspark_are_tried(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Databricks has versions of its own."""
    other = ModuleType("pyspark")
    vars(other)["__version__"] = version
    monkeypatch.setitem(sys.modules, "pyspark", other)
    require_pyspark()
