"""The `txnscan` command. While it is still importing modules, Ctrl-C ends it without a traceback."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Runs the command of the command line."""
    _open_streams()
    # A shell that starts a command in the background may have it ignore SIGINT.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        # 128 + SIGINT, the exit status that shells use. A traceback from the middle of an import helps nobody.
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from txnscan.cli import main as run
    from txnscan.cli.app import process_is_ours

    process_is_ours()
    run()


def _open_streams() -> None:
    """Opens the null device in place of a closed stdin, stdout or stderr. Else the next file or connection takes its
    place, and receives the output of libraries.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest descriptor that is free.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


if __name__ == "__main__":
    main()
