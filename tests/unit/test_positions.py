"""The present positions of a cluster, as its leaders answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tests.fakes.cluster import partition
from tests.fakes.leader import Leader
from txnscan.coordinators.agreed_metadata import AgreedMetadata
from txnscan.coordinators.cluster import Cluster
from txnscan.sweeps.positions import ends_of
from txnscan.sweeps.restored import LogPosition, Past, Present, Sign, fall


def at(epoch: int, mark: int) -> LogPosition:
    return LogPosition("t", "t0", 0, epoch, mark)


def test_a_lost_end_is_noticed_after_the_log_has_grown_beyond_it() -> None:
    """Leader epoch 5 had 60 records of earlier leaders and wrote 40. All of its own are lost, and 300 came after it."""
    here = partition("t", 0, topic_id="t0", epoch=9)
    lost = Leader({3: 0, 7: 60, 9: 80})
    cluster = cast(Cluster, SimpleNamespace(send=lost.send, in_parallel=lambda ask, of: [ask(one) for one in of]))
    agreed: Any = SimpleNamespace(partition=lambda topic, index: here)
    past, positions = Past(positions=(at(5, 100),)), [at(9, 380)]
    ends = ends_of(cluster, past, positions, cast(AgreedMetadata, agreed))
    assert ends == {(("t0", 0), 5): 60}
    found = fall(past, Present(None, tuple(positions), ends))
    assert found is not None and (found.sign, found.before, found.now) == (Sign.EPOCH_END, 100, 60)
