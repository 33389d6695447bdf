"""A cluster of any size on the wire: brokers on 127.0.0.1 that speak Kafka's protocol and hold nothing.

    with WireCluster(ClusterShape(brokers=50, partitions=100_000, hanging=100)) as cluster:
        find_hanging(ScanConfig(cluster.bootstrap_servers))

All that the brokers say follows from the shape by arithmetic (`shape.py`), is put together from bytes and kept
(`answers.py`, `server.py`), in processes of their own (`cluster.py`, `child.py`): so it is the client that a benchmark
measures. txnscan, kafka-python and Kafka's Java tools work against it unchanged. Apart from markers, which end the
transaction they name, nothing ever changes in it.
"""

from __future__ import annotations

from txnscan.sim.wire.cluster import BrokerStats, WireCluster
from txnscan.sim.wire.shape import ClusterShape

__all__ = ["BrokerStats", "ClusterShape", "WireCluster"]
