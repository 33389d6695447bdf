"""`--log-level`: log requests and answers to stderr, to find out why something does not work.

The default is no log: commands report failures in their own words. No level logs kafka-python's frames or its exchange
of credentials, because they contain secrets.
"""

from __future__ import annotations

import logging
import sys
from enum import StrEnum

from txnscan.config import printable

LEVEL_VARIABLE = "TXNSCAN_LOG_LEVEL"
# Below this level these libraries log what they send.
_AT_LEAST_INFO = ("kafka", "py4j")


class LogLevel(StrEnum):
    """How much is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class _Lines(logging.Formatter):
    """One line a record, in printable characters: names come from brokers."""

    default_msec_format = "%s.%03d"

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message)
        return super().formatMessage(record)


def silence() -> None:
    """Libraries log retries and failures, PySpark with whole stack traces. Commands report what comes of them."""
    logging.disable(logging.CRITICAL)


def log_to_stderr(level: LogLevel) -> None:
    """Logs from here on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.value.upper())
    for name in _AT_LEAST_INFO:
        logging.getLogger(name).setLevel(max(logging.INFO, root.level))
    logging.disable(logging.NOTSET)
