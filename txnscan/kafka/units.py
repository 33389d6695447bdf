"""Durations, sizes, counts and lists in words, and whole numbers from words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_UNITS_S = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_UNITS_BYTES = (("TB", 1 << 40), ("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10))
_WHOLE = re.compile(r"-?[0-9]{1,19}")
# The greatest numbers of Kafka's protocol: of ids of producers and offsets, of partitions and brokers, of epochs.
LONG_MAX, INT_MAX, SHORT_MAX = 2**63 - 1, 2**31 - 1, 2**15 - 1


def whole_number(text: str | None) -> int | None:
    """The whole number of 64 bits that a peer or a file has as text, as Java writes it. None for any other text: Python
    reads also `1_0` and other digits, and raises a ValueError for thousands of them.
    """
    if text is None or _WHOLE.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -LONG_MAX - 1 <= number <= LONG_MAX else None


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


def brokers_named(broker_ids: Iterable[int]) -> str:
    """Brokers by their ids, in this order: "broker 1", "brokers 1, 2 and 3"."""
    *others, last = map(str, broker_ids)
    return f"brokers {', '.join(others)} and {last}" if others else f"broker {last}"


def first_of(items: Sequence[str], most: int, *, more: str = "more", separator: str = ", ") -> str:
    """The first items, and the number of the others: "a, b and 3 more". more: what the others are called."""
    others = len(items) - most
    joint = "" if separator == ", " else separator.strip()
    return separator.join(items[:most]) + (f"{joint} and {others:,} {more}" if others > 0 else "")
