"""Recordings on disk: one file for each Kafka version and part, JSON lines, compressed with xz.

The first line is about the recording. Then comes each distinct body of a request or of an answer, in hex, one to a
line. Then comes each state with its requests: the broker, the API, the version, and the lines of both bodies. To read
one: `xz --decompress --stdout tests/golden/recorded/4.3.1/shape.jsonl.xz`.
"""

from __future__ import annotations

import json
import lzma
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.golden.raw import Asked, Offered

RECORDED = Path(__file__).parent / "recorded"


@dataclass(frozen=True)
class State:
    """The brokers at one moment. label: what was asked, or which step of which script. facts: plain data beside it."""

    label: str
    asked: Sequence[Asked]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recording:
    """Answers of the brokers of one Kafka version. offered: the versions of each API. facts: plain data about all."""

    kafka: str
    part: str
    offered: Offered
    facts: Mapping[str, Any]
    states: Sequence[State]

    def counted(self) -> Counter[int]:
        """How many requests there are, by API."""
        return Counter(asked.api for state in self.states for asked in state.asked)


def file_of(kafka: str, part: str, root: Path = RECORDED) -> Path:
    """The file of a recording."""
    return root / kafka / f"{part}.jsonl.xz"


def write(recording: Recording, root: Path = RECORDED) -> Path:
    """Writes a recording over an earlier one."""
    numbers: dict[bytes, int] = {}
    states = []
    for state in recording.states:
        rows = [
            (a.broker_id, a.api, a.version, *(numbers.setdefault(body, len(numbers)) for body in (a.request, a.answer)))
            for a in state.asked
        ]
        states.append({"state": state.label, "asked": rows, "facts": state.facts})
    head = {
        "kafka": recording.kafka,
        "part": recording.part,
        "bodies": len(numbers),
        "offered": {str(api): versions for api, versions in sorted(recording.offered.items())},
        "facts": recording.facts,
    }
    lines = [json.dumps(head), *(body.hex() for body in numbers), *map(json.dumps, states), ""]
    path = file_of(recording.kafka, recording.part, root)
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_suffix(".new")
    made.write_bytes(lzma.compress("\n".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME))
    made.replace(path)
    return path


def read(kafka: str, part: str, root: Path = RECORDED) -> Recording:
    """The stored recording. Raises OSError if it is missing."""
    lines = lzma.decompress(file_of(kafka, part, root).read_bytes()).decode().splitlines()
    head = json.loads(lines[0])
    bodies = [bytes.fromhex(line) for line in lines[1 : 1 + head["bodies"]]]
    states = []
    for line in lines[1 + head["bodies"] :]:
        one = json.loads(line)
        asked = [Asked(broker, api, version, bodies[r], bodies[a]) for broker, api, version, r, a in one["asked"]]
        states.append(State(one["state"], asked, one["facts"]))
    offered = {int(api): (first, last) for api, (first, last) in head["offered"].items()}
    return Recording(head["kafka"], head["part"], offered, head["facts"], states)
