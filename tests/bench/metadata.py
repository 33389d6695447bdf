"""Metadata of the big cluster: all topics and partitions, with their leaders, from one broker.

Timed: from the call to its result, over connections that are open. Not timed: connecting, and the time in which the
broker makes its answer for the first time.

- `list_topics` and `describe_topics` of KafkaAdminClient, which return names and leaders.
- one Metadata request, decoded by kafka-python into its objects.
- ours: `read_metadata`, one Metadata request decoded into columns.
"""

from __future__ import annotations

from contextlib import closing

from kafka import KafkaAdminClient
from kafka.protocol.metadata import MetadataRequest

from tests.bench.clusters import big, described
from tests.bench.harness import Finding, Options, Ratio, Side, Work, timed_in_turn
from tests.sim.wire import WireCluster
from txnscan.config import parse_bootstrap_servers
from txnscan.kafka.client.client import Client
from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.protocol.metadata import read_metadata

TWO_CALLS = "kafka-python, list_topics and describe_topics"
OBJECTS = "kafka-python, one request as objects"
OURS = "txnscan, one request as columns"
RATIOS = (Ratio(OURS, TWO_CALLS), Ratio(OURS, OBJECTS))


def run(options: Options) -> Finding:
    """The three ways in turn."""
    shape = big(options)
    with WireCluster(shape) as cluster:
        (first, *_) = parse_bootstrap_servers(cluster.bootstrap_servers)
        with (
            closing(KafkaAdminClient(bootstrap_servers=first.address)) as admin,
            Client(ConnectionSettings(), [first]) as client,
        ):

            def two_calls() -> Work:
                names = admin.list_topics()
                topics = admin.describe_topics(names)
                return {"topics": len(topics), "partitions": sum(len(topic["partitions"]) for topic in topics)}

            def objects() -> Work:
                request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
                topics = client.send(first.broker_id, request).topics
                return {"topics": len(topics), "partitions": sum(len(topic.partitions) for topic in topics)}

            def ours() -> Work:
                topics = read_metadata(client.send, first.broker_id).topics
                return {"topics": len(topics), "partitions": sum(len(topic.indexes) for topic in topics)}

            timed, work = timed_in_turn(
                [Side(TWO_CALLS, two_calls), Side(OBJECTS, objects), Side(OURS, ours)], options.runs
            )
    return Finding("metadata", "all topics and partitions, from one broker", described(shape), timed, RATIOS, work)
