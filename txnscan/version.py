"""The version of the running txnscan."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def _version() -> str:
    try:
        return version("txnscan")
    except PackageNotFoundError:  # a checkout or a zip shipped to executors, not an installed package
        return "0+unknown"


__version__ = _version()
