"""Planning and applying as a whole: tables, brokers and the clock put together."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txnscan import __version__
from txnscan.config import ConfigError, ScanConfig
from txnscan.remote import wall_clock_ms
from txnscan.resolve.apply import DONE, Result, apply_plan, settle_interrupted
from txnscan.resolve.brokers import LiveBrokers
from txnscan.resolve.guard import Limits
from txnscan.resolve.plan import MAX_AGE_MS, Action, Plan, check_plan, make_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Applied:
    """What an apply did. settled: what became of attempts that an earlier one left open."""

    executed: bool
    results: tuple[Result, ...]
    settled: tuple[Result, ...]

    @property
    def complete(self) -> bool:
        """Whether nothing of the plan is left to do."""
        return all(result.status in DONE for result in self.results)


def plan_sweep(
    spark: SparkSession,
    tables: str,
    limits: Limits = Limits(),  # noqa: B008
    *,
    sweep_id: str | None = None,
    cluster_id: str | None = None,
) -> Plan:
    """Plans what to do about what the last finished sweep found hanging, or the one named. Asks nothing of the brokers.

    The plan is noted in the tables, and `apply_to` takes no other. Raises ConfigError.
    """
    from txnscan.resolve.journal import TablesJournal, stored_hanging
    from txnscan.tables import Tables

    opened = Tables(spark, tables)
    last = opened.last_sweep(cluster_id, sweep_id)
    if last is None:
        raise ConfigError("--tables", "no finished sweep is there that fits")
    opened.create()
    made = make_plan(
        stored_hanging(opened, last["sweep_id"]),
        limits,
        cluster_id=last["cluster_id"],
        sweep_id=last["sweep_id"],
        planned_at_ms=wall_clock_ms(),
        version=__version__,
    )
    TablesJournal(opened).planned(made)
    return made


def apply_to(
    spark: SparkSession,
    config: ScanConfig,
    plan: Plan,
    *,
    execute: bool = False,
    options: Collection[str] = (),
    max_age_ms: int = MAX_AGE_MS,
    on_step: Callable[[str, Action], None] = lambda step, action: None,
) -> Applied:
    """Does the plan on the cluster of `config`; without `execute` everything up to the sending.

    options: see `guard.COMPLETE_COMMITS`, `guard.ACCEPT_UNKNOWN`. Raises ConfigError, PlanRefused and ApplyRunning
    before anything is sent, and JournalLost when its turn ran out.
    """
    from txnscan.resolve.journal import TablesJournal
    from txnscan.resolve.lock import Lock, check_exclusive
    from txnscan.tables import Tables

    if config.tables is None:
        raise ConfigError("--tables", "is needed: the journal is kept there")
    tables = Tables(spark, config.tables)
    if execute:
        check_exclusive(tables, config.tables)
    brokers = LiveBrokers(config)
    cluster_id = brokers.cluster_id()
    check_plan(plan, cluster_id=cluster_id, now_ms=wall_clock_ms(), max_age_ms=max_age_ms)
    TablesJournal(tables).check_planned(plan)
    if not execute:
        rehearsed = apply_plan(plan, brokers, TablesJournal(tables), execute=False, options=options, sleep=time.sleep)
        return Applied(False, tuple(rehearsed), ())
    with Lock(tables, cluster_id) as lock:
        journal = TablesJournal(tables, lock)
        settled = settle_interrupted(cluster_id, plan, brokers, journal)
        results = apply_plan(plan, brokers, journal, execute=True, options=options, sleep=time.sleep, on_step=on_step)
    return Applied(True, tuple(results), tuple(settled))
