"""Matches the user's regular expressions in a process of its own, which is killed at a deadline.

Python's `re` backtracks, and holds the interpreter until it is done: within a name of 30 characters `(a+)+b` takes
minutes, and no thread, signal or time limit of this process could end it. Clients choose the names. RE2 does not
backtrack, but it lacks parts of Python's dialect.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from functools import lru_cache

from txnscan.errors import TxnscanError, system_reason

# For all patterns and texts of one call. 100,000 names of topics take 0.2 s.
MATCH_S_MAX = 10.0
# Texts that one process gets. This limits the memory for the largest clusters.
_TEXTS = 100_000
# The alarm ends the process if its parent was killed before the deadline.
_PROGRAM = """
import json, re, signal, sys
signal.alarm(int(sys.argv[1]))
patterns, texts = json.load(sys.stdin)
for pattern in patterns:
    match = re.compile(pattern).fullmatch
    print("".join("01"[match(text) is not None] for text in texts), flush=True)
"""


class PatternError(TxnscanError, ValueError):
    """A pattern that is not valid, or that takes too long."""


def check_pattern(pattern: str) -> None:
    """Raises PatternError if the text is not a regular expression of Python."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        # The last two: numbers of repetitions and depths that `re` cannot represent.
        raise PatternError(f"'{_shown(pattern)}' is not a regular expression: {error}") from None


def matching(patterns: Sequence[str], texts: Collection[str]) -> dict[str, frozenset[str]]:
    """By pattern: those of the texts that it matches as a whole. Raises PatternError, at MATCH_S_MAX at the latest."""
    for pattern in patterns:
        check_pattern(pattern)
    if not patterns or not texts:
        return dict.fromkeys(patterns, frozenset())
    return dict(zip(patterns, _matching(tuple(patterns), tuple(texts)), strict=True))


# A sweep asks for the same names several times.
@lru_cache(maxsize=4)
def _matching(patterns: tuple[str, ...], texts: tuple[str, ...]) -> tuple[frozenset[str], ...]:
    until_s = time.monotonic() + MATCH_S_MAX
    found: list[set[str]] = [set() for _ in patterns]
    for begin in range(0, len(texts), _TEXTS):
        some = texts[begin : begin + _TEXTS]
        for matched, line in zip(found, _ask(patterns, some, until_s), strict=True):
            matched.update(text for text, is_match in zip(some, line, strict=True) if is_match == "1")
    return tuple(map(frozenset, found))


def _ask(patterns: Sequence[str], texts: Sequence[str], until_s: float) -> list[str]:
    """By pattern: a character for each text, 1 if it matches."""
    # -P: no module from the working directory. -S: none of the packages, which take time to find.
    command = [sys.executable, "-P", "-S", "-c", _PROGRAM, str(int(MATCH_S_MAX) + 2)]
    try:
        done = subprocess.run(
            command,
            input=json.dumps([patterns, texts]).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=max(until_s - time.monotonic(), 0.0),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        slow = patterns[min((error.stdout or b"").count(b"\n"), len(patterns) - 1)]
        raise PatternError(
            f"'{_shown(slow)}' takes longer than {MATCH_S_MAX:g} s to match; write it with fewer repetitions"
        ) from None
    except OSError as error:
        raise PatternError(f"patterns cannot be matched: {system_reason(error)}") from None
    lines = done.stdout.decode("ascii", "replace").split()
    if done.returncode != 0 or len(lines) != len(patterns):
        raise PatternError(f"patterns cannot be matched: the process for them ended with {done.returncode}")
    return lines


def _shown(pattern: str) -> str:
    """The pattern as a short text on one line."""
    text = pattern if len(pattern) <= 200 else f"{pattern[:200]}..."
    return text if text.isprintable() else text.encode("unicode_escape", "surrogatepass").decode("ascii")
