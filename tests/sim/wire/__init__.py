"""A cluster of any size on the wire: brokers on 127.0.0.1 that speak Kafka's protocol and hold nothing.

    with WireCluster(ClusterShape(brokers=50, partitions=100_000, hanging=100)) as cluster:
        find_hanging(ScanConfig(cluster.bootstrap_servers))

`ClusterShape.busy(...)` is a cluster at work: a share of its partitions has live transactions, there are transactional
ids in every state, `__transaction_state` has a history (`state_log.py`), and consumer groups wait behind what is open
(`groups.py`).

All that the brokers say follows from the shape by arithmetic (`shape.py`). Answers are put together from bytes and,
logs apart, kept (`answers.py`, `server.py`), in processes of their own (`cluster.py`, `child.py`), so that a benchmark
measures the client. txnscan, kafka-python and Kafka's Java tools work against it unchanged.
`tests/unit/test_golden_wire.py` holds its answers to recorded bytes of real brokers. Apart from markers,
which end the transaction they name, and from the controller, which is another broker in each answer, nothing ever
changes in it.
"""

from __future__ import annotations

from tests.sim.wire.cluster import BrokerStats, WireCluster
from tests.sim.wire.shape import ClusterShape

__all__ = ["BrokerStats", "ClusterShape", "WireCluster"]
