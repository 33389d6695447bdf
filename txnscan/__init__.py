"""txnscan: sweep an Apache Kafka cluster for hanging transactions (KIP-664) and prove which ones hang.

    from txnscan import ScanConfig, sweep
    result = sweep(spark, ScanConfig(bootstrap_servers="...", tables="..."))
    result.transactions, result.candidates, result.errors   # DataFrames
    result.summary                                          # dict

`sweep(None, ScanConfig(..., engine="threads"))` needs no Spark, and `find_hanging(config)` needs no tables either.
`named_cluster("orders")` is the config of a cluster in `~/.config/txnscan/config.toml`.
`sweep_clusters(spark, {"orders": ScanConfig(...), ...})` sweeps several clusters at once.
`check(config)`, `explain(config, group="billing")`, `gate(config, ["orders"])`, `plan(tables)` and
`apply(spark, config, plan)` return what the commands of these names print. `spark` may be None.
`table(spark, tables, "incidents")` reads a stored table. `create_views(spark, tables)` makes the views for dashboards.
`expectations("incidents")` and `dqx_rules("incidents")` are its rules for data-quality tools.
`register(spark)` makes a sweep a data source: `spark.read.format("kafka_transactions")`. `predict(Planned(...))`
predicts the cost of a sweep. Every error that these functions document is a `TxnscanError`.
The rules are in `txnscan.verdict.rules`.
"""

from __future__ import annotations

# Type checkers treat this name as `typing.TYPE_CHECKING`. An import of `typing` would take time in which Ctrl-C leaves
# a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from txnscan.api import (
        ClusterSweep,
        NotStored,
        SweepResult,
        check,
        create_views,
        explain,
        find_hanging,
        gate,
        sweep,
        sweep_clusters,
        table,
    )
    from txnscan.config import ConfigError, ScanConfig
    from txnscan.coordinators.cluster import ClusterUnreachable
    from txnscan.engine.spark.errors import SparkUnavailable
    from txnscan.errors import TxnscanError
    from txnscan.resolve.apply import ApplyRunning, JournalLost
    from txnscan.resolve.guard import Limits
    from txnscan.resolve.plan import Plan, PlanRefused
    from txnscan.resolve.run import Applied
    from txnscan.resolve.run import apply_to as apply
    from txnscan.resolve.run import plan_of_tables as plan
    from txnscan.sql.source import register
    from txnscan.sweeps.capacity import Planned, Prediction, predict
    from txnscan.sweeps.names import NotObserved
    from txnscan.tables.expectations import dqx_rules, expectations
    from txnscan.tables.selection import Stale
    from txnscan.version import __version__
    from txnscan.watch.clusters import named_cluster

_HOMES = {
    "Applied": "txnscan.resolve.run",
    "ApplyRunning": "txnscan.resolve.apply",
    "ClusterSweep": "txnscan.api",
    "ClusterUnreachable": "txnscan.coordinators.cluster",
    "ConfigError": "txnscan.config",
    "JournalLost": "txnscan.resolve.apply",
    "Limits": "txnscan.resolve.guard",
    "NotObserved": "txnscan.sweeps.names",
    "NotStored": "txnscan.api",
    "Plan": "txnscan.resolve.plan",
    "PlanRefused": "txnscan.resolve.plan",
    "Planned": "txnscan.sweeps.capacity",
    "Prediction": "txnscan.sweeps.capacity",
    "ScanConfig": "txnscan.config",
    "SparkUnavailable": "txnscan.engine.spark.errors",
    "Stale": "txnscan.tables.selection",
    "SweepResult": "txnscan.api",
    "TxnscanError": "txnscan.errors",
    "__version__": "txnscan.version",
    "apply": "txnscan.resolve.run",
    "check": "txnscan.api",
    "create_views": "txnscan.api",
    "dqx_rules": "txnscan.tables.expectations",
    "expectations": "txnscan.tables.expectations",
    "explain": "txnscan.api",
    "find_hanging": "txnscan.api",
    "gate": "txnscan.api",
    "named_cluster": "txnscan.watch.clusters",
    "plan": "txnscan.resolve.run",
    "predict": "txnscan.sweeps.capacity",
    "register": "txnscan.sql.source",
    "sweep": "txnscan.api",
    "sweep_clusters": "txnscan.api",
    "table": "txnscan.api",
}
# Public names that differ from the names in their modules, where `apply` or `plan` alone would be ambiguous.
_CALLED = {"apply": "apply_to", "plan": "plan_of_tables"}

__all__ = [
    "Applied",
    "ApplyRunning",
    "ClusterSweep",
    "ClusterUnreachable",
    "ConfigError",
    "JournalLost",
    "Limits",
    "NotObserved",
    "NotStored",
    "Plan",
    "PlanRefused",
    "Planned",
    "Prediction",
    "ScanConfig",
    "SparkUnavailable",
    "Stale",
    "SweepResult",
    "TxnscanError",
    "__version__",
    "apply",
    "check",
    "create_views",
    "dqx_rules",
    "expectations",
    "explain",
    "find_hanging",
    "gate",
    "named_cluster",
    "plan",
    "predict",
    "register",
    "sweep",
    "sweep_clusters",
    "table",
]


def __getattr__(name: str) -> Any:
    """Imports a public name at its first use.

    Executors and `--help` need no public names, and looking up the version takes a fifth of a second, in which Ctrl-C
    would leave a traceback.
    """
    if name not in _HOMES:
        raise AttributeError(f"module 'txnscan' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), _CALLED.get(name, name))
