"""Rows on stdout as they come: a table for people, JSON or CSV for programs. Memory does not grow with their number.

In a table the widths of columns are fixed, a longer value pushes its row to the right, and the last column is for
values of any length: no value is cut or wrapped. Unprintable characters are escaped in each format. In CSV all cells
are quoted, and an apostrophe stands before a text that a spreadsheet would take for a formula.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from txnscan.config import printable
from txnscan.report.output import write_line

Row = Mapping[str, Any]
_NONE = "-"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. show: its text for a row; without it, the value of that name."""

    header: str
    width: int
    show: Callable[[Row], Any]
    right: bool = False


class Rows(Protocol):
    """A destination of rows."""

    def write(self, rows: Sequence[Row]) -> None:
        """Some rows. Raises OutputFailed."""
        ...

    def end(self, errors: Sequence[Row]) -> None:
        """After the last row: what could not be observed (`plain.error_object`)."""
        ...


class TableRows:
    """A table: a line of headers, and one line for each row."""

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self._columns = columns
        self._begun = False

    def write(self, rows: Sequence[Row]) -> None:
        """See Rows."""
        lines = [] if self._begun else [headers(self._columns)]
        lines += [table_line(self._columns, row) for row in rows]
        self._begun = True
        if lines:
            write_line("\n".join(lines))

    def end(self, errors: Sequence[Row]) -> None:
        """See Rows. A table without rows has its headers."""
        if not self._begun:
            self.write([])


class LineRows:
    """Some lines for each row. first: an optional line before all others."""

    def __init__(self, lines: Callable[[Row], Iterable[str]], first: str | None = None) -> None:
        self._lines = lines
        self._first = first

    def write(self, rows: Sequence[Row]) -> None:
        """See Rows."""
        said = [line for row in rows for line in self._lines(row)]
        if said and self._first is not None:
            said.insert(0, self._first)
            self._first = None
        if said:
            write_line("\n".join(said))

    def end(self, errors: Sequence[Row]) -> None:
        """See Rows."""


class JsonRows:
    """One object: the rows under a name, a line each, and the errors."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._begun = False

    def write(self, rows: Sequence[Row]) -> None:
        """See Rows."""
        if not rows:
            return
        before = ",\n" if self._begun else f'{{"{self._name}": [\n'
        self._begun = True
        # Without the newline at its end: a comma may follow.
        _write(before + ",\n".join(json.dumps(row) for row in rows))

    def end(self, errors: Sequence[Row]) -> None:
        """See Rows."""
        before = "\n]" if self._begun else f'{{"{self._name}": []'
        write_line(f'{before}, "errors": {json.dumps(list(errors))}}}')


class CsvRows:
    """A line of names, and a line for each row, as RFC 4180 has it but for the ends of lines. A list is its items with
    spaces between.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._begun = False

    def write(self, rows: Sequence[Row]) -> None:
        """See Rows."""
        page = io.StringIO()
        lines = csv.writer(page, quoting=csv.QUOTE_ALL, lineterminator="\n")
        if not self._begun:
            lines.writerow(self._names)
        lines.writerows([_csv(row[name]) for name in self._names] for row in rows)
        self._begun = True
        if page.tell():
            _write(page.getvalue())

    def end(self, errors: Sequence[Row]) -> None:
        """See Rows."""
        if not self._begun:
            self.write([])
        write_line("", end="")


def table_line(columns: Sequence[Column], row: Row) -> str:
    """A row as a line of a table."""
    return (_form(columns) % tuple([_text(column.show(row)) for column in columns])).rstrip()


def headers(columns: Sequence[Column]) -> str:
    """The line of headers of a table."""
    return (_form(columns) % tuple(column.header for column in columns)).rstrip()


@cache
def _form(columns: Sequence[Column]) -> str:
    """The format of a line, for `%` with the texts of its columns."""
    return "  ".join(f"%{'' if column.right else '-'}{column.width or ''}s" for column in columns)


def _text(value: Any) -> Any:
    if type(value) is str:
        return value if value.isprintable() else printable(value)
    return _NONE if value is None else value


def _csv(value: Any) -> Any:
    if isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    if isinstance(value, dict):
        value = json.dumps(value)
    if isinstance(value, bool) or not isinstance(value, str):
        return "" if value is None else str(value).lower() if isinstance(value, bool) else value
    said = printable(value)
    return f"'{said}" if value.startswith(_FORMULA) else said


def _write(text: str) -> None:
    write_line(text, end="")
