"""A TCP proxy on this machine for one broker's port. It can cut off clients of Kafka's protocol by their client ids."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from txnscan.demo.ports import HOST

_CHUNK = 1 << 16
# The size of a request, its API, version and correlation id come before the length of the client id.
_CLIENT_ID_AT = 4 + 2 + 2 + 4
_LENGTH = struct.Struct(">h")


class Proxy:
    """Forwards connections to a port, given when a client connects. Use it as a context manager."""

    def __init__(self, target: Callable[[], int]) -> None:
        self._target = target
        self._server = socket.create_server((HOST, 0))
        self.port: int = self._server.getsockname()[1]
        self._lock = threading.Lock()
        self._connections: list[tuple[str, socket.socket]] = []
        self._cut_off: frozenset[str] = frozenset()
        self._is_closed = False
        _start(self._accept)

    def cut_off(self, *client_ids: str) -> None:
        """Ends the connections of these clients, and takes no more from them."""
        with self._lock:
            self._cut_off |= {*client_ids}
            for client_id, one in self._connections:
                if client_id in self._cut_off:
                    _end(one)

    def let_in(self, *client_ids: str) -> None:
        """Takes connections from these clients again."""
        with self._lock:
            self._cut_off -= {*client_ids}

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._is_closed = True
            for _, one in self._connections:
                _end(one)
        _end(self._server)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                _start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        there = None
        with suppress(OSError):
            first = client.recv(_CHUNK)
            there = socket.create_connection((HOST, self._target()))
            with self._lock:
                client_id = _client_id(first)
                if first and not self._is_closed and client_id not in self._cut_off:
                    self._connections += ((client_id, client), (client_id, there))
                    there.sendall(first)
                    _start(_forward, client, there)
                    _start(_forward, there, client)
                    return
        for one in (client, there):
            if one is not None:
                _end(one)


def _client_id(request: bytes) -> str:
    """The client id in the head of a request, which comes in one piece."""
    if len(request) < _CLIENT_ID_AT + _LENGTH.size:
        return ""
    (length,) = _LENGTH.unpack_from(request, _CLIENT_ID_AT)
    start = _CLIENT_ID_AT + _LENGTH.size
    return request[start : start + max(length, 0)].decode()


def _start(work: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=work, args=arguments, daemon=True).start()


def _forward(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            sink.sendall(data)
    _end(source)
    _end(sink)


def _end(one: socket.socket) -> None:
    # A thread may wait in it: closing alone would not wake that.
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
