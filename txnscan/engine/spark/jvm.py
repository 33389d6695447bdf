"""The JVM that a Spark session starts for itself: a test that its master is reachable, and the output of the JVM.

PySpark lets its JVM write to this process's stdout and stderr, over progress and into JSON. Here both go through a
pipe. Relevant lines are passed on, one at a time. Lines that every JVM prints are dropped.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# Lines that a JVM and Spark print at every start, or because of options.
_NOISE = re.compile(
    r"WARNING: Using incubator modules|Setting default log level to|To adjust logging level use sc\.setLogLevel"
    r"|Picked up _?JAVA_|NOTE: Picked up"
    # Stack traces: their first line has the message.
    r"|^\s+at [\w.$/]+\(|^\s*\.\.\. \d+ more|^Caused by: "
)
_REASON = re.compile(r"(?:Exception|Error)\b.*?: (?P<why>.+)|^Error: (?P<error>.+)")
_REMEMBERED = 200
_CONNECT_S_MAX = 5.0
_MASTER = re.compile(
    r"local(\[\s*(\*|\d+)\s*(,\s*\d+\s*)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|yarn"
    r"|spark://[^\s/,:]+:\d{1,5}(,[^\s/,:]+:\d{1,5})*|k8s://\S+|sc://[^\s/;]+(/\S*)?"
)
# The port of Spark Connect, if the address has none.
_CONNECT_PORT = "15002"


class JvmFailed(Exception):
    """The JVM ended before Spark started. The message is the reason that it gave, or empty."""


def is_master(text: str) -> bool:
    """Whether the text has the form of a Spark master."""
    return _MASTER.fullmatch(text) is not None


def address_of(master: str) -> str:
    """The master without the parameters of a Spark Connect URL, which may contain a token."""
    return master.partition("/;")[0] if master.startswith("sc://") else master


def unreachable(master: str) -> str | None:
    """Why no standalone master of `spark://host:port,...`, or Spark Connect server of `sc://host:port/...`, accepts a
    connection. None if one accepts it, and for other kinds of masters.

    Spark itself tries for a minute, and then reports that all masters are unresponsive.
    """
    scheme, _, addresses = address_of(master).partition("://")
    if scheme not in ("spark", "sc"):
        return None
    reasons = []
    for address in addresses.rstrip("/").split(","):
        host, _, port = (address if ":" in address else f"{address}:{_CONNECT_PORT}").rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=_CONNECT_S_MAX).close()
            return None
        except (OSError, OverflowError) as error:
            reasons.append(f"{address}: {_why(error)}")
    return "; ".join(reasons)


def _why(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return "its name does not resolve"
    if isinstance(error, TimeoutError):
        return f"no connection within {_CONNECT_S_MAX:g} s"
    return (getattr(error, "strerror", None) or str(error)).lower()


def start_jvm(heard: Callable[[str], None]) -> None:
    """Starts the JVM that the next session uses, with the options in PYSPARK_SUBMIT_ARGS.

    heard: called with each relevant line after the JVM has started. If it does not start, the error has the reason.

    Does nothing if this process already has a JVM. Raises JvmFailed.
    """
    from pyspark import SparkContext
    from pyspark.errors import PySparkException

    if SparkContext._gateway is not None:
        return
    said: deque[str] = deque(maxlen=_REMEMBERED)
    started = threading.Event()
    reader, writer = os.pipe()
    listening = threading.Thread(target=_listen, args=(reader, said, started, heard), name="txnscan-jvm", daemon=True)
    listening.start()
    try:
        gateway = _launched(writer)
        started.set()
    except PySparkException:
        os.close(writer)
        listening.join(_CONNECT_S_MAX)
        raise JvmFailed(reason(said)) from None
    os.close(writer)
    # A session does the same, but it cannot redirect stdout and stderr.
    SparkContext._ensure_initialized(gateway=gateway)


def end_jvm() -> None:
    """Shuts down the JVM of this process's sessions, and waits for its end. No session works after that."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


@contextmanager
def same_interrupts() -> Iterator[None]:
    """Restores the handler of Ctrl-C at the end, because a new SparkContext replaces it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)


def _launched(writer: int) -> Any:
    """PySpark's gateway to a new JVM. If the start is interrupted, the JVM is killed. At that time it does not yet
    notice the end of this process, and would run for ever.
    """
    from pyspark import SparkConf, java_gateway

    launched: list[subprocess.Popen[bytes]] = []

    def launch(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        launched.append(subprocess.Popen(*arguments, **options))
        return launched[-1]

    original = getattr(java_gateway, "Popen")  # noqa: B009
    setattr(java_gateway, "Popen", launch)  # noqa: B010
    try:
        return java_gateway.launch_gateway(SparkConf(loadDefaults=False), {"stdout": writer, "stderr": writer})  # type: ignore[no-untyped-call]
    except BaseException:
        for process in launched:
            process.kill()
        raise
    finally:
        setattr(java_gateway, "Popen", original)  # noqa: B010


def reason(said: deque[str]) -> str:
    """The reason for a failure, from the output of a JVM."""
    for line in reversed(said):
        if found := _REASON.search(line):
            return (found["why"] or found["error"]).strip().rstrip(".")
    return said[-1].strip() if said else ""


def _listen(reader: int, said: deque[str], started: threading.Event, heard: Callable[[str], None]) -> None:
    with os.fdopen(reader, "r", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.strip() or _NOISE.search(line):
                continue
            said.append(line)
            if started.is_set():
                while said:
                    heard(said.popleft().rstrip("\n"))
