"""Tables of another schema version: read, grown in place, upgraded, or refused."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cases import Cases
from tests.process import run_here
from tests.tables.stored import ORPHAN, next_sweep, versions
from txnscan.config import ConfigError
from txnscan.sweeps.column import StoredColumn, optional_long, optional_text
from txnscan.tables import creation, delta
from txnscan.tables import spark as spark_module
from txnscan.tables import tables as tables_module
from txnscan.tables import versions as under_test
from txnscan.tables.delta import READABLE_PROPERTY, VERSION_PROPERTY
from txnscan.tables.open import open_tables, through_spark
from txnscan.tables.schema import (
    CANDIDATES,
    INCIDENTS,
    OPEN_TRANSACTIONS,
    READABLE_SINCE,
    SCHEMA_VERSION,
    SWEEPS,
    TABLES,
    Table,
)
from txnscan.tables.versions import Standing, standing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.conftest import Opens
    from txnscan.tables.tables import Tables

RECORDED = Path(__file__).parents[1] / "golden" / "tables"
NEXT = SCHEMA_VERSION + 1
ADDED = optional_long("added", "A number that a later version stores", lambda scan, item: None)
NEW = Table(
    "new_table",
    "A table of a later version",
    (ADDED, optional_text("cluster_id", "", lambda *_: "c")),
    since=NEXT,
)


@pytest.fixture(scope="module", params=["spark", "delta-rs"])
def opens(request: pytest.FixtureRequest) -> Opens:
    """Opens a location through this store."""
    if request.param == "delta-rs":
        return lambda location: open_tables(location, None)
    spark: SparkSession = request.getfixturevalue("spark")
    return lambda location: through_spark(location, spark)


@contextmanager
def release(
    monkeypatch: pytest.MonkeyPatch,
    *,
    version: int = SCHEMA_VERSION,
    readable: int = READABLE_SINCE,
    column: StoredColumn = ADDED,
) -> Iterator[None]:
    """Another release of txnscan, which writes this version. A later one has another column, and another table."""
    grown = tuple(replace(table, columns=(*table.columns, column)) if table is SWEEPS else table for table in TABLES)
    with monkeypatch.context() as patch:
        for module in (delta, creation, under_test):
            patch.setattr(module, "SCHEMA_VERSION", version)
        for module in (delta, under_test):
            patch.setattr(module, "READABLE_SINCE", readable)
        if version > SCHEMA_VERSION:
            every = (*(table for table in grown if table.name != SWEEPS.name), NEW, grown[-1])
            assert every[-1].name == SWEEPS.name
            for module in (creation, under_test, tables_module):
                patch.setattr(module, "SWEEPS", every[-1])
            for module in (creation, spark_module):
                patch.setattr(module, "TABLES", every)
            patch.setattr(tables_module, "OF_SWEEPS", (*tables_module.OF_SWEEPS[:-1], every[-1]))
        yield


def columns_of(tables: Tables, table: Table) -> frozenset[str]:
    return tables.delta.columns(table) or frozenset()


def test_the_next_writer_adds_columns_and_tables_and_older_releases_read_on(
    opens: Opens, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = opens(location)
    older.create()
    older.write(next_sweep(1, ORPHAN))
    said: list[str] = []
    with release(monkeypatch, version=NEXT):
        # Reading adds nothing.
        assert opens(location).last_sweep() is not None
        assert "added" not in columns_of(older, SWEEPS)
        later = opens(location)
        later.create(said.append)
        assert "added" in columns_of(later, SWEEPS) and columns_of(later, NEW) == {"added", "cluster_id"}
        assert later.delta.properties(SWEEPS)[VERSION_PROPERTY] == str(NEXT)
        later.write(next_sweep(2, ORPHAN))
        # Nothing is left to do.
        before = versions(location)
        later.create(said.append)
        assert versions(location) == before
    assert len(said) == 1 and "added" in said[0]
    # This release again.
    assert [row["sweep_id"] for row in older.last_sweeps()] == ["sweep-2"]
    assert {row["sweep_id"] for row in older.rows(SWEEPS)} == {"sweep-1", "sweep-2"}
    with pytest.raises(ConfigError, match=f"version {NEXT}"):
        opens(location).create()


def test_a_writer_goes_on_where_another_was_interrupted(
    opens: Opens, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens(location).create()
    with release(monkeypatch, version=NEXT):
        opens(location).delta.add_columns(SWEEPS, [ADDED])
        opens(location).create()
        assert opens(location).delta.properties(SWEEPS)[VERSION_PROPERTY] == str(NEXT)
        opens(location).write(next_sweep(1, ORPHAN))


def test_a_column_that_must_not_be_null_is_never_added(
    opens: Opens, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens(location).create()
    required = replace(ADDED, required=True)
    with release(monkeypatch, version=NEXT, column=required), pytest.raises(ConfigError, match="no column added"):
        opens(location).create()


@pytest.fixture
def recorded(location: str) -> str:
    """The location of tables that a release of schema version 20 wrote, with two sweeps."""
    with tarfile.open(RECORDED / "20.tar.gz") as archive:
        archive.extractall(Path(location).parent, filter="data")
    return location


def test_tables_of_version_20_are_upgraded(opens: Opens, recorded: str) -> None:
    tables = opens(recorded)
    uses: tuple[Callable[[], object], ...] = (tables.create, tables.last_sweep, tables.check_writable)
    for use in uses:
        with pytest.raises(ConfigError, match=r"version 20.*maintain --upgrade"):
            use()
    said: list[str] = []
    assert len(tables.upgrade(said.append)) == len(said) == READABLE_SINCE - 20
    assert tables.upgrade(said.append) == []
    assert {row["reason"] for row in tables.rows(OPEN_TRANSACTIONS)} == {"orphan", "missed_commit"}
    assert {row["reason"] for row in tables.rows(INCIDENTS)} == {"orphan", "missed_commit"}
    assert {row["reason"] for row in tables.rows(CANDIDATES)} == {"orphan", "missed_commit"}
    tables.create()
    tables.write(next_sweep(3, ORPHAN))
    last = tables.last_sweep()
    assert last is not None and (last["sweep_id"], last["schema_version"]) == ("sweep-3", SCHEMA_VERSION)
    assert len(tables.rows(SWEEPS)) == 3


def test_an_upgrade_may_begin_again(opens: Opens, recorded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = opens(recorded)
    with monkeypatch.context() as patch:
        patch.setattr(under_test, "of_version", lambda version: 1 / 0)
        with pytest.raises(ConfigError):
            tables.upgrade(lambda _: None)
    assert len(tables.upgrade(lambda _: None)) == 1
    assert {row["reason"] for row in tables.rows(INCIDENTS)} == {"orphan", "missed_commit"}


def test_maintain_upgrades_only_when_asked(recorded: str) -> None:
    refused = run_here("maintain", "--tables", recorded)
    assert refused.returncode == 2 and "maintain --upgrade" in refused.stderr
    ran = run_here("maintain", "--tables", recorded, "--upgrade")
    assert ran.returncode == 0 and "missed_commit" in ran.stderr
    assert run_here("show", "--tables", recorded).returncode == 0


def test_the_version_decides_what_a_release_may_do() -> None:
    cases: tuple[tuple[str, str | None, str | None, Standing], ...] = (
        ("its own", str(SCHEMA_VERSION), str(READABLE_SINCE), Standing.CURRENT),
        ("one that a step begins with", "20", None, Standing.UPGRADE),
        ("one before all steps", "19", None, Standing.UNKNOWN),
        ("one that only lacks columns", str(READABLE_SINCE), str(READABLE_SINCE), Standing.GROWS),
        ("a later one", str(NEXT), str(SCHEMA_VERSION), Standing.LATER),
        ("a later one that cannot be read", str(NEXT), str(NEXT), Standing.UNKNOWN),
        ("a later one that does not say", str(NEXT), None, Standing.UNKNOWN),
        ("none", None, None, Standing.UNKNOWN),
        ("no number", "x", "1", Standing.UNKNOWN),
        ("another digit", "\u0661", None, Standing.UNKNOWN),
    )
    with Cases() as table:
        for name, version, readable, expected in cases:
            given = {VERSION_PROPERTY: version, READABLE_PROPERTY: readable}
            with table.case(name):
                assert standing({key: value for key, value in given.items() if value is not None}) is expected


def test_each_version_before_the_readable_ones_has_a_step() -> None:
    assert [*under_test.UPGRADES] == [*range(min(under_test.UPGRADES), READABLE_SINCE)]
    assert READABLE_SINCE <= SCHEMA_VERSION
