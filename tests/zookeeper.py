"""A small Kafka cluster with ZooKeeper: the mode of all clusters before Kafka 3.3, and the only one without topic ids.

Kafka 3.5.2 is the version of the tests that still has it. Before `inter.broker.protocol.version` 2.8 its topics have no
ids; the first controller with 2.8 or later gives one to each topic (KIP-516, `KafkaController.processTopicIds`).
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafka.protocol.metadata import MetadataRequest

from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.jars import OLD_KAFKA_VERSION, java, kafka_jars
from txnscan.demo.node import CLIENT_LISTENER, java_command, server_properties, write_settings
from txnscan.demo.ports import HOST, choose_ports, is_listening
from txnscan.demo.process import GuardedProcess
from txnscan.demo.requests import Wire
from txnscan.demo.wait import wait_until

PROTOCOL = "inter.broker.protocol.version"
# The last one without topic ids, and the one of these brokers.
WITHOUT_IDS, WITH_IDS = "2.7", "3.5"
# A broker that ended may return when its session has timed out, after at least two ticks.
_TICK_MS, _SESSION_MS = 500, 4_000
_END_S_MAX = 10.0
# Settings of KRaft mode alone.
_OF_KRAFT = ("process.roles", "controller.quorum.voters", "controller.listener.names", "node.id")


class _ToController(Wire):
    """Requests to any broker go to the controller."""

    def any_broker(self) -> int:
        """The controller. Raises RequestFailed."""
        asked = super().any_broker()
        return int(self.send(asked, MetadataRequest(topics=[])).controller_id)


class ZooKeeperCluster(KafkaCluster):
    """Brokers 1 to n of Kafka 3.5.2, and one ZooKeeper that keeps running while brokers stop and start.

    protocol: their `inter.broker.protocol.version`. properties: as of KafkaCluster.
    """

    def __init__(self, directory: Path, *, protocol: str, properties: Mapping[str, str], **others: Any) -> None:
        super().__init__(directory, version=OLD_KAFKA_VERSION, properties=properties, **others)
        self._protocol = protocol
        (self._port,) = choose_ports(1)
        self._zookeeper: GuardedProcess | None = None

    def __enter__(self) -> ZooKeeperCluster:
        self.start_zookeeper()
        try:
            self.start()
        except BaseException:
            self.stop_zookeeper()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        super().__exit__(*exc_info)
        self.stop_zookeeper()

    def wire(self) -> Wire:
        """As of KafkaCluster. These brokers do not forward requests to the controller."""
        return _ToController(self.brokers, transactions_v2=False)

    def set_protocol(self, protocol: str) -> None:
        """Each broker has it from its next start on."""
        self._protocol = protocol
        self._prepare()

    def start_zookeeper(self) -> None:
        """Starts ZooKeeper alone, and waits until it listens."""
        home = self.directory / "zookeeper"
        home.mkdir(parents=True, exist_ok=True)
        settings = {
            "dataDir": home / "data",
            "clientPort": self._port,
            "clientPortAddress": HOST,
            "tickTime": _TICK_MS,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "dump",
        }
        (home / "zoo.cfg").write_text("".join(f"{name}={value}\n" for name, value in settings.items()), "utf-8")
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = java_command(java(), kafka_jars(self.version), home, main, [str(home / "zoo.cfg")], log_level="INFO")
        self._zookeeper = GuardedProcess(command, home / "zookeeper.log")
        wait_until(lambda: is_listening(self._port), f"ZooKeeper listened; its log is {home / 'zookeeper.log'}")

    def stop_zookeeper(self) -> None:
        """Kills ZooKeeper. Brokers keep their metadata until they need it."""
        assert self._zookeeper is not None
        self._zookeeper.kill()
        assert self._zookeeper.wait(_END_S_MAX)

    def _prepare(self) -> None:
        """Writes the settings. In this mode brokers format their storage themselves."""
        nodes = list(self._nodes.values())
        for node in nodes:
            overrides = self._properties | self._broker_properties.get(node.broker_id, {})
            of_kraft = server_properties(node, nodes, {}, overrides)
            address = f"{CLIENT_LISTENER}://{HOST}:{node.ports[CLIENT_LISTENER]}"
            ours = {
                "broker.id": str(node.broker_id),
                "zookeeper.connect": f"{HOST}:{self._port}",
                "zookeeper.session.timeout.ms": str(_SESSION_MS),
                "listeners": address,
                "advertised.listeners": address,
                PROTOCOL: self._protocol,
            }
            others = {name: value for name, value in of_kraft.items() if name not in _OF_KRAFT}
            write_settings(node, others | ours)

    def _launch(self, broker_id: int) -> None:
        """A broker whose earlier session is not over yet would end at once (NodeExistsException)."""
        wait_until(
            lambda: f"/brokers/ids/{broker_id}\n" not in self._dump(), f"the session of broker {broker_id} ended"
        )
        super()._launch(broker_id)

    def _dump(self) -> str:
        """The sessions of ZooKeeper, with their ephemeral nodes."""
        with socket.create_connection((HOST, self._port), timeout=_END_S_MAX) as asked:
            asked.sendall(b"dump")
            return b"".join(iter(lambda: asked.recv(65_536), b"")).decode("utf-8")
