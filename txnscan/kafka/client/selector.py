"""A selector that is cheap to ask for an unknown socket.

Before each read, kafka-python asks for a socket that is not registered. Python's own selectors then put both addresses
of the socket into the text of an error, and ask the system for them.
"""

from __future__ import annotations

import selectors
from typing import Any


class QuietSelector(selectors.DefaultSelector):
    """See `selectors.BaseSelector`. `get_key` raises KeyError with the socket itself."""

    def __init__(self) -> None:
        super().__init__()
        self._registered: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """See BaseSelector."""
        key = self._registered[fileobj] = super().register(fileobj, events, data)
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """See BaseSelector."""
        key = self._registered[fileobj] = super().modify(fileobj, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """See BaseSelector."""
        self._registered.pop(fileobj, None)
        return super().unregister(fileobj)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        """See BaseSelector."""
        return self._registered[fileobj]
