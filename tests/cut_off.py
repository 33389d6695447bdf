"""A cluster of three real brokers, the last of which can be cut off from the active controller, and linked again.

A proxy stands before each controller's port. The proxies must be the advertised endpoints, too: since Kafka 3.9
followers learn the leader's own endpoint (BeginQuorumEpoch, Fetch).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kafka.protocol.admin import DescribeQuorumRequest

from tests.proxy import Proxy
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.errors import DemoError
from txnscan.demo.ports import HOST, choose_ports
from txnscan.demo.wait import wait_until

BROKERS = (1, 2, 3)
CUT_OFF = 3


@dataclass(frozen=True)
class Controllers:
    """The connections of the brokers to the controllers. Only the last broker can be cut off."""

    cluster: KafkaCluster
    proxies: Mapping[int, Proxy]

    def cut_off(self) -> None:
        """The last broker gets no metadata any more. The others fence it when its session times out."""
        self._let_others_lead()
        for broker_id, proxy in self.proxies.items():
            if broker_id != CUT_OFF:
                proxy.cut_off(*_CLIENTS)

    def _let_others_lead(self) -> None:
        """The last broker rarely stands for election, but an active controller that stops may name it as its
        successor. A broker that leads the controllers cannot be cut off from them.
        """
        while self._leader() == CUT_OFF:
            self.cluster.kill_broker(CUT_OFF)
            wait_until(lambda: self._leader() not in (CUT_OFF, None), "another controller was elected")
            self.cluster.start_broker(CUT_OFF)

    def _leader(self) -> int | None:
        """The active controller in the view of the first broker; None during an election."""
        topic = DescribeQuorumRequest.TopicData
        request = DescribeQuorumRequest(
            topics=[topic(topic_name="__cluster_metadata", partitions=[topic.PartitionData(partition_index=0)])]
        )
        with self.cluster.wire() as wire:
            (found,) = wire.send(BROKERS[0], request).topics
        leader: int = found.partitions[0].leader_id
        return leader if leader in BROKERS else None

    def link(self) -> None:
        """The last broker catches up, and is unfenced."""
        for proxy in self.proxies.values():
            proxy.let_in(*_CLIENTS)


# The last broker as the follower of the metadata log, and as the broker that sends heartbeats.
_CLIENTS = (f"raft-client-{CUT_OFF}", str(CUT_OFF))


@contextmanager
def cluster_to_cut(directory: Path, properties: Mapping[str, str]) -> Iterator[tuple[KafkaCluster, Controllers]]:
    """A running cluster with these settings for all brokers."""
    with ExitStack() as stack:

        def controller(broker_id: int) -> int:
            return {b.broker_id: b.port for b in cluster.brokers_of("CONTROLLER")}[broker_id]

        base_port = _row_of_ports(2 * len(BROKERS))
        proxies = {b: stack.enter_context(Proxy(partial(controller, b))) for b in BROKERS}
        cluster = KafkaCluster(
            directory,
            properties={
                **properties,
                "controller.quorum.voters": ",".join(f"{b}@{HOST}:{proxy.port}" for b, proxy in proxies.items()),
            },
            broker_properties={
                b: {
                    "advertised.listeners": f"PLAINTEXT://{HOST}:{base_port + b - 1},CONTROLLER://{HOST}:{proxy.port}",
                    **({"controller.quorum.election.timeout.ms": "600000"} if b == CUT_OFF else {}),
                }
                for b, proxy in proxies.items()
            },
            base_port=base_port,
        )
        stack.enter_context(cluster)
        yield cluster, Controllers(cluster, proxies)


def _row_of_ports(count: int) -> int:
    """The first of some free ports in a row."""
    while True:
        (first,) = choose_ports(1)
        with suppress(DemoError):
            return choose_ports(count, first)[0]
