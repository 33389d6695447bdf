"""From a symptom to its cause: the question, the facts that brokers show, and a table of rules over them.

The name is also a public function: `txnscan.explain(config, group="billing")`. Python sets the attribute of a package
to a submodule at the first import of it. So this module itself can be called.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Explain(ModuleType):
    """A module that can be called as `txnscan.api.explain`."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """See `txnscan.api.explain`."""
        return import_module("txnscan.api").explain(*arguments, **named)


sys.modules[__name__].__class__ = _Explain
