"""`python -m tests.golden.errors.live`: what five clients and a broker print when a state is made, recorded once.

The program starts a broker, and makes each state once with each client: Java, librdkafka (confluent-kafka),
kafka-python, franz-go and sarama. `lines.json` has the lines that name an error, by client and state. Times, ports and
member ids in them are masked.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kafka.protocol.admin import CreateAclsRequest

from tests.brokers.principals import Acl, deny
from tests.golden.errors import CONFLUENT_KAFKA, written
from txnscan.demo.admin import create_topic
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.jars import java, kafka_jars
from txnscan.demo.node import java_command

HERE = Path(__file__).parent
FILE = HERE / "lines.json"
STATES = (
    *("setting", "misuse", "too_large", "denied_id", "denied_topic", "denied_group", "group"),
    *("fenced", "fenced_commit", "timed_out", "expired", "unreachable"),
)
CLIENTS = ("java", "librdkafka", "kafka-python", "franz-go", "sarama")
_PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transactional.id.expiration.ms": "5000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
    "producer.id.expiration.ms": "3000",
    "auto.create.topics.enable": "false",
}
_ANYONE = "User:ANONYMOUS"
_TIMEOUT_S = 60
_NOWHERE = "127.0.0.1:1"
# A line of a log that is about an error; the lines of a stack are left out.
_SHOWN = re.compile(
    r"(?i)error|exception|fenced|fail|refus|timed out|timeout expired|rollback|Initialized transactionalId|expired"
)
_NO_ERROR = re.compile(
    r"Live\.java:\d+: warning|isFenced: false\)|Not an error|successful to |^\s*[\w.]+ = |RegisterBrokerRecord"
)
_LINES_MAX = 8
_STACK = re.compile(r"^\s*(?:at |\.\.\. \d+ more|File |self\.|one\.|make\(\)|raise |\^|_*$)")
_MASKS = (
    (re.compile(r"\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?"), "2026-11-27 20:00:00"),
    (re.compile(r"^%(\d)\|[\d.]+\|"), r"%\1|1795756486.569|"),
    (re.compile(r"127\.0\.0\.1:\d{2,5}"), "127.0.0.1:9092"),
    (re.compile(r"/tmp/[^\s:)]+"), "/tmp/x"),
    (re.compile(r"0x[0-9a-f]{6,}"), "0x7f"),
)


@dataclass(frozen=True, slots=True)
class Shown:
    """A line that a client, or the broker, printed in this state."""

    client: str
    state: str
    line: str


def name_of(client: str, state: str) -> str:
    """The transactional id of a client in a state."""
    return f"orders.{CLIENTS.index(client)}-{STATES.index(state)}"


def masked(line: str) -> str:
    """The line without what differs in each run."""
    for pattern, instead in _MASKS:
        line = pattern.sub(instead, line)
    return line.rstrip()


def _commands(work: Path) -> Mapping[str, list[str]]:
    """By client, the command that takes BOOTSTRAP STATE ID."""
    subprocess.run([sys.executable, "-m", "venv", str(work / "venv")], check=True)
    pip = [str(work / "venv/bin/pip"), "install", "--quiet", f"confluent-kafka=={CONFLUENT_KAFKA}"]
    subprocess.run(pip, check=True)
    go = work / "go"
    go.mkdir()
    shutil.copy(HERE / "main.go", go)
    shutil.copy(HERE.parent / "go.mod", go)
    for words in (["mod", "tidy"], ["build", "-o", str(work / "live"), "."]):
        subprocess.run(["go", *words], check=True, cwd=go)
    return {
        "java": java_command(java(), kafka_jars(), work, str(HERE / "Live.java"), [], log_level="INFO"),
        "librdkafka": [str(work / "venv/bin/python"), str(HERE / "of_librdkafka.py")],
        "kafka-python": [sys.executable, str(HERE / "of_kafka_python.py")],
        "franz-go": [str(work / "live"), "franz-go"],
        "sarama": [str(work / "live"), "sarama"],
    }


def _printed(command: list[str], bootstrap: str, state: str, name: str) -> list[str]:
    where = _NOWHERE if state == "unreachable" else bootstrap
    arguments = [*command, where, "plain" if state == "unreachable" else state, name]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        output, _ = process.communicate(timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
    return output.splitlines()


def _lines(output: list[str]) -> list[str]:
    wanted = (masked(line) for line in output if _SHOWN.search(line) and not _STACK.match(line))
    return [line for line in dict.fromkeys(wanted) if not _NO_ERROR.search(line)][:_LINES_MAX]


def made() -> list[Shown]:
    """All lines. Starts a broker, and takes some minutes."""
    found: list[Shown] = []
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        commands = _commands(work)
        with KafkaCluster(work / "kafka", brokers=1, properties=_PROPERTIES) as cluster:
            wire = cluster.wire()
            create_topic(wire, "plain", [[1]])
            create_topic(wire, "denied", [[1]])
            create_topic(wire, "small", [[1]], {"max.message.bytes": "1000"})
            rules = [
                *(
                    deny("Write", "TransactionalId", name_of(client, "denied_id"), principal=_ANYONE)
                    for client in CLIENTS
                ),
                Acl("Describe", "Topic", "denied", principal=_ANYONE),
                deny("Write", "Topic", "denied", principal=_ANYONE),
                deny("Read", "Group", "denied-group", principal=_ANYONE),
            ]
            creations = [CreateAclsRequest.AclCreation(**rule.fields) for rule in rules]
            results = wire.send(wire.any_broker(), CreateAclsRequest(creations=creations)).results
            assert [result.error_code for result in results] == [0] * len(rules)

            def of(client: str) -> list[Shown]:
                each = []
                for state in STATES:
                    output = _printed(commands[client], cluster.bootstrap_servers, state, name_of(client, state))
                    each += [Shown(client, state, line) for line in _lines(output)]
                return each

            with ThreadPoolExecutor(2) as pool:
                for some in pool.map(of, CLIENTS):
                    found += some
            log = cluster.log_of(1).read_text("utf-8", "replace").splitlines()
            about = [line for line in log if "transaction" in line.lower() or "producer" in line.lower()]
            found += [Shown("broker", "log", line) for line in _of_broker(about)]
    return found


def _of_broker(lines: list[str]) -> list[str]:
    """The first lines of each form: without the names and numbers they are the same."""
    forms: dict[str, str] = {}
    for line in lines:
        if _SHOWN.search(line):
            form = re.sub(r"\S*\d\S*", "", line)
            forms.setdefault(form, masked(line))
    return [line for line in forms.values() if not _NO_ERROR.search(line)]


def recorded() -> list[Shown]:
    """The recorded lines."""
    rows: list[dict[str, Any]] = json.loads(FILE.read_text("utf-8"))
    return [Shown(**row) for row in rows]


def main() -> None:
    """Records."""
    rows = made()
    FILE.write_text(written(asdict(row) for row in rows), "utf-8")
    sys.stdout.write(f"{FILE}: {len(rows)} lines\n")
