"""Shared by the tests: one Spark session, and one real cluster of three brokers, started on first use."""

from __future__ import annotations

import re
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from xdist.scheduler import LoadFileScheduling, LoadScopeScheduling

from tests.slow import lengthy_reason, repeated_reason, slow_reason
from txnscan.tables.open import open_tables

# Every test may ask for it.
pytest_plugins = ("tests.wording",)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.brokers.shared import Shared
    from txnscan.tables.tables import Tables

# No deadline: the time of an example depends mostly on the load of the machine.
hypothesis.settings.register_profile("txnscan", deadline=None)
hypothesis.settings.load_profile("txnscan")


# The folders of tests, and the needs of their tests. `pytest -m unit` runs one, as `pytest tests/unit` does.
ROOMS = {
    "unit": "values and fakes alone",
    "search": "simulated histories",
    "tables": "Delta tables, without a JVM",
    "commands": "whole commands, without real brokers",
    "spark": "a Spark session",
    "brokers": "real brokers",
}


# The values of `--slow`, with the marker of their tests.
_TIERS = {"no": None, "only": "slow", "repeats": "repeats"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make test` leaves the slow tests out, and `make test-all` runs them alone. `make test-repeats` runs the slow
    tests that repeat others. Without the option all tests run.
    """
    choices = {"choices": ("all", *_TIERS), "default": "all"}
    parser.addoption("--slow", help="which of the slow tests (tests/slow.py) to run", **choices)


def pytest_configure(config: pytest.Config) -> None:
    """Restores Ctrl-C: a shell's background jobs and their children ignore it, but tests send it to children."""
    for room, needs in ROOMS.items():
        config.addinivalue_line("markers", f"{room}: {needs}")
    config.addinivalue_line("markers", "slow(reason): left out of `make test`; tests/slow.py lists them")
    config.addinivalue_line("markers", "repeats(reason): run by `make test-repeats` alone; tests/slow.py lists them")
    config.addinivalue_line("markers", "lengthy(reason): left out of `make test-unit`; tests/slow.py lists them")
    config.addinivalue_line("markers", "wording: compares sentences with tests/__snapshots__/wording.ambr")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with the settings of conf/, as the command line makes it, but with other Java options.

    A sweep's session lives for seconds, and this session for minutes. With all of Java's compilers the tests of the
    tables take a fifth less processor time. The parallel collector does not run beside the tests.
    """
    from txnscan.engine.spark.session import DRIVER_JAVA_OPTIONS, local_settings, spark_session

    for_seconds = local_settings("local[2]")[DRIVER_JAVA_OPTIONS]
    settings = {
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.ui.enabled": "false",
        DRIVER_JAVA_OPTIONS: f"{for_seconds} -XX:TieredStopAtLevel=4 -XX:+UseParallelGC",
    }
    session = spark_session("local[2]", app_name="txnscan-tests", settings=settings)
    yield session
    session.stop()


# The longest files start first, so that no process still runs one when the others are done.
_LONG = (
    *("test_nodes", "test_demo_story", "test_contract", "test_stores", "test_lost_records", "test_offline_real"),
    *("test_prove_watching", "test_demo_brokers", "test_faults", "test_distribution", "test_conformance"),
    *("test_wire_real", "test_old_brokers", "test_histories", "test_obligations"),
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks tests, leaves out the tests of other tiers, and orders the rest.

    The shared brokers come first: their live transactions end after 15 minutes.
    """
    for item in items:
        item.add_marker(item.path.parent.name)
        if why := repeated_reason(item.nodeid):
            item.add_marker(pytest.mark.repeats(reason=why))
        elif why := slow_reason(item.nodeid):
            item.add_marker(pytest.mark.slow(reason=why))
        if why := lengthy_reason(item.nodeid):
            item.add_marker(pytest.mark.lengthy(reason=why))
        if "wording" in item.fixturenames:  # type: ignore[attr-defined]
            item.add_marker("wording")
    wanted = config.getoption("slow")
    of_tier = [item for item in items if wanted in ("all", _tier(item))]
    if len(of_tier) < len(items):
        config.hook.pytest_deselected(items=sorted({*items} - {*of_tier}, key=lambda item: item.nodeid))
    items[:] = sorted(of_tier, key=lambda item: (not _uses_shared(item.path), item.path.stem not in _LONG))


def _tier(item: pytest.Item) -> str:
    """The value of `--slow` that runs this test."""
    return next((tier for tier, marker in _TIERS.items() if marker and item.get_closest_marker(marker)), "no")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """The shared brokers end with the last file that uses them: at rest they take a sixteenth of a processor."""
    if nextitem is not None and _uses_shared(item.path) and not _uses_shared(nextitem.path):
        item.config.stash[_OF_SHARED].close()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How many cases the searches among incomplete disks tried."""
    reports = [one for of_kind in terminalreporter.stats.values() for one in of_kind]
    calls = [one for one in reports if getattr(one, "when", None) == "call"]
    tried = [value for one in calls for name, value in one.user_properties if name == "cases"]
    if tried:
        terminalreporter.write_line(f"{sum(tried)} incomplete disks in {len(tried)} searches")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """The scheduler for `--dist loadfile`. All other modes are left to xdist."""
    return _OneOfEach(config, log) if config.getvalue("dist") == "loadfile" else None


class _OneOfEach(LoadFileScheduling):  # type: ignore[misc]
    """One process runs all files that need the Spark session, because a second session would start cold.

    In the fast tier the same process runs the files of the shared brokers, which are started once. In the slow tier
    their tests would leave the other process without work.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        path = self.config.rootpath / file
        with_brokers = self.config.getoption("slow") == "no" and _uses_shared(path)
        return "servers" if with_brokers or _needs_session(path) else file


@cache
def _needs_session(file: Path) -> bool:
    return "spark: SparkSession" in file.read_text("utf-8")


@cache
def _uses_shared(file: Path) -> bool:
    return re.search(r"\bshared: Shared\b", file.read_text("utf-8")) is not None


# Opens the tables at a location.
Opens = Callable[[str], "Tables"]


@pytest.fixture(scope="session")
def opens() -> Opens:
    """Opens a location through delta-rs. tests/spark/test_contract.py opens it through Spark as well."""
    return lambda location: open_tables(location, None)


@pytest.fixture
def location(tmp_path: Path) -> str:
    """A place for tables."""
    return str(tmp_path / "tables")


@pytest.fixture
def catalog_schema(spark: SparkSession) -> Iterator[str]:
    """A place for tables in a catalog, which only Spark opens."""
    name = f"spark_catalog.txnscan_{uuid.uuid4().hex}"
    spark.sql(f"CREATE SCHEMA {name}")
    yield name
    spark.sql(f"DROP SCHEMA {name} CASCADE")


# The stack that ends the brokers of `shared`.
_OF_SHARED = pytest.StashKey[ExitStack]()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Makes the stack. It is empty until a test uses `shared`."""
    session.config.stash[_OF_SHARED] = ExitStack()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Shared]:
    """The shared brokers. Restore their state after a test. A test that breaks brokers starts its own."""
    from tests.brokers.shared import shared_cluster

    with pytestconfig.stash[_OF_SHARED] as stack:
        yield stack.enter_context(shared_cluster(tmp_path_factory.mktemp("shared")))
