"""Real brokers write ids beyond ASCII to the computed partition of the transaction log."""

from __future__ import annotations

from tests.brokers.shared import Shared
from tests.golden.coordinators import IDS
from txnscan.demo.producer import Producer
from txnscan.kafka.protocol.coordinator_partition import coordinator_partition
from txnscan.offline.paths import read_paths

PREFIX = "beyond-ascii-"


def test_brokers_write_an_id_to_the_computed_partition(shared: Shared) -> None:
    names = [PREFIX + text for text in IDS if text == text.encode(errors="replace").decode()]
    for name in names:
        Producer(shared.wire, name).init_producer_id()
    data = [str(shared.cluster.data_of(broker_id)) for broker_id in shared.cluster.broker_ids]
    logs = read_paths(data, late_after_ms=0).logs
    found = {name: k for k, log in logs.items() for name in log.ids if name.startswith(PREFIX)}
    assert found == {name: coordinator_partition(name, len(logs)) for name in names}
    assert len(found) > 30 and len({*found.values()}) > 1
