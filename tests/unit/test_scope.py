"""An empty scope is refused, and a narrow scope is never reported as the whole cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.builders import judged, scan
from tests.cases import Cases
from tests.printed import shown
from txnscan.config import ConfigError, ScanConfig
from txnscan.errors import ExitStatus
from txnscan.kafka.failure import Failure, Unobserved
from txnscan.kafka.topology import Broker, ClusterView, Topic
from txnscan.sweeps.names import NotObserved
from txnscan.sweeps.scope import check_scope
from txnscan.sweeps.warnings import idle_patterns

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from txnscan.coordinators.cluster import Cluster

TOPICS = (Topic("p", "t0", (0, 1), (1, 2), (0, 0)), Topic("q", "t1", (0,), (1,), (0,)))
VIEW = ClusterView(1, "c", tuple(Broker(n, "h", 9092) for n in (1, 2, 3)), TOPICS)
NOTHING = "matches no topic; a whole name has to match"
# Every broker answers, and the principal may describe every topic.
SEES_ALL = cast("Cluster", SimpleNamespace(hidden_topics=lambda asked: None, behind=lambda: (), format_failure=str))
EMPTY = [
    ({"topic": ("nosuch.*",)}, f"--topic: 'nosuch.*' {NOTHING}"),
    ({"topic": ("x", "\x1b")}, f"--topic: 'x' or '\\x1b' {NOTHING}"),
    ({"broker_ids": (3,)}, "--broker-id: no partition in scope is led by 3 now"),
    ({"broker_ids": (2,), "topic_names": ("q",)}, "--broker-id: no partition in scope is led by 2 now"),
]


def in_scope(config: ScanConfig) -> list[Topic]:
    return [
        topic.only(lambda index, leader: not config.broker_ids or leader in config.broker_ids)
        for topic in VIEW.topics
        if topic.name in config.wanted_topics(topic.name for topic in VIEW.topics)
    ]


@pytest.mark.parametrize(("limits", "says"), EMPTY)
def test_an_empty_scope_is_a_usage_error(limits: dict[str, Any], says: str) -> None:
    config = ScanConfig("h:1", **limits)
    with pytest.raises(ConfigError) as error:
        check_scope(config, VIEW, in_scope(config), SEES_ALL)
    assert str(error.value) == says


def test_a_pattern_without_a_visible_match_is_not_observed_if_a_topic_may_be_hidden() -> None:
    hidden = Failure("topics may be invisible", "TOPIC_AUTHORIZATION_FAILED")
    behind = Unobserved("plan", Failure("broker 3 does not answer", "UNREACHABLE"), 3)
    config = ScanConfig("h:1", topic=("nosuch",))
    with Cases() as cases:
        for why in ({"hidden_topics": lambda asked: hidden}, {"behind": lambda: (behind,)}):
            with cases.case(*why), pytest.raises(NotObserved) as error:
                check_scope(config, VIEW, in_scope(config), cast("Cluster", SimpleNamespace(**vars(SEES_ALL) | why)))
            assert error.value.exit_status == ExitStatus.INCOMPLETE


@pytest.mark.parametrize("limits", [{}, {"topic": ("p", "nosuch")}, {"broker_ids": (2,)}, {"topic_names": ("q",)}])
def test_a_nonempty_scope_is_swept(limits: dict[str, Any]) -> None:
    config = ScanConfig("h:1", **limits)
    check_scope(config, VIEW, in_scope(config), SEES_ALL)


def test_a_cluster_without_topics_is_swept() -> None:
    check_scope(ScanConfig("h:1"), ClusterView(1, "c", VIEW.brokers, ()), [], SEES_ALL)


def test_a_pattern_without_a_match_is_a_warning() -> None:
    assert idle_patterns(ScanConfig("h:1", topic=("p", "nosuch.*")), VIEW) == ("--topic 'nosuch.*' matches no topic",)


def test_a_narrow_sweep_names_its_scope_in_its_result(wording: SnapshotAssertion) -> None:
    text = shown(scan(scope="topic=p"))
    assert text == wording
    assert shown(scan(judged(), scope="topic=p")) == wording


def test_a_full_sweep_names_no_scope() -> None:
    assert "alone" not in shown(scan()) and "No transaction hangs.\n" in shown(scan())
