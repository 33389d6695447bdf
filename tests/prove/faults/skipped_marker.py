"""A case that chance hardly ever causes: a skipped marker that is sent later."""

from __future__ import annotations

from pathlib import Path

from tests.prove.faults.figures import Figures, in_one_line, say
from txnscan import ScanConfig, find_hanging
from txnscan.demo import plant
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.wait import wait_until
from txnscan.verdict.evidence import Verdict


def skipped_marker(figures: Figures, directory: Path) -> None:
    """A commit finds one partition without a leader (its marker is skipped, KAFKA-20734) and another partition that
    takes no writes (so the coordinator stays in PrepareCommit). When the first partition is back, its transaction is
    open, and its coordinator does not list it. The coordinator's log still lists it, so the next coordinator sends the
    marker. A verdict `hanging` would be wrong. Five brokers, so that a agreed survives the loss of two.
    """
    with KafkaCluster(directory / "skipped-marker", brokers=5) as cluster, cluster.wire() as wire:
        create_topic(wire, "skipped", [[3]])
        create_topic(wire, "awaited", [[2, 4]], {"min.insync.replicas": "2"})
        producer = plant.coordinated_by(wire, 1, "torn")
        for topic in ("skipped", "awaited"):
            producer.write(topic, 0, [b"record"])
        producer_id, owner = producer.known.producer_id, str(producer.transactional_id)
        cluster.stop_broker(3)
        cluster.stop_broker(4)
        cluster.wait_for_brokers(cluster.running)
        producer.end(commit=True)
        wait_until(lambda: plant.describe_owner(wire, owner).partitions == ("awaited-0",), "a marker was skipped")
        cluster.start_broker(3)
        cluster.wait_for_leader("skipped", 0, 3)
        scan = find_hanging(ScanConfig(cluster.bootstrap_servers))
        said = [j.judgement for j in scan.transactions if j.observation.topic == "skipped"]
        say(f"a skipped marker, its coordinator in PrepareCommit: {in_one_line(scan)}")
        if [judgement.verdict for judgement in said] != [Verdict.INDETERMINATE]:
            figures.violations.append(f"a marker that the next coordinator sends was not waited for: {said}")
        cluster.stop_broker(1)
        cluster.wait_for_brokers(cluster.running)
        wait_until(
            lambda: plant.open_transaction(wire, "skipped", 0, producer_id) is None, "the next coordinator ended it"
        )
