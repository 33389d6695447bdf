"""What tests share: one Spark session, and real brokers that are started when the first test asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with the settings of conf/, as the command line makes it."""
    from txnscan.session import spark_session

    warehouse = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    session = spark_session("local[2]", app_name="txnscan-tests", settings=warehouse)
    yield session
    session.stop()


@pytest.fixture
def location(tmp_path: Path) -> str:
    """A place for tables."""
    return str(tmp_path / "tables")
