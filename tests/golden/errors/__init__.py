"""`python -m tests.golden.errors`: what five clients print for each error of Kafka, recorded once.

| client | read from |
|---|---|
| Java | `org.apache.kafka.common.protocol.Errors` of the jars of three Kafka versions (`ProtocolErrors.java`) |
| librdkafka | its table, through confluent-kafka, in an environment of its own |
| kafka-python | `kafka.errors` of the locked environment |
| franz-go, sarama | `kerr.ErrorForCode` and `sarama.KError` (`main.go`) |

`printed.json` has one row for each text. `txnscan/explain/kafka_errors.json` has the names and texts by which `explain`
recognises each error; `table` derives it from the rows.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from txnscan.demo.jars import KAFKA_VERSION, NEXT_KAFKA_VERSION, OLD_KAFKA_VERSION, java, kafka_jars

FILE = Path(__file__).with_name("printed.json")
TABLE = Path(__file__).parents[3] / "txnscan" / "explain" / "kafka_errors.json"
CONFLUENT_KAFKA = "2.16.1"
_JAVA_SOURCE = Path(__file__).with_name("ProtocolErrors.java")
_GO = (Path(__file__).with_name("main.go"), Path(__file__).with_name("go.mod"))
_TIMEOUT_S = 600
# The codes of librdkafka's own errors end below this one.
_LOCAL_MAX = -137
_OF_LIBRDKAFKA = """
import confluent_kafka
for code in range(-200, 200):
    one = confluent_kafka.KafkaError(code)
    if not one.str().startswith("Err-"):
        print(code, one.name(), one.str(), repr(one), sep="\\t")
"""
_NO_ERRORS = ("NONE", "NO_ERROR")
# Names that are common in texts about other things.
NO_WORDS = frozenset({"TimeoutException", "UNKNOWN", "UnknownError"})
# A shorter text may be part of a text about something else.
_TEXT_LENGTH_MIN = 24
_UNKNOWN_TO_SARAMA = "unknown error, how did this happen?"
_PREFIX = re.compile(r"^(?:Local|Broker|kafka server): ")


@dataclass(frozen=True, slots=True)
class Printed:
    """One error as a client prints it. name: in `Errors`, or of librdkafka's own error. words: names of it in a text.
    text: its message. line: as the client prints both.
    """

    client: str
    code: int
    name: str
    words: tuple[str, ...]
    text: str
    line: str


def _lines(*command: str, cwd: Path | None = None) -> Iterator[list[str]]:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True, cwd=cwd)
    yield from (line.split("\t") for line in ran.stdout.splitlines())


def _of_java(version: str) -> Iterator[Printed]:
    for code, name, exception, text in _lines(str(java()), "-cp", f"{kafka_jars(version)}/*", str(_JAVA_SOURCE)):
        line = f"org.apache.kafka.common.errors.{exception}: {text}"
        yield Printed(f"Java {version}", int(code), name, (name, exception), text, line)


def _of_librdkafka(names: dict[int, str]) -> Iterator[Printed]:
    with tempfile.TemporaryDirectory() as work:
        subprocess.run([sys.executable, "-m", "venv", work], check=True, timeout=_TIMEOUT_S)
        pip = (f"{work}/bin/pip", "install", "--quiet", f"confluent-kafka=={CONFLUENT_KAFKA}")
        subprocess.run(pip, check=True, timeout=_TIMEOUT_S)
        for code, name, text, line in _lines(f"{work}/bin/python", "-c", _OF_LIBRDKAFKA):
            known = name if int(code) <= _LOCAL_MAX else names.get(int(code))
            if known is not None:
                yield Printed(f"confluent-kafka {CONFLUENT_KAFKA}", int(code), known, (name,), text, line)


def _of_kafka_python(names: dict[int, str]) -> Iterator[Printed]:
    import kafka
    import kafka.errors

    for word, one in vars(kafka.errors).items():
        code = getattr(one, "errno", None)
        if code in names:
            yield Printed(f"kafka-python {kafka.__version__}", code, names[code], (word, one.message), "", str(one()))


def _of_go(names: dict[int, str]) -> Iterator[Printed]:
    with tempfile.TemporaryDirectory() as work:
        for source in _GO:
            shutil.copy(source, work)
        # The hashes of the modules are not kept: this program only prints texts.
        subprocess.run(["go", "mod", "tidy"], check=True, timeout=_TIMEOUT_S, cwd=work)
        for client, code, name, text in _lines("go", "run", ".", cwd=Path(work)):
            known = names.get(int(code))
            if known is not None:
                message = text.removeprefix(f"{name}: ") if client == "franz-go" else text
                yield Printed(client, int(code), known, (name,) if name else (), message, text)


def printed() -> list[Printed]:
    """The errors of all clients. Needs Java, Go, and the package confluent-kafka, which it installs for itself."""
    versions = (NEXT_KAFKA_VERSION, KAFKA_VERSION, OLD_KAFKA_VERSION)
    java_rows = {(row.name, row.line): row for version in reversed(versions) for row in _of_java(version)}
    found = list(java_rows.values())
    names = {row.code: row.name for row in found}
    found += [*_of_librdkafka(names), *_of_kafka_python(names), *_of_go(names)]
    return [row for row in found if row.name not in _NO_ERRORS]


def recorded() -> list[Printed]:
    """The recorded rows."""
    rows: list[dict[str, Any]] = json.loads(FILE.read_text("utf-8"))
    return [Printed(**{**row, "words": tuple(row["words"])}) for row in rows]


def table(rows: Iterable[Printed]) -> dict[str, dict[str, Any]]:
    """By name of an error: its code, the message of the newest client, and the words and texts that show it."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        one = found.setdefault(row.name, {"code": row.code, "message": "", "words": [], "texts": []})
        if row.client.startswith("Java") or not one["message"]:
            one["message"] = row.text
        words = (word for word in row.words if word and word not in NO_WORDS)
        one["words"] += [word for word in words if word not in one["words"]]
        without = _PREFIX.sub("", row.text)
        text = (without if len(without) >= _TEXT_LENGTH_MIN else row.text).lower().rstrip(".")
        usable = len(without) >= _TEXT_LENGTH_MIN or without != row.text
        if usable and text not in one["texts"] and not text.startswith(_UNKNOWN_TO_SARAMA):
            one["texts"].append(text)
    return found


def written(rows: Iterable[Any]) -> str:
    """Rows as JSON, one a line."""
    return "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n"


def main() -> None:
    """Records."""
    rows = printed()
    FILE.write_text(written(asdict(row) for row in rows), "utf-8")
    TABLE.write_text(table_text(rows), "utf-8")
    sys.stdout.write(f"{FILE}: {len(rows)} rows\n")


def table_text(rows: Iterable[Printed]) -> str:
    """The content of the table's file."""
    return written({"name": name, **one} for name, one in table(rows).items())
