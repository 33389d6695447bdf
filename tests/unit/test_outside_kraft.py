"""Brokers with ZooKeeper that have just started: they know no topics until the controller has sent them.

`tests/brokers/test_zookeeper.py` sees it on real brokers.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.cases import Cases
from tests.fakes.old_brokers import FakeOld, connected, swept_fake
from txnscan.coordinators.agreed_metadata import TOPIC_DELETED
from txnscan.kafka.errors import ErrorCode
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC
from txnscan.reads.observation import TransactionKey
from txnscan.sweeps.history import Incident, Incidents, NoHistory
from txnscan.sweeps.preflight import Level, check_cluster

INCIDENTS = {TransactionKey("was-there", "", 0, 7, 100): Incident(1)}


class Remembers(NoHistory):
    """An incident of an earlier sweep."""

    def unresolved(self, cluster_id: str) -> Callable[[], Incidents]:
        return lambda: INCIDENTS


def brokers(*topics: str, kraft: bool = False) -> FakeOld:
    fake = FakeOld({})
    fake.partitions.clear()
    fake.topic_errors["was-there"] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for topic in topics:
        fake.lead(topic, [1])
    if not kraft:
        fake.images |= dict.fromkeys(fake.brokers)
    return fake


def test_a_topic_is_deleted_only_if_the_brokers_show_others() -> None:
    table = [
        ("no topics at all", brokers(), None, False),
        ("other topics, without that of coordinators", brokers("t"), None, True),
        ("that of coordinators", brokers("t", TRANSACTION_STATE_TOPIC), TOPIC_DELETED, True),
        ("no topics at all, in KRaft mode", brokers(kraft=True), TOPIC_DELETED, True),
    ]
    with Cases() as cases:
        for why, fake, how, complete in table:
            with cases.case(why):
                found = swept_fake(fake, history=Remembers())
                assert found.over(INCIDENTS) == (dict.fromkeys(INCIDENTS, how) if how is not None else {})
                assert (found.complete, {one.failure.code for one in found.errors}) == (
                    complete,
                    set() if complete else {"BROKER_BEHIND"},
                )


def test_check_names_a_broker_without_topics() -> None:
    with Cases() as cases:
        for topics, expected in (((), Level.INCOMPLETE), (("t",), Level.OK)):
            with cases.case(f"topics {topics}"), connected(brokers(*topics)) as cluster:
                findings = check_cluster(cluster, cluster.latest(), lambda: 0)
                assert next(one for one in findings if one.area == "metadata").level is expected
