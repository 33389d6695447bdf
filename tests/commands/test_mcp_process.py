"""How the process of `txnscan mcp` ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cases import Cases
from tests.process import ROOT, ended, run_here
from txnscan.errors import ExitStatus

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
SWEEP = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "find_hanging", "arguments": {}}}


def started(servers: str) -> subprocess.Popen[str]:
    """A server that has answered the first request."""
    process = subprocess.Popen(
        [sys.executable, "-m", "txnscan", "mcp", "--bootstrap-server", servers],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    send(process, INITIALIZE)
    assert process.stdout is not None
    answer = json.loads(process.stdout.readline())
    assert (answer["id"], answer["result"]["serverInfo"]["name"]) == (1, "txnscan")
    return process


def send(process: subprocess.Popen[str], message: object) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{json.dumps(message)}\n")
    process.stdin.flush()


@contextmanager
def silent() -> Iterator[tuple[socket.socket, str]]:
    """A port that accepts connections and never answers, with its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening, f"127.0.0.1:{listening.getsockname()[1]}"


def closes_stdin(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    # `communicate` would flush it.
    process.stdin = None


def interrupts(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)


def closes_both(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    send(process, {"jsonrpc": "2.0", "id": 3, "method": "ping"})
    closes_stdin(process)


# A line, with the code of the answer.
NO_MESSAGES = (("garbage", -32_700), ("{", -32_700), ("[]", -32_600), ('{"jsonrpc": "2.0"}', -32_600))


def test_a_line_that_is_no_message_is_answered_with_an_error() -> None:
    with silent() as (_, servers), Cases() as cases:
        process = started(servers)
        assert process.stdin is not None and process.stdout is not None
        for line, code in NO_MESSAGES:
            with cases.case(line):
                process.stdin.write(f"{line}\n")
                process.stdin.flush()
                answer = json.loads(process.stdout.readline())
                assert (answer["id"], answer["error"]["code"]) == (None, code)
        send(process, {"jsonrpc": "2.0", "id": 3, "method": "ping"})
        assert json.loads(process.stdout.readline())["id"] == 3
        closes_stdin(process)
        assert process.wait(10) == ExitStatus.DONE


# The last step of the client, the exit status, and lines on stderr.
ENDS = (
    (closes_stdin, ExitStatus.DONE, 0),
    (closes_both, ExitStatus.DONE, 0),
    (interrupts, ExitStatus.INTERRUPTED, 1),
)


def test_the_process_ends_with_its_client_while_a_tool_waits_for_a_broker() -> None:
    with Cases() as cases:
        for ends, status, lines in ENDS:
            with cases.case(ends.__name__), silent() as (listening, address):
                process = started(address)
                try:
                    send(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})
                    send(process, SWEEP)
                    listening.accept()
                    ends(process)
                    _, stderr = ended(process)
                finally:
                    process.kill()
                assert (process.returncode, stderr.count("\n")) == (status, lines), stderr


def test_wrong_settings_end_the_process_before_it_answers() -> None:
    absent = ("--command-config", "/absent.properties")
    table = (
        ("127.0.0.1", (), ExitStatus.USAGE),
        ("127.0.0.1:1", absent, ExitStatus.USAGE),
        ("127.0.0.1:1", ("--tables", "nowhere"), ExitStatus.USAGE),
        ("127.0.0.1:1", ("--timeout", "5"), ExitStatus.USAGE),
    )
    with Cases() as cases:
        for servers, options, status in table:
            with cases.case((servers, *options)):
                ran = run_here("mcp", "--bootstrap-server", servers, *options)
                assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (status, "", 1)
