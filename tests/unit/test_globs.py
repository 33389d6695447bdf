"""Patterns of assistants: none keeps the process busy."""

from __future__ import annotations

import re
import time

from tests.cases import Cases
from txnscan.mcp.tools import glob

NAME = "a" * 249
# Pattern, name, and whether it matches.
GLOBS = (
    ("payments", "payments", True),
    ("payments", "payments-eu", False),
    ("payments", "my-payments", False),
    ("payments-*", "payments-eu", True),
    ("*", "anything", True),
    ("p?yments", "payments", True),
    ("p?yments", "pyments", False),
    ("a.b", "axb", False),
    ("[a-z]", "b", False),
    ("[a-z]", "[a-z]", True),
    ("(a+)+", NAME, False),
    ("(a|a)*b", NAME, False),
    ("*a" * 100, NAME, True),
    ("*a" * 100 + "b", NAME, False),
    ("*" * 240 + "b", NAME, False),
    ("*?" * 120 + "b", NAME, False),
    ("a*" * 124 + "b", NAME, False),
)


def test_a_glob_matches_whole_names_soon() -> None:
    with Cases() as cases:
        for pattern, name, matches in GLOBS:
            with cases.case(f"{pattern[:20]} {name[:20]}"):
                began = time.monotonic()
                assert (re.fullmatch(glob(pattern), name) is not None) is matches
                assert time.monotonic() - began < 2
