"""The `txnscan` command. While it imports modules, Ctrl-C ends it without a traceback."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Runs the command on the command line."""
    _open_streams()
    # A shell may start a background command with SIGINT ignored.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        # Exit with 128 + SIGINT, as shells do. A traceback from the middle of an import is of no use.
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from txnscan.signals import bring_to_main_thread

    bring_to_main_thread()
    from txnscan.cli import main as run
    from txnscan.cli.app import process_is_ours

    process_is_ours()
    run()


def _open_streams() -> None:
    """Opens the null device in place of a closed stdin, stdout or stderr. Otherwise the next file or connection would
    get that descriptor and receive the output of libraries.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # This opens the lowest free descriptor.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


if __name__ == "__main__":
    main()
