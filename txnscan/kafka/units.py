"""Durations, sizes, counts and lists in words."""

from __future__ import annotations

from collections.abc import Sequence

_UNITS_S = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_UNITS_BYTES = (("TB", 1 << 40), ("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10))


def duration(duration_ms: int) -> str:
    """A duration for people, in its two largest units: "45 s", "5 min 45 s", "2 d 3 h". Smaller units are cut off. Only
    a duration below a second is in milliseconds.
    """
    if abs(duration_ms) < 1_000:
        return f"{duration_ms} ms"
    rest = abs(duration_ms) // 1_000
    words: list[tuple[int, str]] = []
    for size, unit in _UNITS_S:
        count, rest = divmod(rest, size)
        if count or words:
            words.append((count, unit))
    said = " ".join(f"{count} {unit}" for count, unit in words[:2] if count)
    return said if duration_ms > 0 else f"-{said}"


def size(size_bytes: int) -> str:
    """A number of bytes for people: "1.5 GB" is 1.5 times 2^30 bytes."""
    for unit, bytes_per_unit in _UNITS_BYTES:
        if size_bytes >= bytes_per_unit:
            return f"{size_bytes / bytes_per_unit:.1f} {unit}"
    return f"{size_bytes} bytes"


def plural(count: int, what: str) -> str:
    """A count with its noun, such as "1 record" and "2,000 records"."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def first_of(items: Sequence[str], most: int, *, more: str = "more", separator: str = ", ") -> str:
    """The first items, and the number of the others: "a, b and 3 more". more: what the others are called."""
    others = len(items) - most
    joint = "" if separator == ", " else separator.strip()
    return separator.join(items[:most]) + (f"{joint} and {others:,} {more}" if others > 0 else "")
