"""`WireCluster`: the brokers of a shape, in processes that end with this process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, cast

from tests.sim.wire.shape import ClusterShape
from tests.sim.wire.world import HOST
from txnscan.kafka.clock import wall_clock_ms

_BOOTSTRAP_SERVERS = 3
_END_S_MAX = 10


@dataclass(frozen=True, slots=True)
class BrokerStats:
    """The requests to one broker since the start or the last reset.

    requests: their number by API name. bytes_by_api: sent in answers, headers included. resets: how often the broker
    closed the connection instead, because of the shape's `reset_every`. A request is in flight from its arrival until
    its answer is handed to the network. Without a latency an answer leaves at once, so only requests that arrive
    together are in flight together.
    """

    requests: Mapping[str, int]
    bytes_by_api: Mapping[str, int]
    resets: int
    in_flight_max: int
    describe_producers_in_flight_max: int

    @property
    def bytes_sent(self) -> int:
        """All bytes that it sent."""
        return sum(self.bytes_by_api.values())


class WireCluster:
    """Brokers of this shape, running as soon as it is created. Close it, or use it as a context manager.

    processes: the number of processes for the brokers. Raises RuntimeError if a process does not start.
    """

    def __init__(self, shape: ClusterShape, processes: int = 2) -> None:
        self.shape = shape
        self._lock = threading.Lock()
        self._children = [_Child() for _ in range(max(1, min(processes, shape.brokers)))]
        try:
            started_at_ms = wall_clock_ms()
            for position, child in enumerate(self._children):
                mine = list(shape.broker_ids)[position :: len(self._children)]
                child.tell({"shape": asdict(shape), "started_at_ms": started_at_ms, "broker_ids": mine})
            heard = [child.hear() for child in self._children]
            self._ports = {int(broker_id): int(port) for ports in heard for broker_id, port in ports.items()}
            self._ask(self._ports)
        except BaseException:
            self.close()
            raise

    @property
    def ports(self) -> Mapping[int, int]:
        """The port of each broker on 127.0.0.1."""
        return dict(sorted(self._ports.items()))

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of the first few brokers."""
        return ",".join(f"{HOST}:{port}" for port in list(self.ports.values())[:_BOOTSTRAP_SERVERS])

    def stats(self) -> dict[int, BrokerStats]:
        """The counts of each broker."""
        answers = {int(broker_id): counts for child in self._ask("stats") for broker_id, counts in child.items()}
        return {broker_id: BrokerStats(**answers[broker_id]) for broker_id in sorted(answers)}

    def reset_stats(self) -> None:
        """Resets all counts to 0."""
        self._ask("reset")

    def pause(self, processes: int | None = None) -> None:
        """Stops the brokers of this many processes, or of all: they accept connections, but do not answer."""
        for child in self._children[:processes]:
            child.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resumes the stopped brokers."""
        for child in self._children:
            child.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Ends the brokers."""
        self.resume()
        for child in self._children:
            child.close()

    def __enter__(self) -> WireCluster:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _ask(self, order: Any) -> list[Any]:
        """Sends the order to all processes at once, then reads each answer."""
        with self._lock:
            for child in self._children:
                child.tell(order)
            return [child.hear() for child in self._children]


class _Child:
    """A process with some of the brokers."""

    def __init__(self) -> None:
        root = str(Path(__file__).parents[3])
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        # Its own process session: Ctrl-C reaches only the process that started it, which then closes it.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.sim.wire.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )

    def tell(self, order: Any) -> None:
        stdin = cast(IO[bytes], self._process.stdin)
        try:
            stdin.write(f"{json.dumps(order)}\n".encode())
            stdin.flush()
        except (OSError, ValueError) as error:
            raise RuntimeError("a process of the wire cluster has ended") from error

    def hear(self) -> Any:
        line = cast(IO[bytes], self._process.stdout).readline()
        if not line:
            raise RuntimeError("a process of the wire cluster has ended")
        return json.loads(line)

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            cast(IO[bytes], self._process.stdin).close()
        try:
            self._process.wait(_END_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        cast(IO[bytes], self._process.stdout).close()


def shape_of(told: Mapping[str, Any]) -> ClusterShape:
    """The shape from `asdict`, after JSON, whose keys are always text."""
    by_broker = {
        name: {int(broker_id): ms for broker_id, ms in told[name].items()} for name in ("slow_brokers", "throttle_ms")
    }
    return ClusterShape(**{**told, **by_broker})
