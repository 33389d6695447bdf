"""`python -m tests.prove.watching --sweeps 2000`: a long run of `txnscan watch` in a short time.

A real cluster of three brokers with the demo's planted transactions is swept repeatedly while brokers are killed,
paused and restarted; a second cluster is always down. Meanwhile the endpoint is scraped, and a webhook receives
notifications. Conditions:

- memory, threads and sockets of the process do not grow from the second quarter of the run to the last. They are
  sampled at the start of each sweep of the running cluster. Memory is compared by its median; threads and sockets by
  their minimum, because a concurrent sweep of the other cluster has its own and releases them, while a leak is never
  released;
- the running cluster is swept continuously, and every reported candidate was planted;
- each incident is notified once when it opens and once when it closes, and it closes after a marker ended it.

Exit status 1 if a condition is violated.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from txnscan.api import find_hanging
from txnscan.config import ScanConfig
from txnscan.demo.brokers import KafkaCluster
from txnscan.demo.plant import orphan
from txnscan.demo.story import plant_all
from txnscan.demo.wait import wait_until
from txnscan.kafka.protocol.write_txn_markers import MarkerToWrite
from txnscan.report.notifications import SHAPES
from txnscan.sweeps.history import History
from txnscan.sweeps.result import Scan
from txnscan.watch.endpoint import Access
from txnscan.watch.notifier import Target
from txnscan.watch.process import Watch

# Growth up to these limits counts as no growth: an allocator keeps memory that it once had.
GROWTH_MAX_MB, GROWTH_MAX_COUNT = 16.0, 4
# The number of sweeps between two scrapes of the endpoint.
SCRAPE_EVERY = 10


@dataclass
class Used:
    """Samples of the process's resources."""

    memory_mb: list[float] = field(default_factory=list)
    threads: list[float] = field(default_factory=list)
    files: list[float] = field(default_factory=list)

    def sample(self) -> None:
        pages = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
        self.memory_mb.append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)
        self.threads.append(threading.active_count())
        self.files.append(len(os.listdir("/proc/self/fd")))  # noqa: PTH208

    def growth(self) -> dict[str, tuple[float, float]]:
        """The values in the second quarter and in the last. The first quarter is for resources that are
        allocated once.
        """
        return {
            name: (round(of(_quarter(values, 1)), 1), round(of(_quarter(values, 3)), 1))
            for name, values, of in (
                ("memory MB", self.memory_mb, statistics.median),
                ("threads", self.threads, min),
                ("files", self.files, min),
            )
        }

    def grown(self) -> list[str]:
        most = {"memory MB": GROWTH_MAX_MB, "threads": GROWTH_MAX_COUNT, "files": GROWTH_MAX_COUNT}
        return [
            f"{name} grew from {early} to {late}"
            for name, (early, late) in self.growth().items()
            if late - early > most[name]
        ]


