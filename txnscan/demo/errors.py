"""The demo's only exception with a message for users."""

from __future__ import annotations

from txnscan.errors import TxnscanError


class DemoError(TxnscanError):
    """The demo cannot continue. The message gives the reason and the remedy, in one or two sentences."""
