"""The private attributes of kafka-python that the code uses are in the list, and the installed version has them."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from txnscan.kafka.client.private import PRIVATE

ROOT = Path(__file__).parents[2]
# Of a subclass, and of our own objects.
_OWN = {"_client", "client", "ClientFactory", "ErrorCode", "code"}


def used() -> Iterator[str]:
    """The private attributes of other objects in the code that stands next to kafka-python."""
    for file in (ROOT / "txnscan" / "kafka").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr):
                of = ast.unparse(node.value).rpartition(".")[2]
                if of not in {"self", "cls", *_OWN}:
                    yield node.attr


def test_the_list_has_every_private_attribute_that_the_code_uses() -> None:
    listed = {name for names in PRIVATE.values() for name in names if name.startswith("_")}
    # Of `Scram` itself, which inherits it.
    assert {*used(), "_state"} == listed


def test_the_installed_version_has_them() -> None:
    for path, names in PRIVATE.items():
        module, _, class_ = path.rpartition(".")
        source = inspect.getsource(getattr(importlib.import_module(module), class_))
        assert [name for name in names if re.search(rf"\b{name}\b", source) is None] == [], path


def test_no_release_with_another_minor_version_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (pin,) = (one for one in project["dependencies"] if one.startswith("kafka-python"))
    major, minor, *_ = version("kafka-python").split(".")
    assert pin.endswith(f",<{major}.{int(minor) + 1}")
