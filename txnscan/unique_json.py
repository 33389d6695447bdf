"""JSON from elsewhere, read in one way: programs and people differ about which value counts if a key is given twice."""

from __future__ import annotations

import json
from typing import Any

_DIGITS_MAX = 19


def unique_json(text: str) -> Any:
    """The value of JSON in which no object gives a key twice, no whole number has more than 19 digits, and no number is
    NaN or infinite. Raises ValueError.
    """
    try:
        return json.loads(text, object_pairs_hook=_once, parse_int=_integer, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _integer(digits: str) -> int:
    # Python takes quadratic time for long numbers, and other programs round them.
    if len(digits.lstrip("-")) > _DIGITS_MAX:
        raise ValueError("a long number")
    return int(digits)
