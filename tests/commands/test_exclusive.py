"""Storage on which two applies could commit at once: each scheme, and its log store setting."""

from __future__ import annotations

import pytest

from txnscan.config import is_local, scheme_of
from txnscan.tables.exclusive import why_not_exclusive

CLASS = "spark.delta.logStore.class"
DYNAMODB = "io.delta.storage.S3DynamoDBLogStore"
SINGLE = "io.delta.storage.S3SingleDriverLogStore"
SINGLE_OF_OLD = "org.apache.spark.sql.delta.storage.S3SingleDriverLogStore"
HDFS = "io.delta.storage.HDFSLogStore"
OWN = "com.example.OwnLogStore"
DELEGATING = "org.apache.spark.sql.delta.storage.DelegatingLogStore"
DATABRICKS = {"spark.databricks.clusterUsageTags.clusterId": "0123-456789-abcdefgh"}


def impl(scheme: str) -> str:
    return f"spark.delta.logStore.{scheme}.impl"


def nothing_set(_: str) -> None:
    return None


@pytest.mark.parametrize("scheme", ["", "file", "hdfs", "viewfs", "abfs", "abfss", "adl", "wasb", "wasbs", "gs"])
def test_deltas_log_store_is_exclusive_on_most_storage(scheme: str) -> None:
    assert why_not_exclusive(scheme, nothing_set) is None


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_s3_needs_another_log_store_and_the_sentence_names_the_setting(scheme: str) -> None:
    why = why_not_exclusive(scheme, nothing_set)
    assert why is not None
    assert "S3SingleDriverLogStore, excludes no other process" in why
    assert f"set spark.delta.logStore.{scheme}.impl=io.delta.storage.S3DynamoDBLogStore and its DynamoDB table" in why
    assert ". " not in why, "one sentence"


@pytest.mark.parametrize(
    ("scheme", "settings"),
    [
        ("s3a", {impl("s3a"): DYNAMODB}),
        ("s3n", {impl("s3n"): DYNAMODB}),
        # Delta also accepts the name without the spark. prefix.
        ("s3a", {impl("s3a").removeprefix("spark."): DYNAMODB}),
        ("s3a", {impl("s3a"): OWN}),
        ("s3a", {CLASS: DYNAMODB}),
        ("s3a", {CLASS.removeprefix("spark."): DYNAMODB}),
        # The delegating log store uses the log store of the scheme.
        ("s3a", {CLASS: DELEGATING, impl("s3a"): DYNAMODB}),
        ("hdfs", {CLASS: HDFS}),
        ("abfss", {impl("abfss"): OWN}),
        ("oss", {impl("oss"): OWN}),
        ("oss", {CLASS: HDFS}),
        ("s3", DATABRICKS),
        ("dbfs", DATABRICKS),
        # The operating system's lock is sufficient there, for any log store.
        ("file", {CLASS: SINGLE}),
    ],
)
def test_a_log_store_set_for_the_scheme_is_accepted(scheme: str, settings: dict[str, str]) -> None:
    assert why_not_exclusive(scheme, settings.get) is None


@pytest.mark.parametrize(
    ("scheme", "settings", "said"),
    [
        ("s3a", {impl("s3a"): SINGLE}, f"log store for s3a is {SINGLE}"),
        ("s3a", {CLASS: SINGLE_OF_OLD}, f"log store for s3a is {SINGLE_OF_OLD}"),
        # It renames, which on S3 is a copy.
        ("s3a", {impl("s3a"): HDFS}, f"log store for s3a is {HDFS}"),
        # Set for another scheme.
        ("s3a", {impl("s3"): DYNAMODB}, "excludes no other process"),
        ("s3a", {CLASS: DELEGATING}, "excludes no other process"),
        # The global setting takes precedence in Delta.
        ("s3a", {CLASS: SINGLE, impl("s3a"): DYNAMODB}, f"log store for s3a is {SINGLE}"),
        ("hdfs", {CLASS: SINGLE_OF_OLD}, "take that setting away"),
        ("dbfs", {}, "whether it excludes a second writer is not known"),
        ("oss", {}, "set spark.delta.logStore.oss.impl"),
        ("oss", {CLASS: SINGLE}, f"log store for oss is {SINGLE}"),
    ],
)
def test_a_log_store_without_exclusive_commits_is_refused_with_the_setting(
    scheme: str, settings: dict[str, str], said: str
) -> None:
    why = why_not_exclusive(scheme, settings.get)
    assert why is not None and said in why and ". " not in why


@pytest.mark.parametrize(
    ("location", "scheme"),
    [
        ("s3a://bucket/txnscan", "s3a"),
        ("S3A://bucket/txnscan", "s3a"),
        ("file:/data/txnscan", "file"),
        ("hdfs://name:8020/data", "hdfs"),
        ("/data/txnscan", ""),
        ("/data/a:b", ""),
        ("main.txnscan", ""),
    ],
)
def test_the_scheme_of_a_location_precedes_its_colon(location: str, scheme: str) -> None:
    assert scheme_of(location) == scheme
    assert is_local(scheme) is (scheme in ("", "file"))
