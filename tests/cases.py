"""Many cases in one test: every case of a table runs, and the test reports each one that fails.

    with Cases() as cases:
        for name, text, expected in TABLE:
            with cases.case(name):
                assert parsed(text) == expected

The assertions stay in the test module, where pytest rewrites them. Fixtures are shared by all cases: give each case a
folder of its own, and undo changes with `pytest.MonkeyPatch.context()`.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import indent
from types import TracebackType
from typing import Self

import pytest


class Cases:
    """Collects the failures of a table's cases. Leaving its block fails if a case failed, or if no case ran."""

    def __init__(self) -> None:
        self._names: Counter[str] = Counter()
        self._failures: list[tuple[str, BaseException]] = []

    @contextmanager
    def case(self, name: object) -> Iterator[str]:
        """Run one case. Yields its name, which gets a number if an earlier case has the same name."""
        self._names[str(name)] += 1
        times = self._names[str(name)]
        unique = str(name) if times == 1 else f"{name} ({times})"
        try:
            yield unique
        except (Exception, pytest.fail.Exception) as error:
            self._failures.append((unique, error))

    def check(self) -> None:
        """Raise an AssertionError that lists every failing case. Its cause is the first failure."""
        count = self._names.total()
        if not count:
            raise AssertionError("no case ran: the table is empty")
        if self._failures:
            told = [_described(name, error) for name, error in self._failures]
            summary = f"{len(told)} of {count} cases failed:"
            raise AssertionError("\n".join([summary, *told])) from self._failures[0][1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.check()


def _described(name: str, error: BaseException) -> str:
    """The name of a failing case, the line of the test that failed, and the exception."""
    frames = traceback.extract_tb(error.__traceback__)
    line = next((frame for frame in frames if frame.filename != __file__), frames[-1])
    message = indent(f"{type(error).__name__}: {error}", "    ")
    return f"  {name}\n    {Path(line.filename).name}:{line.lineno}: {line.line}\n{message}"
