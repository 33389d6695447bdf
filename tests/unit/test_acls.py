"""The name of a missing ACL, and the command that grants it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import lacks
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.failure import Failure, Permission
from txnscan.kafka.security.acls import (
    UNKNOWN_PRINCIPAL,
    AclRule,
    denied,
    explained,
    needing,
)
from txnscan.kafka.security.needs import CONFIGS_OF_BROKERS, DESCRIBE_IDS
from txnscan.kafka.security.needs import DESCRIBE_CLUSTER as OF_CLUSTER

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

DESCRIBE_CLUSTER = OF_CLUSTER.permission
KAFKA_ACLS = "kafka-acls.sh --bootstrap-server HOST:PORT --command-config ADMIN.properties"


def rule(**changes: Any) -> AclRule:
    base: dict[str, Any] = {
        "name": "X",
        "prefixed": False,
        "principal": "User:bob",
        "host": "*",
        "operation": 8,
        "deny": True,
    }
    return AclRule(**(base | changes))


@pytest.mark.parametrize(
    ("permission", "name", "options"),
    [
        (Permission("Read", "Topic", "orders"), "Read on Topic 'orders'", "--operation Read --topic orders"),
        (
            DESCRIBE_IDS.permission,
            "Describe on TransactionalId '*'",
            "--operation Describe --transactional-id '*'",
        ),
        (
            Permission("Describe", "TransactionalId", "app-", prefixed=True),
            "Describe on TransactionalId prefix 'app-'",
            "--operation Describe --transactional-id app- --resource-pattern-type prefixed",
        ),
        (DESCRIBE_CLUSTER, "Describe on Cluster", "--operation Describe --cluster"),
        (CONFIGS_OF_BROKERS.permission, "DescribeConfigs on Cluster", "--operation DescribeConfigs --cluster"),
    ],
)
def test_a_missing_permission_is_named_with_its_grant_command(
    permission: Permission, name: str, options: str, wording: SnapshotAssertion
) -> None:
    sentence = lacks(permission, "User:bob")
    assert name in sentence and f"`{KAFKA_ACLS} --add --allow-principal User:bob {options}`" in sentence
    assert sentence == wording


@pytest.mark.parametrize(
    ("changes", "name", "options"),
    [
        ({}, "Describe on TransactionalId 'X'", "--operation Describe --transactional-id X"),
        (
            {"operation": 2, "prefixed": True, "host": "10.0.0.1"},
            "All on TransactionalId prefix 'X'",
            "--deny-host 10.0.0.1 --operation All --transactional-id X --resource-pattern-type prefixed",
        ),
    ],
)
def test_a_denying_rule_is_named_with_its_removal_command(
    changes: dict[str, Any], name: str, options: str, wording: SnapshotAssertion
) -> None:
    sentence = denied(rule(**changes))
    assert name in sentence and f"`{KAFKA_ACLS} --remove --deny-principal User:bob {options}`" in sentence
    assert sentence == wording


@pytest.mark.parametrize("name", ["it's", "a b", "$(reboot)", "a;b", "*", "x\ny", "--force"])
def test_names_from_the_cluster_are_quoted_in_commands(name: str) -> None:
    for sentence in (
        denied(rule(name=name, principal=f"User:{name}")),
        lacks(Permission("Describe", "TransactionalId", name), f"User:{name}"),
    ):
        words = shlex.split(sentence.split("`")[1])
        assert words[words.index("--transactional-id") + 1] == name
        assert f"User:{name}" in words


@pytest.mark.parametrize("code", ["NOT_COORDINATOR", "SASL_AUTHENTICATION_FAILED", "UNREACHABLE"])
def test_an_error_unrelated_to_acls_is_unchanged(code: str) -> None:
    error = "broker 1 says something of TOPIC_AUTHORIZATION_FAILED"
    assert explained(needing(Failure(error, code), DESCRIBE_CLUSTER), "User:bob") == error


def test_an_acl_error_keeps_its_text_and_names_the_missing_permission() -> None:
    error = "broker 1 answered X with CLUSTER_AUTHORIZATION_FAILED"
    failure = needing(Failure(error, "CLUSTER_AUTHORIZATION_FAILED"), DESCRIBE_CLUSTER)
    assert explained(failure, "User:bob") == f"{error}: {lacks(DESCRIBE_CLUSTER, 'User:bob')}"


def test_a_known_missing_permission_is_not_replaced() -> None:
    """Reading needs Describe before Read: grant the first permission that failed."""
    needs = Permission("Describe", "Topic", "t")
    failure = needing(Failure("t: X", "TOPIC_AUTHORIZATION_FAILED"), needs)
    assert needing(failure, Permission("Read", "Topic", "t")) == failure and failure.needs == needs


def test_a_missing_permission_without_an_error_text_is_a_whole_sentence() -> None:
    assert explained(Failure("", "REFUSED", needs=DESCRIBE_CLUSTER), "User:bob") == lacks(DESCRIBE_CLUSTER, "User:bob")


@pytest.mark.parametrize(
    ("changes", "denies"),
    [
        ({"operation": 8}, True),
        ({"operation": 2}, True),
        ({"operation": 3}, False),
        ({"operation": 4}, False),
        ({"operation": 8, "deny": False}, False),
    ],
    ids=["Describe", "All", "Read", "Write", "allowed"],
)
def test_only_a_denial_of_describe_or_all_denies_describe(changes: dict[str, Any], denies: bool) -> None:
    assert rule(**changes).denies_describe == denies


@pytest.mark.parametrize(
    ("changes", "covered", "spared"),
    [
        ({"name": "app"}, ["app"], ["app-1", "ap"]),
        ({"name": "app", "prefixed": True}, ["app", "app-1"], ["ap", "xapp"]),
        ({"name": "*"}, ["app", "*", "anything"], []),
        ({"name": "*", "prefixed": True}, ["*", "*x"], ["app"]),
    ],
)
def test_a_rule_covers_its_name_or_prefix_and_a_literal_star_covers_all_names(
    changes: dict[str, Any], covered: list[str], spared: list[str]
) -> None:
    assert [name for name in (*covered, *spared) if rule(**changes).covers(name)] == covered


def test_the_principal_is_the_sasl_user_of_the_settings() -> None:
    assert ConnectionSettings(sasl_mechanism="PLAIN", sasl_username="bob").principal == "User:bob"
    assert ConnectionSettings().principal == UNKNOWN_PRINCIPAL
