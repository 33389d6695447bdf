"""The result of `gate`: a line for each topic, and the same as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from txnscan.config import printable
from txnscan.kafka.units import plural
from txnscan.report.output import write_line
from txnscan.report.plain import error_object, fall_object, iso_utc
from txnscan.shell import command, options_of
from txnscan.sweeps.restored import HISTORY_WENT_BACK

if TYPE_CHECKING:
    from txnscan.sweeps.gate import Gate
    from txnscan.waiting.complete_up_to import TopicRead

# At most this many partitions of a topic are named to people. JSON has all.
_NAMED_MAX = 5


def gate_object(gate: Gate, principal: str) -> dict[str, Any]:
    """The result as one JSON object. Names and codes are a contract."""
    return {
        "gate": {
            "cluster_id": gate.cluster_id,
            "until": iso_utc(gate.until_ms),
            "state": gate.state.value,
            "went_back": fall_object(gate.fall),
        },
        "topics": [_topic_object(read, gate.until_ms) for read in gate.topics],
        "errors": [error_object(error, principal) for error in gate.errors],
    }


def _topic_object(read: TopicRead, until_ms: int) -> dict[str, Any]:
    up_to_ms = read.complete_up_to_ms
    return {
        "topic": read.topic,
        "topic_id": read.topic_id or None,
        "state": read.state(until_ms).value,
        "complete_up_to": None if up_to_ms is None else iso_utc(up_to_ms),
        # A topic that no sweep has read has no time.
        "read_at": iso_utc(read.read_at_ms) if read.read_at_ms else None,
        "partitions": len(read.partitions),
        "blocked": [
            {
                "partition": one.partition,
                "last_stable_offset": one.last_stable_offset,
                "high_watermark": one.high_watermark,
                "complete_up_to": None if one.mark is None else iso_utc(one.mark.read_at_ms),
            }
            for one in read.holding(until_ms)
            if one.blocked_records
        ],
        "not_observed": [{"partition": index, "code": code} for index, code in read.failures.items()],
    }


def print_gate(found: Mapping[str, Any], connection: str = "--bootstrap-server HOST:PORT") -> None:
    """The result on stdout. found: as `gate_object` gives it. connection: the options that reach the cluster."""
    fell = found["gate"]["went_back"]
    lines = [] if fell is None else [f"{HISTORY_WENT_BACK}: {fell['reason']}. No stored read counts.".capitalize()]
    lines.append(f"Until {found['gate']['until']}: {found['gate']['state']}")
    for topic in found["topics"]:
        lines.append(f"  {topic['topic']}: {topic['state']}{_up_to(topic)}")
        if topic["read_at"] is None:
            named = options_of(complete_up_to=topic["topic"])
            lines.append(f"    no stored sweep read this topic; sweep with {named}")
            continue
        blocked = topic["blocked"]
        for one in blocked[:_NAMED_MAX]:
            waiting = plural(one["high_watermark"] - one["last_stable_offset"], "offset")
            lines.append(
                f"    partition {one['partition']}: {waiting} above the last stable offset {one['last_stable_offset']}"
            )
        for one in topic["not_observed"][:_NAMED_MAX]:
            where = "topic" if one["partition"] is None else f"partition {one['partition']}"
            lines.append(f"    {where}: {one['code']}")
        more = max(len(blocked) - _NAMED_MAX, 0) + max(len(topic["not_observed"]) - _NAMED_MAX, 0)
        if more:
            lines.append(f"    and {plural(more, 'partition')} more")
        if blocked:
            partition = {"topic": topic["topic"], "partition": blocked[0]["partition"]}
            lines.append(f"    Next: {command('txnscan explain', connection, **partition)}")
    write_line("\n".join(map(printable, lines)))


def _up_to(topic: Mapping[str, Any]) -> str:
    """The time up to which a topic is complete, as the end of its line. Nothing if the topic was not observed."""
    if topic["complete_up_to"] is not None:
        return f", up to {topic['complete_up_to']}"
    return "; no read shows a time up to which it is complete" if topic["blocked"] else ""
