"""The public Python API: the exports of `txnscan`, and the exceptions of its functions."""

from __future__ import annotations

import inspect
import re

import pytest

import txnscan


def test_every_public_name_exists() -> None:
    assert sorted(txnscan.__all__) == sorted(txnscan._HOMES)
    assert all(getattr(txnscan, name) is not None for name in txnscan.__all__)


@pytest.mark.parametrize("name", ["sweep", "sweep_clusters", "find_hanging", "plan", "apply", "table"])
def test_every_documented_exception_is_public(name: str) -> None:
    said = inspect.getdoc(getattr(txnscan, name)) or ""
    sentences = re.findall(r"[Rr]aises (.*?)(?:\. |\.$|$)", said, re.S)
    raised = {word for sentence in sentences for word in re.findall(r"\b[A-Z]\w*[a-z]\w*\b", sentence)}
    assert raised or name == "find_hanging"
    for error in raised:
        assert issubclass(getattr(txnscan, error), txnscan.TxnscanError), error


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = txnscan.nonsense
