"""The one exception of the demo whose message is for users."""


class DemoError(Exception):
    """The demo cannot go on. The message is one sentence or two that say why and what to do."""
