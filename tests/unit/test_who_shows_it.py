"""What a broker shows of topics, settings and names counts for its own answers alone.

Brokers apply metadata and ACLs each in its own time. So settings and replicas come from the broker with the newest
metadata, and whether something is hidden is asked of each broker whose answers are used.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import judged
from tests.cases import Cases
from tests.fakes.cluster import FakeCluster, FakePartition, one_by_one
from tests.fakes.groups import NOBODY, FakeGroups, shown
from tests.fakes.old_brokers import FakeOld, connected
from txnscan.kafka.errors import ErrorCode
from txnscan.sweeps.disk import read_replica_sizes
from txnscan.waiting.who_waits import read_blockage

NEWEST = 2


def test_the_cleaning_of_a_topic_is_asked_of_the_broker_with_the_newest_metadata() -> None:
    fake = FakeGroups({})
    fake.config = {"cleanup.policy": "compact"}

    def read() -> tuple[str | None, object]:
        view = replace(shown(fake.brokers), answered_by=NEWEST)
        found = read_blockage(fake.send, one_by_one, view, [judged()], random_token=lambda: NOBODY)
        policies = [one.cleanup_policy for one in found.cleaning.values()]
        return policies[0] if policies else None, found.cleaning_failure

    assert read() == ("compact", None)
    assert {broker for broker, api in fake.asked if api == "DescribeConfigs"} == {NEWEST}
    # The others may have earlier settings.
    fake.unreachable = {NEWEST}
    policy, failure = read()
    assert policy is None and failure is not None


def test_replicas_are_asked_of_the_broker_with_the_newest_metadata() -> None:
    fake, stale = FakeOld({}), FakeCluster()
    fake.partitions["p", 0] = FakePartition(leader=2, sizes_bytes={2: 20, 3: 30})
    stale.partitions["p", 0] = FakePartition(leader=1, sizes_bytes={1: 10})
    fake.believes[1] = stale
    with connected(fake) as cluster:
        found = read_replica_sizes(cluster, NEWEST, [("p", 0)])["p", 0]
        assert [one.broker_id for one in found.sizes] == [2, 3]
        fake.unreachable = {NEWEST}
        failed = read_replica_sizes(cluster, NEWEST, [("p", 0)])["p", 0]
    assert (failed.sizes, len(failed.failures)) == ((), 1)


@pytest.mark.parametrize("hiding", [1, 3])
def test_hidden_topics_are_those_of_the_broker_that_answered(hiding: int) -> None:
    """Broker 1 is the first that answers."""
    fake = FakeOld({})

    def edit(broker_id: int, answer: object) -> object:
        if broker_id == hiding:
            for topic in answer.topics:  # type: ignore[attr-defined]
                topic.error_code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return answer

    fake.edit["Metadata"] = edit
    with connected(fake) as cluster:
        found = {one: cluster.hidden_topics(one) for one in fake.brokers}
        fake.unreachable = {NEWEST}
        silent = cluster.hidden_topics(NEWEST)
    assert {one for one, failure in found.items() if failure is not None} == {hiding}
    # Without its answer, topics may be invisible or not.
    assert silent is not None and silent.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED.name


def test_ids_may_be_hidden_if_one_of_the_brokers_that_list_them_hides_ids() -> None:
    with Cases() as cases:
        for hiding, listed, hidden in (
            ((), (1, 2, 3), False),
            ((1,), (1, 2, 3), True),
            ((3,), (1, 2, 3), True),
            ((3,), (1, 2), False),
            ((3,), (3,), True),
        ):
            with cases.case(f"{hiding=}, {listed=}"):
                fake = FakeOld({})
                fake.hides = lambda broker_id, name, hiding=hiding: broker_id in hiding  # type: ignore[misc]
                with connected(fake) as cluster:
                    assert (cluster.hidden_ids(listed) is not None) == hidden
                assert {broker for broker, _ in fake.asked} == set(listed)
