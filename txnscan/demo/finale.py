"""The end of the demo: a real `txnscan watch`, its notifications, the HTML report, and the resolution."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from txnscan.config import ScanConfig, printable
from txnscan.demo.plant import TornCommit, read_both
from txnscan.demo.ports import choose_ports
from txnscan.demo.requests import Wire
from txnscan.demo.resolution import OPTIONS
from txnscan.demo.wait import wait_until
from txnscan.report.resolution import print_applied
from txnscan.resolve.plan import Plan
from txnscan.resolve.run import apply_to

_LOOPBACK = "127.0.0.1"
_TELL_S_MAX = 180
# The metrics that the demo shows.
_SHOWN = ("txnscan_candidates", "txnscan_open_incidents", "txnscan_blocked_records")


@dataclass
class Hook:
    """A webhook that stores the summary of each event, and counts the incidents that opened and closed."""

    url: str
    summaries: list[str] = field(default_factory=list)
    opened: int = 0
    closed: int = 0

    def receive(self, body: Mapping[str, Any]) -> None:
        """Keeps a notification."""
        for event in body["events"]:
            self.summaries.append(event["summary"])
            self.opened += event["opened_incidents"]
            self.closed += event["closed_incidents"]


@contextmanager
def listening() -> Iterator[Hook]:
    """A webhook on loopback."""

    class Posted(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            hook.receive(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Logs no requests."""

    server = ThreadingHTTPServer((_LOOPBACK, 0), Posted)
    hook = Hook(f"http://{_LOOPBACK}:{server.server_port}/hook")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hook
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def watching(config: ScanConfig, hook: Hook) -> Iterator[tuple[list[str], str]]:
    """Runs `txnscan watch` for these brokers. Yields its arguments and the URL of its metrics."""
    (port,) = choose_ports(1, None)
    listen = f"{_LOOPBACK}:{port}"
    arguments = [
        *("watch", "--bootstrap-server", config.bootstrap_servers.split(",")[0], "--tables", str(config.tables)),
        *(
            "--late-after",
            f"{(config.late_after_ms or 0) // 1_000}s",
            "--interval",
            "2s",
            "--listen",
            listen,
            "--notify",
            hook.url,
        ),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "txnscan", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield arguments, f"http://{listen}/metrics"
    finally:
        process.terminate()
        process.wait()


def tell_and_resolve(
    wire: Wire,
    config: ScanConfig,
    plan: Plan,
    torn: TornCommit,
    console: Console,
    say: Callable[[str], None],
    *,
    resolve: bool,
) -> None:
    """Shows the hanging transactions in the metrics, in a webhook and on a page. With `resolve`, applies the plan, and
    waits until the webhook receives the end of each incident. If an extra is not installed, it skips this part and
    prints a line.
    """
    if find_spec("prometheus_client") is None or find_spec("jinja2") is None:
        console.print(Text("Metrics and notifications are left out; install txnscan[watch]."))
        return
    with listening() as hook, watching(config, hook) as (arguments, url):
        console.print()
        console.rule("Watching for ever, and notifying", align="left")
        console.print()
        console.print(Text(f"  {sys.argv[0]} {' '.join(arguments)}"), soft_wrap=True)
        say("Waiting for its first sweeps")
        wait_until(lambda: hook.opened >= len(plan.actions), "the webhook was notified", _TELL_S_MAX)
        told = list(hook.summaries)
        _show(console, "What the webhook got:", told)
        _show(console, f"{url} says:", _metrics(url))
        _write_page(config, console, say)
        if not resolve:
            return
        console.print()
        console.rule("Doing it: --execute", align="left")
        console.print()
        print_applied(console, apply_to(None, config, plan, execute=True, options=OPTIONS))
        say("Waiting for the sweep that sees it")
        wait_until(lambda: hook.closed >= len(plan.actions), "the webhook was notified", _TELL_S_MAX)
        _show(console, "What the webhook got:", hook.summaries[len(told) :])
        _show(console, f"{url} says:", _metrics(url))
        read = read_both(wire, torn)
        console.print(
            f"The torn commit is whole: read_committed consumers get {read.whole_committed} of {torn.records} records "
            f"of {torn.whole_topic} and {read.torn_committed} of {read.torn_uncommitted} of {torn.hanging.topic}."
        )


def _show(console: Console, title: str, lines: list[str]) -> None:
    console.print(Text(title))
    for line in lines:
        console.print(Text(f"  {printable(line)}"), soft_wrap=True)
    console.print()


def _metrics(url: str) -> list[str]:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310
        return [line for line in answer.read().decode().splitlines() if line.startswith(_SHOWN)]


def _write_page(config: ScanConfig, console: Console, say: Callable[[str], None]) -> None:
    path = Path(str(config.tables)).absolute().parent / "report.html"
    say("Writing the page of it")
    command = ["report", "--tables", str(config.tables), "--out", str(path)]
    ran = subprocess.run(
        [sys.executable, "-m", "txnscan", *command], capture_output=True, text=True, timeout=120, check=False
    )
    console.print(Text(printable((ran.stderr or ran.stdout).strip())), soft_wrap=True)
