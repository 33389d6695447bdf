"""What another writer plants in the tables' folder reaches no file elsewhere through Spark either."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.bombs import MIB, planted, uses, with_text
from tests.cases import Cases
from tests.conftest import Opens
from tests.tables.planted import nothing_elsewhere_is_changed
from tests.tables.stored import next_sweep
from txnscan.config import ConfigError
from txnscan.tables.open import open_tables, through_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def opens(spark: SparkSession) -> Opens:
    """Opens a location through Spark."""
    return lambda location: through_spark(location, spark)


@pytest.fixture
def template(tmp_path: Path) -> Path:
    """The location of tables with one sweep."""
    location = tmp_path / "template"
    tables = open_tables(str(location), None)
    tables.create()
    tables.write(next_sweep(1))
    return location


def test_nothing_elsewhere_is_changed(opens: Opens, template: Path, tmp_path: Path) -> None:
    nothing_elsewhere_is_changed(opens, template, tmp_path)


def test_a_long_text_is_refused_before_spark_reads_it(opens: Opens, template: Path, tmp_path: Path) -> None:
    calls = uses(opens(str(planted(template, tmp_path / "tables", with_text(17 * MIB)))))
    with Cases() as cases:
        for name, call in calls.items():
            with cases.case(name), pytest.raises(ConfigError, match="MiB"):
                call()
