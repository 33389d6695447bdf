"""The `txnscan` command. Until it has what it needs, Ctrl-C ends it without a word."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Runs the command of the command line."""
    # Who starts a command in the background may have it ignored.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        # 128 + SIGINT, as shells have it. A trace of half an import helps nobody.
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from txnscan.cli import main as run
    from txnscan.cli.base import process_is_ours

    process_is_ours()
    run()


if __name__ == "__main__":
    main()
