"""A small Kafka cluster in KRaft mode: real brokers as child processes, on 127.0.0.1 only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from txnscan.demo.errors import DemoError
from txnscan.demo.jars import KAFKA_VERSION, has_transactions_v2, java, kafka_jars
from txnscan.demo.node import (
    CLIENT_LISTENER,
    Node,
    format_storage,
    java_command,
    kafka_archive,
    likely_reason,
    server_properties,
    write_settings,
)
from txnscan.demo.ports import HOST, choose_ports, is_listening
from txnscan.demo.process import GuardedProcess
from txnscan.demo.requests import TIMEOUT_MS_MAX, Wire
from txnscan.demo.wait import wait_until
from txnscan.kafka.protocol.metadata import read_metadata
from txnscan.kafka.topology import Broker

_NOTHING: Mapping[str, str] = MappingProxyType({})
_NOTHING_BY_BROKER: Mapping[int, Mapping[str, str]] = MappingProxyType({})
_START_S_MAX = 120.0
_STOP_S_MAX = 60.0
_KILL_S_MAX = 10.0


class KafkaCluster:
    """Brokers 1 to n, each also a controller. Use it as a context manager.

    directory: contains all files, logs included; the next start uses them again.
    properties, broker_properties: Kafka's own settings for all brokers, and by broker id; they override the demo's
        settings.
    listeners: further listeners, security protocol by name, such as {"SASL_SSL": "SASL_SSL"}; their other settings
        (listener.name.sasl_ssl...) are given as properties.
    base_port: the first of consecutive ports; by default, free ports are chosen.
    version: of Kafka; 3.5 (transactions v1, no verification), 4.3 and 4.4 are tested.
    jvm_options: for the brokers' JVMs, instead of the class data archive.
    add_scram: credentials in the syntax of Kafka's storage tool, "SCRAM-SHA-512=[name=...,password=...]".
    """

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 3,
        properties: Mapping[str, str] = _NOTHING,
        broker_properties: Mapping[int, Mapping[str, str]] = _NOTHING_BY_BROKER,
        listeners: Mapping[str, str] = _NOTHING,
        base_port: int | None = None,
        add_scram: Sequence[str] = (),
        version: str = KAFKA_VERSION,
        jvm_options: Sequence[str] = (),
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.directory = directory.absolute()
        self.version = version
        self.broker_ids = tuple(range(1, brokers + 1))
        self._properties = dict(properties)
        self._broker_properties = {broker_id: dict(of_one) for broker_id, of_one in broker_properties.items()}
        self._listeners = dict(listeners)
        self._base_port = base_port
        self._add_scram = tuple(add_scram)
        self._jvm_options = tuple(jvm_options)
        self._say = say
        self._nodes: dict[int, Node] = {}
        self._processes: dict[int, GuardedProcess] = {}
        self._log_starts: dict[int, int] = {}

    # --- the cluster as a whole

    def start(self) -> None:
        """Starts all brokers, and waits until each knows all others. If it raises DemoError, no broker is left
        running.
        """
        if self._processes:
            raise DemoError("the brokers are running already")
        try:
            self._java, self._jars = java(), kafka_jars(self.version, say=self._say)
            # Keep the addresses, so that clients find the cluster again after a restart.
            self._nodes = self._nodes or self._lay_out()
            self._prepare()
            for broker_id in self.broker_ids:
                self._launch(broker_id)
            self.wait_for_brokers(self.broker_ids)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kills all brokers at once. The next start recovers their logs."""
        # Not SIGTERM: in a shutdown of all brokers, the last ones would wait for controllers that have ended.
        processes = list(self._processes.values())
        for process in processes:
            process.kill()
        self._processes.clear()
        stubborn = [process.log for process in processes if not process.wait(_KILL_S_MAX)]
        if stubborn:
            raise DemoError(f"a broker could not be ended; its log is {stubborn[0]}")

    def __enter__(self) -> KafkaCluster:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """The brokers' addresses for clients without security."""
        return self.bootstrap_servers_of(CLIENT_LISTENER)

    def bootstrap_servers_of(self, listener: str) -> str:
        """The brokers' addresses at this listener."""
        return ",".join(broker.address for broker in self.brokers_of(listener))

    @property
    def brokers(self) -> tuple[Broker, ...]:
        """The brokers at the listener without security, whether they run or not."""
        return self.brokers_of(CLIENT_LISTENER)

    def brokers_of(self, listener: str) -> tuple[Broker, ...]:
        """The brokers at this listener, whether they run or not."""
        return tuple(Broker(node.broker_id, HOST, node.ports[listener]) for node in self._nodes.values())

    @property
    def jars(self) -> Path:
        """Kafka's jars."""
        return self._jars

    def wire(self) -> Wire:
        """New connections to the brokers. Close them."""
        return Wire(
            self.brokers,
            transactions_v2=has_transactions_v2(self.version),
            transaction_timeout_ms=int(self._properties.get("transaction.max.timeout.ms", TIMEOUT_MS_MAX)),
        )

    def data_of(self, broker_id: int) -> Path:
        """The directory with a broker's partitions."""
        return self._nodes[broker_id].data

    def log_of(self, broker_id: int) -> Path:
        """The file with a broker's output, from all its starts."""
        return self._nodes[broker_id].log

    # --- one broker

    def is_running(self, broker_id: int) -> bool:
        """Whether the broker's process exists, even if it is paused."""
        process = self._processes.get(broker_id)
        return process is not None and process.exit_status is None

    def start_broker(self, broker_id: int) -> None:
        """Starts a stopped broker, and waits until the other brokers know it again."""
        if self.is_running(broker_id):
            raise DemoError(f"broker {broker_id} is running already")
        self._launch(broker_id)
        self.wait_for_brokers(self.running)

    def stop_broker(self, broker_id: int) -> None:
        """Sends SIGTERM: the broker moves its leaderships to other brokers and ends."""
        self._running(broker_id).terminate()
        self._await_end(broker_id, _STOP_S_MAX)

    def kill_broker(self, broker_id: int) -> None:
        """Sends SIGKILL. The other brokers notice it when the broker's session times out; see `wait_for_brokers`."""
        self._running(broker_id).kill()
        self._await_end(broker_id, _KILL_S_MAX)

    def pause_broker(self, broker_id: int) -> None:
        """Sends SIGSTOP: the broker keeps its connections, but answers no requests."""
        self._running(broker_id).pause()

    def resume_broker(self, broker_id: int) -> None:
        """Sends SIGCONT."""
        self._running(broker_id).resume()

    @property
    def running(self) -> tuple[int, ...]:
        """The ids of the brokers whose processes exist."""
        return tuple(broker_id for broker_id in self.broker_ids if self.is_running(broker_id))

    # --- conditions

    def wait_for_brokers(self, broker_ids: Sequence[int], timeout_s: float = _START_S_MAX) -> None:
        """Waits until each of these brokers knows exactly these brokers."""
        names = ", ".join(map(str, broker_ids))
        with self.wire() as wire:
            for broker_id in broker_ids:
                wait_until(
                    lambda asked=broker_id: self._knows(wire, asked, set(broker_ids)),  # type: ignore[misc]
                    f"broker {broker_id} knew the brokers {names}; its log is {self.log_of(broker_id)}",
                    timeout_s,
                )

    def wait_for_leader(self, topic: str, partition: int, leader: int, timeout_s: float = 60.0) -> None:
        """Waits until every running broker has this broker as the partition's leader (-1: no leader)."""
        with self.wire() as wire:
            for broker_id in self.running:
                wait_until(
                    lambda asked=broker_id: leader in _leaders(wire, asked, topic, partition),  # type: ignore[misc]
                    f"the leader of {topic}-{partition} was {leader}",
                    timeout_s,
                )

    # --- inside

    def _lay_out(self) -> dict[int, Node]:
        names = (CLIENT_LISTENER, "CONTROLLER", *self._listeners)
        count = len(self.broker_ids)
        # With `base_port`, the client ports come first: base, base + 1, base + 2.
        ports = choose_ports(count * len(names), self._base_port)
        return {
            broker_id: Node(
                broker_id,
                self.directory / f"broker-{broker_id}",
                {name: ports[place * count + index] for place, name in enumerate(names)},
            )
            for index, broker_id in enumerate(self.broker_ids)
        }

    def _prepare(self) -> None:
        nodes = list(self._nodes.values())
        for node in nodes:
            overrides = self._properties | self._broker_properties.get(node.broker_id, {})
            write_settings(node, server_properties(node, nodes, self._listeners, overrides))
        if not all(node.is_formatted for node in nodes):
            format_storage(self._java, self._jars, nodes, self._add_scram)

    def _launch(self, broker_id: int) -> None:
        node = self._nodes[broker_id]
        self._log_starts[broker_id] = node.log.stat().st_size if node.log.exists() else 0
        command = java_command(
            self._java,
            self._jars,
            node.directory,
            "kafka.Kafka",
            [str(node.settings_file)],
            log_level="INFO",
            options=self._jvm_options or kafka_archive(self._java, self._jars).options,
        )
        self._processes[broker_id] = GuardedProcess(command, node.log)

    def _knows(self, wire: Wire, asked: int, wanted: set[int]) -> bool:
        for broker_id in sorted(wanted):
            self._require_running(broker_id)
        if not is_listening(self._nodes[asked].ports[CLIENT_LISTENER]):
            return False
        return {broker.broker_id for broker in read_metadata(wire.send, asked, []).brokers} == wanted

    def _require_running(self, broker_id: int) -> None:
        if not self.is_running(broker_id):
            node = self._nodes[broker_id]
            reason = likely_reason(node.log, self._log_starts.get(broker_id, 0))
            raise DemoError(f"broker {broker_id} does not run: {reason}; see {node.log}")

    def _running(self, broker_id: int) -> GuardedProcess:
        self._require_running(broker_id)
        return self._processes[broker_id]

    def _await_end(self, broker_id: int, timeout_s: float) -> None:
        if not self._processes[broker_id].wait(timeout_s):
            raise DemoError(f"broker {broker_id} did not end within {timeout_s:.0f} s; see {self.log_of(broker_id)}")
        del self._processes[broker_id]


def _leaders(wire: Wire, asked: int, topic: str, partition: int) -> list[int]:
    view = read_metadata(wire.send, asked, [topic])
    return [found.leader for found in view.partitions if found.key == (topic, partition)]