class Hook:
    """A webhook that stores its notifications, and refuses some of them."""

    def __init__(self, refuse_every: int) -> None:
        self.events: list[dict[str, Any]] = []
        self._asked = 0
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                hook._asked += 1
                refused = hook._asked % refuse_every == 0
                if not refused:
                    hook.events += [one for event in told["events"] for one in event["incidents"]]
                self.send_response(503 if refused else 200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Logs no requests."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def counts(self) -> Counter[tuple[str, str]]:
        return Counter((event["topic"], event["event"]) for event in self.events)


def run(sweeps: int, *, seed: int, directory: Path) -> tuple[dict[str, Any], list[str]]:
    """Returns the figures, and the violated conditions."""
    rng, used = random.Random(seed), Used()
    said: list[str] = []
    with ExitStack() as stack:
        cluster = stack.enter_context(KafkaCluster(directory, properties={"transaction.max.timeout.ms": "45000"}))
        wire = stack.enter_context(cluster.wire())
        scene = plant_all(cluster, wire)
        # The live transaction must not be reported.
        planted = {one.topic for one in scene.planted} - {"backfill"}
        hook = Hook(refuse_every=3)
        stack.callback(hook.close)
        up = ScanConfig(cluster.bootstrap_servers, engine="threads", late_after_ms=50_000)

        def sweep(config: ScanConfig, history: History) -> Scan:
            if config.bootstrap_servers == up.bootstrap_servers:
                used.sample()
            return find_hanging(config, history=history)

        watch = Watch(
            {"up": up, "down": ScanConfig("127.0.0.1:1", engine="threads")},
            access=Access("127.0.0.1", 0),
            interval_s=0.05,
            sweep=sweep,
            say=said.append,
            targets=(Target(hook.url, SHAPES["json"]),),
        )
        started_s = time.monotonic()
        watch.start()
        (swept, down) = watch.clusters
        accused: set[str] = set()
        fates: Counter[str] = Counter()
        next_scrape = next_fault = 0
        fault: threading.Thread | None = None
        while (done := sum(swept.watched.sweeps.values())) < sweeps:
            time.sleep(0.02)
            scan = swept.watched.scan
            if scan is not None:
                accused |= {j.observation.topic for j in scan.candidates}
            if done < next_scrape:
                continue
            next_scrape = done + SCRAPE_EVERY
            urllib.request.urlopen(f"{watch.endpoint.url}/metrics", timeout=30).close()
            if done >= next_fault and (fault is None or not fault.is_alive()):
                next_fault = done + max(20, sweeps // 20)
                kind = rng.choice(("kill", "stop", "pause"))
                fates[kind] += 1
                fault = threading.Thread(target=_strike, args=(cluster, kind, rng.choice(cluster.broker_ids)))
                fault.start()
        if fault is not None:
            fault.join()
        took_s = time.monotonic() - started_s

        # A marker ends an incident, which must be notified.
        late = orphan(wire, "watched")
        wait_until(lambda: ("watched", "opened") in hook.counts(), "the new incident was told", 180)
        marker = MarkerToWrite("watched", late.partition, late.producer_id, late.producer_epoch, 0, commit=False)
        (leader,) = {p.leader for p in wire.view(["watched"]).partitions if p.partition == late.partition}
        marker.answered(wire.send(leader, marker.request()))
        wait_until(lambda: ("watched", "closed") in hook.counts(), "its end was told", 180)
        ended = watch.stop()

    wrong = used.grown()
    wrong += [f"{topic} was called a candidate and not planted" for topic in sorted(accused - planted)]
    wrong += [f"{topic} was told {event} {n} times" for (topic, event), n in hook.counts().items() if n != 1]
    wrong += [f"{topic} was told closed" for topic, event in hook.counts() if event == "closed" and topic != "watched"]
    wrong += [] if down.watched.scan is None and not down.watched.up else ["the dead cluster is said to be up"]
    wrong += [] if ended else ["a sweep was left at the end"]
    wrong += [f"not foreseen: {one}" for one in said if "Error:" in one]
    figures = {
        "sweeps": dict(swept.watched.sweeps),
        "sweeps of the dead cluster": dict(down.watched.sweeps),
        "seconds": round(took_s),
        "faults": dict(fates),
        "from the second quarter to the last": used.growth(),
        "told": {f"{topic} {event}": n for (topic, event), n in sorted(hook.counts().items())},
        "lines logged": len(said),
        "violations": wrong,
    }
    return figures, wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program. Returns 1 if a condition is violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.prove.watching", description="A week of watch in small.")
    parser.add_argument("--sweeps", type=int, default=2_000, help="of the cluster that is up")
    parser.add_argument("--seed", type=int, default=1, help="decides the faults")
    options = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="txnscan-watching-"))
    try:
        figures, wrong = run(options.sweeps, seed=options.seed, directory=directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(json.dumps(figures, indent=2))  # noqa: T201
    return 1 if wrong else 0


def _strike(cluster: KafkaCluster, kind: str, broker_id: int) -> None:
    """Breaks a broker for a few seconds, then restores it."""
    if kind == "pause":
        cluster.pause_broker(broker_id)
        time.sleep(3)
        cluster.resume_broker(broker_id)
        cluster.wait_for_brokers(cluster.broker_ids)
        return
    (cluster.kill_broker if kind == "kill" else cluster.stop_broker)(broker_id)
    time.sleep(3)
    cluster.start_broker(broker_id)


def _quarter(values: Sequence[float], quarter: int) -> Sequence[float]:
    size = len(values) // 4
    return values[quarter * size : (quarter + 1) * size]


if __name__ == "__main__":
    sys.exit(main())
