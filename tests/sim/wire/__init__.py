"""A cluster of any size on the wire: brokers on 127.0.0.1 that speak Kafka's protocol and store almost no data.

    with WireCluster(ClusterShape(brokers=50, partitions=100_000, hanging=100)) as cluster:
        find_hanging(ScanConfig(cluster.bootstrap_servers))

`ClusterShape.busy(...)` is a cluster under load: a share of its partitions has live transactions, there are
transactional ids in every state, `__transaction_state` has a history (`state_log.py`), and consumer groups wait behind
open transactions (`groups.py`).

All answers are computed from the shape (`shape.py`). They are built from bytes and, except logs, cached (`answers.py`,
`server.py`), in separate processes (`cluster.py`, `child.py`), so that a benchmark measures the client. txnscan,
kafka-python and Kafka's Java tools work with it unchanged. `tests/unit/test_golden_wire.py` compares its answers with
recorded bytes of real brokers. The cluster never changes, with two exceptions: a marker ends its transaction, and each
answer names a random broker as the controller.
"""

from __future__ import annotations

from tests.sim.wire.cluster import BrokerStats, WireCluster
from tests.sim.wire.shape import ClusterShape

__all__ = ["BrokerStats", "ClusterShape", "WireCluster"]
