"""`--log-level`: log requests and answers to stderr, to find out why something does not work. `--log-format json`: each
line on stderr is one JSON object, for programs that collect logs.

The default is no log: commands report failures in their own words. No level logs kafka-python's frames or its exchange
of credentials, because they contain secrets.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType

from txnscan.config import printable

LEVEL_VARIABLE = "TXNSCAN_LOG_LEVEL"
FORMAT_VARIABLE = "TXNSCAN_LOG_FORMAT"
# The level of a command's own line, by its beginning. Without one it is information.
_LEVELS: Mapping[str, str] = MappingProxyType({"txnscan: ": "error", "warning: ": "warning", "note: ": "info"})
# Below this level these libraries log what they send.
_AT_LEAST_INFO = ("kafka", "mcp", "py4j")
# These log addresses of notifications, which are secrets.
_NEVER = ("apprise", "requests", "urllib3")


class LogLevel(StrEnum):
    """How much is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How lines on stderr are written."""

    TEXT = "text"
    JSON = "json"


def _now_ms() -> int:
    from txnscan.kafka.clock import wall_clock_ms

    return wall_clock_ms()


class StderrLines:
    """The format of a command's own lines on stderr. `--log-format` sets it."""

    def __init__(self, now_ms: Callable[[], int] = _now_ms) -> None:
        self.format = LogFormat.TEXT
        self._now_ms = now_ms

    def line(self, message: str) -> str:
        """The line of a message, which may begin with its level, such as "warning: "."""
        if self.format is LogFormat.TEXT:
            return printable(message)
        prefix = next((prefix for prefix in _LEVELS if message.startswith(prefix)), "")
        return json_line(self._now_ms(), _LEVELS.get(prefix, "info"), "txnscan", message.removeprefix(prefix))

    def timed(self, message: str) -> str:
        """The line of a message that needs its time in text, too."""
        from txnscan.report.plain import iso_utc

        return self.line(message if self.format is LogFormat.JSON else f"{iso_utc(self._now_ms())} {message}")


stderr_lines = StderrLines()


def json_line(at_ms: int, level: str, logger: str, message: str, **more: str) -> str:
    """A line of the log as an object, in ASCII."""
    from txnscan.report.plain import iso_utc

    return json.dumps({"time": iso_utc(at_ms), "level": level, "logger": logger, "message": message, **more})


class JsonLines(logging.Formatter):
    """One object a record."""

    def format(self, record: logging.LogRecord) -> str:
        more = {"exception": self.formatException(record.exc_info)} if record.exc_info else {}
        at_ms = round(record.created * 1_000)
        return json_line(at_ms, record.levelname.lower(), record.name, record.getMessage(), **more)


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
    """Logs from here on, in the format of stderr."""
    handler = logging.StreamHandler(sys.stderr)
    text = _Lines("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if stderr_lines.format is LogFormat.JSON else text)
    handler.addFilter(lambda record: record.name.partition(".")[0] not in _NEVER)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.value.upper())
    for name in _AT_LEAST_INFO:
        logging.getLogger(name).setLevel(max(logging.INFO, root.level))
    logging.disable(logging.NOTSET)
