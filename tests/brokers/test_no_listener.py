"""A broker that lacks the listener of the client: its partitions have a leader, and nobody can ask it."""

from __future__ import annotations

from pathlib import Path

from tests.cases import Cases
from txnscan import ScanConfig, find_hanging
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.node import CLIENT_LISTENER
from txnscan.demo.ports import HOST, choose_ports
from txnscan.demo.producer import PRODUCE_V1, Producer
from txnscan.kafka.failure import FailureCode
from txnscan.kafka.topology import TRANSACTION_STATE_TOPIC
from txnscan.verdict.evidence import Verdict

OUTSIDE = "OUTSIDE"
WITH_IT, WITHOUT = 1, 2
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.partition.verification.enable": "false",
}


def test_partitions_of_a_broker_without_the_listener_are_not_observed(tmp_path: Path) -> None:
    first, *_ = choose_ports(6, None)
    own = f"{CLIENT_LISTENER}://{HOST}:{first + 1}"
    lacks = {"listeners": f"{own},CONTROLLER://{HOST}:{first + 3}", "advertised.listeners": own}
    with (
        KafkaCluster(
            tmp_path,
            brokers=2,
            properties=SETTINGS,
            broker_properties={WITHOUT: lacks},
            listeners={OUTSIDE: "PLAINTEXT"},
            base_port=first,
        ) as cluster,
        cluster.wire() as wire,
    ):
        Producer(wire, "somebody").init_producer_id()
        coordinator = wire.partition(TRANSACTION_STATE_TOPIC, 0).leader
        for broker_id, topic in ((WITH_IT, "here"), (WITHOUT, "there")):
            create_topic(wire, topic, [[broker_id]])
            late = Producer(wire, v2=False)
            late.init_producer_id()
            late.produce(topic, 0, [b"late"], version=PRODUCE_V1)
        inside = find_hanging(ScanConfig(cluster.bootstrap_servers))
        outside = find_hanging(ScanConfig(cluster.bootstrap_servers_of(OUTSIDE).split(",")[0]))
        with Cases() as cases:
            with cases.case("the listener that each broker has"):
                assert inside.complete
                assert {(one.observation.topic, one.judgement.verdict) for one in inside.transactions} == {
                    ("here", Verdict.HANGING),
                    ("there", Verdict.HANGING),
                }
            with cases.case("the listener that one broker lacks"):
                assert not outside.complete
                assert ("there", FailureCode.NO_LISTENER) in {(one.topic, one.failure.code) for one in outside.errors}
                proven = Verdict.HANGING if coordinator == WITH_IT else Verdict.INDETERMINATE
                assert [(one.observation.topic, one.judgement.verdict) for one in outside.transactions] == [
                    ("here", proven)
                ]
