"""Free ports on 127.0.0.1."""

from __future__ import annotations

import secrets
import socket

from txnscan.demo.errors import DemoError
from txnscan.kafka.topology import PORT_MAX

HOST = "127.0.0.1"
# Below the range that Linux uses for outgoing connections: a connection between brokers must not take a port that
# another broker is about to listen on.
_FREE = range(20_000, 32_000)


def choose_ports(count: int, base_port: int | None = None) -> list[int]:
    """This many free ports: consecutive from `base_port`, or any. Raises DemoError if a port is taken."""
    if base_port is None:
        candidates = secrets.SystemRandom().sample(_FREE, len(_FREE))
        free = [port for port in candidates[: 20 * count] if _is_free(port)][:count]
        if len(free) < count:
            raise DemoError(f"no {count} free ports were found on {HOST}")
        return free
    if not 0 < base_port <= PORT_MAX - count + 1:
        raise DemoError(f"the base port must be between 1 and {PORT_MAX - count + 1}, and {base_port} is not")
    ports = list(range(base_port, base_port + count))
    for port in ports:
        if not _is_free(port):
            raise DemoError(
                f"port {port} on {HOST} is taken, and {count} ports from {base_port} on are needed; "
                "stop what listens there or choose another base port"
            )
    return ports


def _is_free(port: int) -> bool:
    with socket.socket() as attempt:
        # As Java does: ignore connections that linger after a close.
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((HOST, port))
        except OSError:
            return False
        return True


def is_listening(port: int) -> bool:
    """Whether a server accepts connections at that port."""
    with socket.socket() as attempt:
        attempt.settimeout(1.0)
        return attempt.connect_ex((HOST, port)) == 0
