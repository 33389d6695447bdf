"""Answers of a bounded size. Pure.

An assistant reads a whole answer, and names in it come from the cluster. So the items of each list and the characters
of each text have a limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from txnscan.report.rows import Row

TEXT_MAX = 2_000


def bounded(found: Mapping[str, Any], rows_max: int) -> tuple[dict[str, Any], Counter[str]]:
    """The object with at most `rows_max` items in each list, and the number of items left out, by the path of the list,
    such as "transactions.partitions". A text that was cut ends with "…".
    """
    left_out: Counter[str] = Counter()

    def cut(value: Any, path: str) -> Any:
        if isinstance(value, Mapping):
            return {name: cut(one, f"{path}.{name}" if path else str(name)) for name, one in value.items()}
        if isinstance(value, list | tuple):
            left_out[path] += max(len(value) - rows_max, 0)
            return [cut(one, path) for one in value[:rows_max]]
        if isinstance(value, str) and len(value) > TEXT_MAX:
            return f"{value[: TEXT_MAX - 1]}…"
        return value

    kept = {name: cut(one, name) for name, one in found.items()}
    return kept, +left_out


@dataclass
class FirstRows:
    """Keeps the first rows, and counts the rest. See `report.rows.Rows`."""

    rows_max: int
    kept: list[Row] = field(default_factory=list)
    left_out: int = 0

    def write(self, rows: Sequence[Row]) -> None:
        """See Rows."""
        room = self.rows_max - len(self.kept)
        self.kept += rows[:room]
        self.left_out += len(rows[room:])

    def end(self, errors: Sequence[Row]) -> None:
        """See Rows."""
