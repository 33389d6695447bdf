"""A session without Delta reads the present files of tables on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

from tests.tables.stored import COMMIT, ORPHAN, YOUNG, read_for, swept
from txnscan import ConfigError, table
from txnscan.tables.open import open_tables
from txnscan.tables.schema import INCIDENTS, OPEN_TRANSACTIONS, RESOLUTIONS, SWEEPS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = (OPEN_TRANSACTIONS, INCIDENTS, SWEEPS, RESOLUTIONS)


def test_a_session_without_delta_reads_the_same_rows(
    spark: SparkSession, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = open_tables(location, None)
    tables.create()
    # The folders of Delta encode some of these characters, and Spark takes others for numbers.
    for number, cluster in enumerate(("a b%=7", "17")):
        tables.write(swept(ORPHAN, YOUNG, sweep_id=f"s{number}", cluster_id=cluster, **read_for(ORPHAN, COMMIT)))
    expected = {one.name: table(spark, location, one.name) for one in TABLES}
    rows = {name: sorted(map(repr, frame.collect())) for name, frame in expected.items()}

    def refuses(*_: Any) -> Any:
        raise AnalysisException("there is no Delta here")

    monkeypatch.setattr(type(spark), "table", refuses)
    for one in TABLES:
        found = table(spark, location, one.name)
        assert found.columns == expected[one.name].columns
        assert sorted(map(repr, found.collect())) == rows[one.name]


def test_a_table_that_no_reader_finds_is_one_error(spark: SparkSession, location: str) -> None:
    with pytest.raises(ConfigError) as refused:
        table(spark, location, "incidents")
    assert str(refused.value).startswith("table: ") and str(refused.value).isprintable()
