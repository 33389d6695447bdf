"""The one exception of the demo whose message is for users."""

from __future__ import annotations

from txnscan.errors import TxnscanError


class DemoError(TxnscanError):
    """The demo cannot go on. The message is one sentence or two that say why and what to do."""
