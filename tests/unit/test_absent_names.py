"""The rule about names that are not there: no such name, or not observed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.cases import Cases
from txnscan.config import ConfigError
from txnscan.coordinators.cluster import Cluster
from txnscan.errors import ExitStatus
from txnscan.kafka.failure import Failure, Unobserved
from txnscan.kafka.security.needs import DESCRIBE_TOPICS
from txnscan.kafka.topology import ClusterView, Topic
from txnscan.sweeps import names
from txnscan.sweeps.names import Absent, NotObserved, absent_group, absent_id, absent_topic, like

UNKNOWN, REFUSED = "UNKNOWN_TOPIC_OR_PARTITION", "TOPIC_AUTHORIZATION_FAILED"
BEHIND = Unobserved("plan", Failure("broker 3 does not answer", "UNREACHABLE"), 3)
KNOWN = ("orders", "payments")


def cluster(code: str = UNKNOWN, *behind: Unobserved) -> Cluster:
    """A cluster that answers for a topic with this error. behind: the brokers that may know more."""

    def newest(topics: Any = None) -> ClusterView:
        if topics is None:
            return ClusterView(1, "c", (), tuple(Topic(name, "t", (0,), (1,), (0,)) for name in KNOWN))
        return ClusterView(1, "c", (), (), tuple((name, code) for name in topics))

    fake = SimpleNamespace(newest=newest, behind=lambda: behind, broker_ids=(1,), send=None, format_failure=str)
    return cast(Cluster, fake)


@pytest.fixture(autouse=True)
def listings(monkeypatch: pytest.MonkeyPatch) -> None:
    """What brokers list."""
    monkeypatch.setattr(names, "names_of_groups", lambda *_: ([*KNOWN], None))
    monkeypatch.setattr(names, "_ids", lambda _: iter(KNOWN))


def test_a_name_is_no_such_name_only_if_its_absence_was_observed() -> None:
    table = {
        "a topic": (absent_topic(cluster(), "--topic", "ordrs"), "orders"),
        "a topic unlike all others": (absent_topic(cluster(), "--topic", "refunds"), None),
        "an id": (absent_id(cluster(), "paymants"), "payments"),
        "a group": (absent_group(cluster(), "order"), "orders"),
    }
    with Cases() as cases:
        for name, (absent, meant) in table.items():
            with cases.case(name):
                assert (absent.unseen, absent.like) == (None, meant)
                error = absent.error(str)
                assert isinstance(error, ConfigError) and error.exit_status == ExitStatus.USAGE
                assert meant is None or meant in str(error)


def test_an_absence_that_was_not_observed_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    table: dict[str, Absent] = {
        "a topic that the principal may not describe": absent_topic(cluster(REFUSED), "--topic", "ordrs"),
        "a broker behind, and a topic": absent_topic(cluster(UNKNOWN, BEHIND), "--topic", "ordrs"),
        "a broker behind, and an id": absent_id(cluster(UNKNOWN, BEHIND), "ordrs"),
        "a broker behind, and a group": absent_group(cluster(UNKNOWN, BEHIND), "ordrs"),
    }
    monkeypatch.setattr(names, "names_of_groups", lambda *_: ([], BEHIND.failure))
    table["a broker that lists no groups"] = absent_group(cluster(), "ordrs")
    with Cases() as cases:
        for name, absent in table.items():
            with cases.case(name):
                assert absent.unseen is not None and absent.like is None
                error = absent.error(str)
                assert isinstance(error, NotObserved) and error.exit_status == ExitStatus.INCOMPLETE
                assert str(absent.unseen) in str(error)
    refused = table["a topic that the principal may not describe"].unseen
    assert refused is not None and refused.needs == DESCRIBE_TOPICS.on("ordrs")


def test_only_similar_names_are_suggested() -> None:
    table = (("ordrs", "orders"), ("ORDERS", None), ("x", None), ("orders-and-payments", None), ("payment", "payments"))
    with Cases() as cases:
        for name, meant in table:
            with cases.case(name):
                assert like(name, KNOWN) == meant
