"""The cause of a symptom: the sentence first, then the evidence, then the next commands; and the same as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from txnscan.config import printable
from txnscan.report.output import write_line
from txnscan.report.plain import iso_utc

if TYPE_CHECKING:
    from txnscan.explain.cause import Explanation

# Times are text in JSON, as in all other commands.
_TIMES = {
    "started_at_ms": "started_at",
    "ends_by_ms": "ends_by",
    "fenced_at_ms": "fenced_at",
    "expired_at_ms": "expired_at",
}


def explained_lines(found: Mapping[str, Any]) -> list[str]:
    """The answer for people, as lines. found: as `explained_object` gives it."""
    lines = [found["sentence"]]
    if found["evidence"]:
        lines += ["", "Evidence:", *(f"  {one}" for one in found["evidence"])]
    if found["next"]:
        lines += ["", "Next:", *(f"  {one}" for one in found["next"])]
    return [printable(line) for line in lines]


def print_explained(cause: Explanation) -> None:
    """The answer on stdout."""
    write_line("\n".join(explained_lines(explained_object(cause))))


def explained_object(cause: Explanation) -> dict[str, Any]:
    """The answer as one JSON object. Names and codes are a contract; a number that a cause does not have is null."""
    numbers = {
        _TIMES.get(name, name): iso_utc(one) if name in _TIMES and one is not None else one
        for name, one in asdict(cause.numbers).items()
    }
    return {
        "cause": cause.code.value,
        "error": cause.error,
        "sentence": cause.sentence,
        "evidence": list(cause.evidence),
        "next": list(cause.next),
        "known_causes": list(cause.known_causes),
        **numbers,
    }
