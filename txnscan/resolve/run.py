"""Planning and applying with real tables, brokers and clocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypedDict, Unpack, overload

from txnscan.config import ConfigError, Location, ScanConfig
from txnscan.coordinators.transactions import Transaction
from txnscan.kafka.client.deadline import Deadline
from txnscan.kafka.clock import wall_clock_ms
from txnscan.kafka.security.acls import UNKNOWN_PRINCIPAL
from txnscan.parallel import OnProgress
from txnscan.resolve.abort import NoJournal
from txnscan.resolve.apply import DONE, Journal, Result, apply_plan, chosen, settle_interrupted
from txnscan.resolve.brokers import LiveBrokers
from txnscan.resolve.guard import Limits
from txnscan.resolve.plan import MAX_AGE_MS, Action, Plan, PlanRefused, check_plan
from txnscan.resolve.terminate import Terminated, terminate
from txnscan.sweeps.history import FactsAlone
from txnscan.sweeps.restored import HISTORY_WENT_BACK
from txnscan.tables.open import open_tables
from txnscan.tables.selection import Stale, find_sweep, stale

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnscan.resolve.journal import TablesJournal
    from txnscan.tables.tables import Tables


@dataclass(frozen=True)
class Applied:
    """The result of an apply. settled: the results of attempts that an earlier apply left without an outcome."""

    executed: bool
    results: tuple[Result, ...]
    settled: tuple[Result, ...]

    @property
    def complete(self) -> bool:
        """Whether no action of the plan needs further work."""
        return all(result.status in DONE for result in self.results)


def plan_sweep(
    spark: SparkSession | None,
    tables: Location | str,
    limits: Limits = Limits(),  # noqa: B008
    *,
    topic: Sequence[str] = (),
    sweep_id: str | None = None,
    cluster_id: str | None = None,
    max_age_ms: int | None = None,
    say: Callable[[str], None] = lambda sentence: None,
) -> Plan:
    """Makes a plan for the hanging transactions of the named sweep, or of the last finished sweep of everything.

    Sends no request to brokers. The plan is stored in the tables; `apply_to` accepts only such plans. topic: regular
    expressions; only topics whose whole name any of them matches get a marker. say: called with sentences about the
    choice of the sweep. Raises ConfigError, and Stale if the sweep is older than `max_age_ms`.
    """
    from txnscan.resolve.journal import TablesJournal
    from txnscan.resolve.plan_of_sweep import plan_of

    opened = open_tables(tables, spark)
    chosen_sweep = find_sweep(opened, cluster_id, sweep_id)
    for note in chosen_sweep.notes:
        say(note)
    last = chosen_sweep.sweep
    too_old = stale(last, max_age_ms, wall_clock_ms())
    if too_old is not None:
        raise Stale(too_old)
    opened.create(say)
    made = plan_of(opened, last, limits, topic)
    with opened.writing():
        TablesJournal(opened).planned(made)
    return made


class PlanOptions(TypedDict, total=False):
    """The options of `plan_sweep`."""

    topic: Sequence[str]
    sweep_id: str | None
    cluster_id: str | None
    max_age_ms: int | None
    say: Callable[[str], None]


@overload
def plan_of_tables(tables: str, /, *, limits: Limits = ..., **options: Unpack[PlanOptions]) -> Plan: ...
@overload
def plan_of_tables(
    spark: SparkSession | None, tables: str, /, limits: Limits = ..., **options: Unpack[PlanOptions]
) -> Plan: ...
def plan_of_tables(
    first: SparkSession | str | None,
    second: str | None = None,
    /,
    limits: Limits = Limits(),  # noqa: B008
    **options: Unpack[PlanOptions],
) -> Plan:
    """Makes a plan for the hanging transactions of a stored sweep: `plan(tables)`, or `plan(spark, tables)` if a
    session opens the tables. The options are those of `plan_sweep`. Raises ConfigError, and Stale if the sweep is older
    than `max_age_ms`.
    """
    if isinstance(first, str):
        return plan_sweep(None, first, limits, **options)
    if second is None:
        raise ConfigError("tables", "is missing; give the location of the tables")
    return plan_sweep(first, second, limits, **options)


def apply_to(
    spark: SparkSession | None,
    config: ScanConfig,
    plan: Plan,
    *,
    execute: bool = False,
    options: Collection[str] = (),
    max_age_ms: int = MAX_AGE_MS,
    only: Collection[str] = (),
    on_step: Callable[[str, Action], None] = lambda step, action: None,
    on_result: Callable[[Result], None] = lambda result: None,
    on_settled: Callable[[Result], None] = lambda result: None,
    on_wait: OnProgress = lambda done, total: None,
) -> Applied:
    """Applies the plan on the cluster of `config`. Without `execute`, runs every step before the sending.

    The `timeout_ms` of the config is the limit of all proofs and of the reads before them, together. It ends no marker
    that was sent, and no read after one.

    options: see `guard.COMPLETE_COMMITS`, `guard.ACCEPT_UNKNOWN`. only: see `apply_plan`. on_step: called before each
    step. on_result, on_settled: called with each result as soon as it is known. on_wait: see `Lock`.

    Before any marker is sent, raises ConfigError, PlanRefused, ApplyRunning and ClusterUnreachable. Raises JournalLost
    if the lock was lost or the journal cannot be written.
    """
    from txnscan.resolve.journal import TablesJournal
    from txnscan.resolve.lock import check_exclusive

    if config.location is None:
        raise ConfigError("--tables", "is needed: apply writes its journal there")
    tables = open_tables(config.location, spark)
    if execute:
        check_exclusive(tables)
    tables.check_writable()
    history = FactsAlone(tables)
    brokers = LiveBrokers(replace(config, timeout_ms=None), history, Deadline.after(config.timeout_ms))
    cluster_id = brokers.cluster_id()
    check_plan(plan, cluster_id=cluster_id, now_ms=wall_clock_ms(), max_age_ms=max_age_ms)
    TablesJournal(tables).check_planned(plan)
    check_history(tables, plan)
    history.seen = brokers.closed_producers({action.producer_id for action in plan.actions})

    def done_by(journal: TablesJournal) -> tuple[Result, ...]:
        return tuple(
            apply_plan(
                plan,
                brokers,
                journal,
                execute=execute,
                options=options,
                sleep=time.sleep,
                on_step=on_step,
                on_result=on_result,
                only=only,
            )
        )

    if not execute:
        return Applied(False, done_by(TablesJournal(tables)), ())
    with _journal(tables, brokers, cluster_id, on_wait) as journal:
        settled = settle_interrupted(cluster_id, plan, brokers, journal, on_settled)
        return Applied(True, done_by(journal), tuple(settled))


def check_history(tables: Tables, plan: Plan) -> None:
    """Checks that no sweep noticed since the plan's sweep that the history of the cluster went back. Raises
    PlanRefused.
    """
    history = tables.past(plan.cluster_id)().history
    sweep = tables.sweep(plan.sweep_id)
    if history and (sweep is None or sweep["history"] != history):
        raise PlanRefused(f"{HISTORY_WENT_BACK} since its sweep: sweep and plan again")


@contextmanager
def _journal(tables: Tables, brokers: LiveBrokers, cluster_id: str, on_wait: OnProgress) -> Iterator[TablesJournal]:
    """The journal, with the lock of the only apply on the cluster. Raises ApplyRunning."""
    from txnscan.resolve.journal import TablesJournal
    from txnscan.resolve.lock import Lock

    # Adds the columns that are new since the tables were made.
    tables.create()
    with Lock(tables, cluster_id, on_wait=on_wait) as lock:
        # Without SASL the brokers choose the client's principal, and do not report it.
        principal = None if brokers.principal == UNKNOWN_PRINCIPAL else brokers.principal
        yield TablesJournal(tables, lock, principal=principal)


def opened(spark: SparkSession | None, config: ScanConfig) -> Tables | None:
    """The tables of `config`, if it has any; created if they do not exist. Raises ConfigError."""
    if config.location is None:
        return None
    tables = open_tables(config.location, spark)
    tables.create()
    return tables


def abort_now(
    spark: SparkSession | None,
    config: ScanConfig,
    plan: Plan,
    brokers: LiveBrokers,
    *,
    forced: str | None,
    on_step: Callable[[str, Action], None],
    on_result: Callable[[Result], None],
    on_settled: Callable[[Result], None],
    on_wait: OnProgress = lambda done, total: None,
) -> Applied:
    """Applies a plan of one marker that a person has just confirmed. If there are tables, uses their journal and lock.
    Raises the same errors as `apply_to`.
    """

    def done_by(journal: Journal) -> tuple[Result, ...]:
        return tuple(
            apply_plan(
                plan,
                brokers,
                journal,
                execute=True,
                options=(),
                sleep=time.sleep,
                on_step=on_step,
                on_result=on_result,
                forced=forced,
            )
        )

    with _kept(spark, config, brokers, plan, on_wait) as journal:
        settled = settle_interrupted(plan.cluster_id, plan, brokers, journal, on_settled)
        return Applied(True, done_by(journal), tuple(settled))


def terminate_now(
    spark: SparkSession | None,
    config: ScanConfig,
    plan: Plan,
    before: Transaction,
    brokers: LiveBrokers,
    *,
    forced: str | None,
    on_wait: OnProgress = lambda done, total: None,
) -> Terminated:
    """Fences an id after a person has confirmed it. If there are tables, uses their journal and lock."""
    (action,) = plan.actions
    timeout_ms = config.connection().request_timeout_ms
    with _kept(spark, config, brokers, plan, on_wait) as journal:
        settle_interrupted(plan.cluster_id, plan, brokers, journal)
        return terminate(plan, action, before, brokers, journal, timeout_ms=timeout_ms, sleep=time.sleep, forced=forced)


@contextmanager
def _kept(
    spark: SparkSession | None, config: ScanConfig, brokers: LiveBrokers, plan: Plan, on_wait: OnProgress
) -> Iterator[Journal]:
    """The journal in the tables, with the plan stored in it; without tables, a journal that stores nothing."""
    if config.location is None:
        yield NoJournal()
        return
    from txnscan.resolve.lock import check_exclusive

    tables = open_tables(config.location, spark)
    check_exclusive(tables)
    with _journal(tables, brokers, plan.cluster_id, on_wait) as journal:
        journal.planned(plan)
        yield journal


def check_before_spark(config: ScanConfig, plan: Plan, *, max_age_ms: int, only: Collection[str] = ()) -> None:
    """Checks a plan without its tables: that it is fresh, is for this cluster, and has actions on these partitions.

    Raises PlanRefused, ConfigError, and ClusterUnreachable.
    """
    # Check the age first: that needs no broker.
    check_plan(plan, cluster_id=plan.cluster_id, now_ms=wall_clock_ms(), max_age_ms=max_age_ms)
    chosen(plan, only)
    check_plan(plan, cluster_id=LiveBrokers(config).cluster_id(), now_ms=wall_clock_ms(), max_age_ms=max_age_ms)
