"""Locations at which Delta lets one of two concurrent commits fail. Pure.

The lock of apply and its journal rest on that. Delta commits through a log store, which it chooses for each scheme of
a location, and not all of them exclude a second driver:

- HDFS, Azure and Google's storage create a file, or rename to it, only if it does not exist (`HDFSLogStore`,
  `AzureLogStore`, `GCSLogStore`, Delta's defaults there).
- For S3 the default is `S3SingleDriverLogStore`: it looks, then writes, and knows only the writers of its own process.
- On a local path `HDFSLogStore` looks, then renames. Two processes may both succeed (seen: one commit of 30,000 that
  two raced for), so the lock adds one of the operating system (`lock.py`).
- Databricks has a commit service of its own.

Source: Delta 4.4, `DelegatingLogStore.getDefaultLogStoreClassName` and `LogStoreProvider.getLogStoreConfValue`.
"""

from __future__ import annotations

from collections.abc import Callable

from txnscan.config import is_local

# The value of a setting of the Spark application, by its name, if it is set.
Setting = Callable[[str], str | None]

_EXCLUSIVE = ("hdfs", "viewfs", "abfs", "abfss", "adl", "wasb", "wasbs", "gs")
_S3 = ("s3", "s3a", "s3n")
_CHOSEN_BY_SCHEME = "DelegatingLogStore"
_FOR_ONE_DRIVER = "S3SingleDriverLogStore"
# Delta's own for other storage. They do not make S3 refuse a second writer.
_NOT_FOR_S3 = (_FOR_ONE_DRIVER, "HDFSLogStore", "AzureLogStore", "GCSLogStore", "LocalLogStore")
_HOMES = ("io.delta.storage", "org.apache.spark.sql.delta.storage")
_FOR_S3 = "io.delta.storage.S3DynamoDBLogStore"
_ON_DATABRICKS = "spark.databricks.clusterUsageTags.clusterId"


def why_not_exclusive(scheme: str, setting: Setting) -> str | None:
    """Why two applies could both make the same commit at a location of this scheme, and the setting that prevents it,
    in one sentence. None if one of the commits fails.
    """
    if is_local(scheme) or setting(_ON_DATABRICKS) is not None:
        return None
    store = _log_store(scheme, setting)
    if store is None and scheme in _EXCLUSIVE:
        return None
    if store is not None and store not in _unsafe(scheme):
        return None
    return f"two applies could run at once there: {_why(scheme, store)}; {_remedy(scheme)}"


def _log_store(scheme: str, setting: Setting) -> str | None:
    """The configured log store. None if Delta chooses the store itself. The setting for all schemes comes first."""
    for name in ("spark.delta.logStore.class", f"spark.delta.logStore.{scheme}.impl"):
        # Delta takes either name.
        store = setting(name) or setting(name.removeprefix("spark."))
        if store is not None and _CHOSEN_BY_SCHEME not in store:
            return store
    return None


def _unsafe(scheme: str) -> frozenset[str]:
    names = _NOT_FOR_S3 if scheme in _S3 else (_FOR_ONE_DRIVER,)
    return frozenset(f"{home}.{name}" for home in _HOMES for name in names)


def _why(scheme: str, store: str | None) -> str:
    if store is not None:
        return f"Delta's log store for {scheme} is {store}, which does not keep two writers from the same commit"
    if scheme in _S3:
        return f"Delta's default log store for {scheme}, {_FOR_ONE_DRIVER}, excludes no other process"
    return f"Delta has no log store of its own for {scheme}, and whether it excludes a second writer is not known"


def _remedy(scheme: str) -> str:
    if scheme in _S3:
        return (
            f"set spark.delta.logStore.{scheme}.impl={_FOR_S3} and its DynamoDB table "
            "(spark.io.delta.storage.S3DynamoDBLogStore.ddb.tableName and .ddb.region) when Spark starts"
        )
    if scheme in _EXCLUSIVE:
        return "take that setting away, so that Delta chooses the one for this storage"
    return f"set spark.delta.logStore.{scheme}.impl to one that does when Spark starts"
