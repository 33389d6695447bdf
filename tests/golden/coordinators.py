"""`python -m tests.golden.coordinators`: what Kafka's own classes compute of ids beyond ASCII, recorded once.

`Coordinators.java` calls `String.hashCode`, `Utils.abs` and `TransactionStateManager.partitionFor` of Kafka's jars
(`txnscan.demo.jars`), and gives each id as UTF-16 code units in hexadecimal. `coordinators.json` has its answers, with
the versions of Java and Kafka that gave them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from txnscan.demo.jars import KAFKA_VERSION, java, kafka_jars
from txnscan.engine.spark.java import major_version
from txnscan.kafka.protocol.coordinator_partition import java_hash_code

FILE = Path(__file__).with_name("coordinators.json")
_SOURCE = Path(__file__).with_name("Coordinators.java")
COUNTS = (1, 3, 6, 50, 97, 1000)
_TIMEOUT_S = 300
_INT_MIN, _INTS = -(2**31), 2**32


def _of_smallest_hash(prefix: str) -> str:
    """An id with this prefix whose hash is Integer.MIN_VALUE: its last letters are the missing digits, to base 31."""
    first, digits = 0xE4, 7
    lacks = (_INT_MIN - java_hash_code(prefix + chr(first) * digits)) % _INTS
    return prefix + "".join(chr(first + lacks // 31**place % 31) for place in reversed(range(digits)))


# Ids by the case that they test. A lone surrogate is half of a character beyond 16 bits: UTF-8 has none.
IDS = (
    *("", "a", "tx-0", "my-transactional-id", "polygenelubricants", "\0", "tx\0x", "\x7f", "\x80"),
    *("tx-é", "tx-e\u0301", "ÄÖÜß", "\xff", "\u0100", "\u07ff", "\u0800", "Ω", "транзакция", "取引", "ﬁ", "\u200b"),
    *("\ud7ff", "\ue000", "\ufffd", "\ufffe", "\uffff", "\uffff" * 9),
    *("😀", "tx-😀", "😀" * 100, "\U00010000", "\U0010ffff", "👨\u200d👩\u200d👧", "🇨🇭", "é😀取\0x"),
    *(_of_smallest_hash("tx-é-"), _of_smallest_hash("😀"), _of_smallest_hash("")),
    *("\ud800", "\udbff", "\udc00", "\udfff", "x\ud800y", "\udcff", "\udc00\ud800", "\ud83d\ud83d\ude00", "😀\ude00"),
)


@dataclass(frozen=True, slots=True)
class Computed:
    """Kafka's answers. utf_16: the id. partitions: by number of partitions. at_broker_utf_16: the id as a broker gets
    it from Java's client, which writes UTF-8.
    """

    utf_16: str
    hash_code: int
    abs: int
    partitions: dict[str, int]
    at_broker_utf_16: str


def units(text: str) -> str:
    """The UTF-16 code units of a text, in hexadecimal."""
    return text.encode("utf-16-be", "surrogatepass").hex()


def text_of(utf_16: str) -> str:
    """The text of these code units."""
    return bytes.fromhex(utf_16).decode("utf-16-be", "surrogatepass")


def computed() -> list[Computed]:
    """The values that Kafka's classes compute now. Needs Java's compiler, and fetches Kafka's jars once."""
    command = [str(java()), "-cp", f"{kafka_jars()}/*", str(_SOURCE), *map(str, COUNTS)]
    asked = "".join(f"{units(one)}\n" for one in IDS)
    ran = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    lines = ran.stdout.splitlines()
    return [_computed(one, line.split()) for one, line in zip(IDS, lines, strict=True)]


def _computed(text: str, answer: list[str]) -> Computed:
    hash_code, positive, *partitions, at_broker = answer
    by_count = dict(zip(map(str, COUNTS), map(int, partitions), strict=True))
    return Computed(units(text), int(hash_code), int(positive), by_count, "" if at_broker == "-" else at_broker)


def recorded() -> list[Computed]:
    """The recorded values."""
    content: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
    return [Computed(**one) for one in content["ids"]]


def main() -> None:
    """Records."""
    made_by = {
        "made_by": "python -m tests.golden.coordinators",
        "kafka": KAFKA_VERSION,
        "java": major_version(str(java())),
    }
    ids = ",\n".join(json.dumps(asdict(one)) for one in computed())
    FILE.write_text(f'{json.dumps(made_by)[:-1]}, "ids": [\n{ids}\n]}}\n', "utf-8")
    sys.stdout.write(f"{FILE}: {len(IDS)} ids\n")


if __name__ == "__main__":
    main()
