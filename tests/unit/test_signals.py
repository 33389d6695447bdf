"""Each signal reaches the main thread, whichever thread the kernel hands it to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.process import ROOT
from tests.sim.wire.cluster import WireCluster
from tests.sim.wire.shape import ClusterShape

# A thread that gets each signal itself, as happens to a thread that the kernel chooses. It sends the signals whose
# numbers come on stdin.
TAKER = """
import os, signal, sys, threading
def take():
    for line in sys.stdin:
        signal.pthread_kill(threading.get_ident(), int(line))
threading.Thread(target=take, daemon=True).start()
"""
WAITS = {
    "a queue": "queue.SimpleQueue().get()",
    "a lock": "lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "a thread": "endless = threading.Thread(target=time.sleep, args=(600,)); endless.start(); endless.join()",
    "a signal": "signal.pause()",
    "an answer": "pair = socket.socketpair(); pair[0].recv(1)",
    "a sleep": "time.sleep(600)",
}
PROGRAM = """
import queue, socket, time
from txnscan.signals import bring_to_main_thread
bring_to_main_thread()
def end(number, _):
    print("handler", number, threading.current_thread() is threading.main_thread(), flush=True)
    if number == signal.SIGINT:
        os._exit(7)
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGINT, end)
print("waits", flush=True)
while True:
    {wait}
"""


def started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def take(process: subprocess.Popen[str], number: signal.Signals) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{number:d}\n")
    process.stdin.flush()


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_a_signal_that_another_thread_gets_interrupts_the_main_thread(wait: str) -> None:
    with started("-c", TAKER + PROGRAM.format(wait=wait)) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "waits\n"
            # A second signal finds a main thread that has handled one.
            for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
                take(process, number)
                assert process.stdout.readline() == f"handler {number:d} True\n"
            assert process.wait(60) == 7
        finally:
            process.kill()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_watch_ends_although_another_thread_gets_the_signal(number: signal.Signals, status: int) -> None:
    program = f"{TAKER}\nfrom txnscan.__main__ import main\nmain()"
    with (
        WireCluster(ClusterShape(brokers=1, partitions=2)) as cluster,
        started(
            *("-c", program, "watch", "--listen", "127.0.0.1:0", "--bootstrap-server", cluster.bootstrap_servers)
        ) as process,
    ):
        assert process.stderr is not None
        try:
            while "metrics are at" not in process.stderr.readline():
                assert process.poll() is None
            take(process, number)
            assert process.wait(60) == status
        finally:
            process.kill()
