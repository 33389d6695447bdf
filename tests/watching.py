"""The command watch in a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.process import ROOT
from txnscan.demo.wait import wait_until


def get(url: str, context: ssl.SSLContext | None = None, **headers: Any) -> tuple[int, str]:
    """Status and body."""
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=300, context=context
        ) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


class Process:
    """`txnscan watch` as a process of its own."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "txnscan", "watch", "--listen", "127.0.0.1:0", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line.rstrip("\n"))

    @property
    def said(self) -> str:
        return "\n".join(self.lines)

    @property
    def url(self) -> str:
        found = re.search(r"metrics are at (\S+)/metrics", self.said)
        return found[1] if found else ""

    def metrics(self, **headers: Any) -> dict[tuple[str, ...], float]:
        """Values by name and labels' values."""
        status, text = get(f"{self.url}/metrics", **headers)
        assert status == 200
        return {
            (one.name, *one.labels.values()): one.value
            for f in text_string_to_metric_families(text)
            for one in f.samples
        }

    def until(self, condition: Callable[[dict[tuple[str, ...], float]], bool], what: str) -> None:
        wait_until(lambda: bool(self.url), "it listened", 60)
        wait_until(lambda: condition(self.metrics()), what, 60)

    def end(self, number: int = signal.SIGTERM) -> int:
        """The exit status. Fails if it takes too long."""
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            status = self._process.wait(600)
        except subprocess.TimeoutExpired as late:
            self._process.kill()
            raise AssertionError(f"watch did not end; it said: {self.said}") from late
        self._reader.join(600)
        return status

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
