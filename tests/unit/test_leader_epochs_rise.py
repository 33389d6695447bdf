"""Whether leader epochs rise at every restart of a leader, as the features of a broker show it."""

from __future__ import annotations

from tests.cases import Cases
from tests.fakes.cluster import FakeCluster
from txnscan.kafka.protocol.api_versions import leader_epochs_rise


def test_leader_epochs_rise_with_eligible_leader_replicas_alone() -> None:
    """A single broker with ZooKeeper keeps its leader epochs (`tests/brokers/test_zookeeper.py`)."""
    table: list[tuple[str, dict[str, object], bool]] = [
        ("KRaft mode, with the feature", {"epochs_rise": True}, True),
        ("KRaft mode, without it", {"epochs_rise": False}, False),
        ("outside KRaft mode", {"images": {1: None}}, False),
        ("no answer", {"unreachable": {1}}, False),
    ]
    with Cases() as cases:
        for why, changes, rise in table:
            with cases.case(why):
                fake = FakeCluster()
                for name, value in changes.items():
                    setattr(fake, name, value)
                assert leader_epochs_rise(fake.send, 1) is rise
