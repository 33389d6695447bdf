"""The files of one broker: its settings, its formatted storage, its log, and the reason of a failed start."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import javaproperties

from txnscan.demo.errors import DemoError
from txnscan.demo.ports import HOST
from txnscan.engine.spark.archive import Archive

CLIENT_LISTENER = "PLAINTEXT"
_CONTROLLER_LISTENER = "CONTROLLER"
# Fast to start, small, and with little interference between brokers on two cores.
_JVM_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Xmx320m",
    "-Djava.awt.headless=true",
    "-Dlog4j2.disable.jmx=true",
)
_LOG4J = """\
<Configuration status="WARN" shutdownHook="disable">
  <Appenders>
    <Console name="out" target="{target}"><PatternLayout pattern="[%d] %p %m (%c)%n%throwable"/></Console>
  </Appenders>
  <Loggers><Root level="{level}"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"""
_FORMAT_S_MAX = 120
_PROBLEM = re.compile(r"^(?:\[[^\]]*\] (?:ERROR|FATAL) |.*?\b(?:[a-z]+\.)+[A-Z]\w*(?:Exception|Error): )(?P<what>.*)")


@dataclass(frozen=True, slots=True)
class Node:
    """The directory and ports of one broker. `ports`: by listener name, including the controller's."""

    broker_id: int
    directory: Path
    ports: Mapping[str, int]

    @property
    def settings_file(self) -> Path:
        return self.directory / "server.properties"

    @property
    def data(self) -> Path:
        """The parent directory of its partitions' directories."""
        return self.directory / "data"

    @property
    def log(self) -> Path:
        return self.directory / "broker.log"

    @property
    def is_formatted(self) -> bool:
        return (self.data / "meta.properties").is_file()


def java_command(
    java: Path,
    jars: Path,
    scratch: Path,
    main: str,
    arguments: Sequence[str],
    *,
    log_level: str,
    to: str = "SYSTEM_OUT",
    options: Sequence[str] = (),
) -> list[str]:
    """A command line that runs a class of Kafka and logs to SYSTEM_OUT or SYSTEM_ERR. options: further JVM options."""
    config = scratch / f"log4j2-{log_level.lower()}-{to.lower()}.xml"
    if not config.exists():
        config.write_text(_LOG4J.format(level=log_level, target=to))
    settings = [*_JVM_OPTIONS, *options, f"-Dlog4j2.configurationFile={config}"]
    return [str(java), *settings, "-cp", f"{jars}/*", main, *arguments]


def kafka_archive(java: Path, jars: Path) -> Archive:
    """The class data archive of brokers with these jars. Kafka's tools run without an archive, as everywhere."""
    return Archive(jars.name, java, tuple(sorted(jars.glob("*.jar"))))


def server_properties(
    node: Node, nodes: Sequence[Node], listeners: Mapping[str, str], overrides: Mapping[str, str]
) -> dict[str, str]:
    """The settings of one broker in combined mode. `overrides` take precedence.

    These are Kafka's defaults, except for settings that make a small cluster start quickly: few threads, few partitions
    of the internal topics, no wait for further members of a group, and a broker that ended may return after 4 s instead
    of 9 s (until its session times out, it is refused as a duplicate, even after a clean shutdown). For transactions,
    only the number of partitions and replicas of their log differs.
    """
    replicas = min(3, len(nodes))
    in_sync = min(2, replicas)
    protocols = {CLIENT_LISTENER: "PLAINTEXT", _CONTROLLER_LISTENER: "PLAINTEXT", **listeners}
    addresses = {name: f"{name}://{HOST}:{port}" for name, port in node.ports.items()}
    voters = ",".join(f"{n.broker_id}@{HOST}:{n.ports[_CONTROLLER_LISTENER]}" for n in nodes)
    properties = {
        "process.roles": "broker,controller",
        "node.id": node.broker_id,
        "controller.quorum.voters": voters,
        "controller.listener.names": _CONTROLLER_LISTENER,
        "inter.broker.listener.name": CLIENT_LISTENER,
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "listeners": ",".join(addresses.values()),
        "advertised.listeners": ",".join(a for name, a in addresses.items() if name != _CONTROLLER_LISTENER),
        "log.dirs": node.data,
        "num.network.threads": 2,
        "num.io.threads": 4,
        "background.threads": 2,
        "log.cleaner.dedupe.buffer.size": 8 * 1024 * 1024,
        "broker.heartbeat.interval.ms": 500,
        "broker.session.timeout.ms": 4_000,
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 3,
        "offsets.topic.replication.factor": replicas,
        "share.coordinator.state.topic.num.partitions": 3,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "transaction.state.log.num.partitions": 6,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
    }
    return {name: str(value) for name, value in properties.items()} | dict(overrides)


def write_settings(node: Node, properties: Mapping[str, str]) -> None:
    """Writes the settings file, readable only by this user."""
    node.directory.mkdir(parents=True, exist_ok=True)
    # The settings may contain passwords of extra listeners.
    node.settings_file.touch(mode=0o600)
    node.settings_file.write_text(javaproperties.dumps(dict(properties), timestamp=False), "latin-1")


def format_storage(java: Path, jars: Path, nodes: Sequence[Node], add_scram: Sequence[str]) -> None:
    """Formats the storage of all nodes as one new cluster: once with Kafka's tool, then by copying.

    Most of the tool's run is its start. A copy differs in its node id and, since Kafka 3.7, in the id of its directory.
    """
    first, *others = nodes
    arguments = ["format", "--cluster-id", _new_id(), "--config", str(first.settings_file)]
    for credential in add_scram:
        arguments += ["--add-scram", credential]
    archived = kafka_archive(java, jars).options
    tool = "kafka.tools.StorageTool"
    command = java_command(java, jars, first.directory, tool, arguments, log_level="WARN", options=archived)
    with first.log.open("ab") as output:
        ran = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=_FORMAT_S_MAX, check=False)
    if ran.returncode != 0:
        raise DemoError(f"the brokers' storage could not be formatted: {likely_reason(first.log)}; see {first.log}")
    for node in others:
        shutil.copytree(first.data, node.data)
        meta = node.data / "meta.properties"
        properties = javaproperties.loads(meta.read_text("latin-1"))
        own = {"node.id": str(node.broker_id), "directory.id": _new_id()}
        properties |= {name: value for name, value in own.items() if name in properties}
        meta.write_text(javaproperties.dumps(properties), "latin-1")


def _new_id() -> str:
    """A random id in Kafka's format. It does not begin with a dash, which a command line would take for an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode("ascii")).startswith("-"):
        pass
    return text


def likely_reason(log: Path, from_byte: int = 0) -> str:
    """The error in a broker's log, in the words of the log; or a clause that the log has no error."""
    text = log.read_bytes()[from_byte:].decode("utf-8", "replace") if log.exists() else ""
    if "Address already in use" in text:
        return "a port that it needs was taken meanwhile"
    problems = [match["what"].strip() for line in text.splitlines() if (match := _PROBLEM.match(line))]
    # The last exception is the most precise: causes follow the exceptions that they caused.
    return problems[-1] if problems else "its log does not say why"
