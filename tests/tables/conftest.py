"""Tables through delta-rs. tests/spark/test_contract.py has the tests that also run on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.tables.stored import After, Prepared, next_sweep

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Opens
    from txnscan.tables.tables import Tables


@pytest.fixture(scope="module")
def template(opens: Opens, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The location of tables with one sweep, for tests that copy and change them."""
    location = tmp_path_factory.mktemp("template") / "tables"
    tables = opens(str(location))
    tables.create()
    tables.write(next_sweep(1))
    return location


@pytest.fixture(scope="session")
def prepared(opens: Opens, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Many tests begin with the same sweeps."""
    return Prepared(opens, tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def after(prepared: Prepared, location: str) -> After:
    """Tables with these sweeps, written by a process that has ended."""
    return lambda *sweeps: prepared.copy(location, *sweeps)


@pytest.fixture
def tables(after: After) -> Tables:
    """Tables without rows."""
    return after()
