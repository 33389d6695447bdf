"""The public Python API: the exports of `txnscan`, and the exceptions of its functions."""

from __future__ import annotations

import inspect
import re
from importlib import import_module

import pytest

import txnscan


def test_explain_can_be_called_before_and_after_its_modules_are_imported() -> None:
    """The package `txnscan.explain` has the name of the function."""
    before = txnscan.explain(None, error="PRODUCER_FENCED")
    import_module("txnscan.explain.ask")
    assert txnscan.explain(None, error="PRODUCER_FENCED") == before


def test_every_public_name_exists() -> None:
    assert sorted(txnscan.__all__) == sorted(txnscan._HOMES)
    assert all(getattr(txnscan, name) is not None for name in txnscan.__all__)


@pytest.mark.parametrize(
    "name", ["sweep", "sweep_clusters", "find_hanging", "plan", "apply", "table", "check", "gate", "explain"]
)
def test_every_documented_exception_is_public(name: str) -> None:
    # The attribute `explain` may be the package of the same name.
    home = import_module(txnscan._HOMES[name])
    said = inspect.getdoc(getattr(home, txnscan._CALLED.get(name, name))) or ""
    sentences = re.findall(r"[Rr]aises (.*?)(?:\. |\.$|$)", said, re.S)
    raised = {word for sentence in sentences for word in re.findall(r"\b[A-Z]\w*[a-z]\w*\b", sentence)}
    assert raised or name == "find_hanging"
    for error in raised:
        assert issubclass(getattr(txnscan, error), txnscan.TxnscanError), error


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = txnscan.nonsense
