"""txnscan: sweep an Apache Kafka cluster for hanging transactions (KIP-664) and prove which ones hang.

    from txnscan import ScanConfig, sweep
    result = sweep(spark, ScanConfig(bootstrap_servers="...", tables="..."))
    result.transactions, result.candidates, result.errors   # DataFrames
    result.summary                                          # dict

`find_hanging(config)` gives the same proof without Spark and without tables. The rules are in `txnscan.judge.rules`.
"""

from __future__ import annotations

# As type checkers know it. `typing` itself takes time to import, in which Ctrl-C would leave a trace.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    __version__: str
    from txnscan.api import NotStored, SweepResult, find_hanging, sweep
    from txnscan.config import ConfigError, ScanConfig

__all__ = ["ConfigError", "NotStored", "ScanConfig", "SweepResult", "__version__", "find_hanging", "sweep"]

_HOMES = {
    "ConfigError": "txnscan.config",
    "NotStored": "txnscan.api",
    "ScanConfig": "txnscan.config",
    "SweepResult": "txnscan.api",
    "find_hanging": "txnscan.api",
    "sweep": "txnscan.api",
}


def __getattr__(name: str) -> Any:
    """The public names, imported when first used: executors and `--help` need none of them."""
    if name == "__version__":
        return _version()
    if name not in _HOMES:
        raise AttributeError(f"module 'txnscan' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def _version() -> str:
    # Looked up when it is asked for: what it takes is a fifth of a second, in which Ctrl-C would leave a trace.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("txnscan")
    except PackageNotFoundError:  # a checkout or a zip shipped to executors, not an installed package
        return "0+unknown"
