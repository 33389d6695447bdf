"""HTTP servers, polite ones and others."""

from __future__ import annotations

import itertools
import json
import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "T0-B0-hunter2"


class Hook:
    """A server that accepts POSTs. answers: the statuses of the next answers, then 200."""

    def __init__(self) -> None:
        self.received: list[tuple[str, str | None, Any]] = []
        self.answers: list[int] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = hook.answers.pop(0) if hook.answers else 200
                hook.received.append((self.path, self.headers["Authorization"], json.loads(body)))
                self.send_response(status)
                if status in (301, 302, 307):
                    self.send_header("Location", f"{hook.url}/elsewhere")
                self.end_headers()

            def do_GET(self) -> None:
                hook.received.append(("GET " + self.path, None, None))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


SECONDS_MAX = 60.0
HTTP_DEADLINE_S, DRIP_S = 0.5, 0.05


class HttpPeer:
    """A server that answers each connection with `first`, and then with the bytes of `again` until it is closed. It
    waits if `again` is empty, and closes the connection if there is no `again`.
    """

    def __init__(self, first: bytes, again: bytes | None = None) -> None:
        self._first, self._again = first, again
        self._closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._threads.append(threading.Thread(target=self._drip, args=(connection,), daemon=True))
                self._threads[-1].start()

    def _drip(self, connection: socket.socket) -> None:
        """Sends until its client disconnects or it is closed."""
        with connection, suppress(OSError):
            connection.sendall(self._first)
            if self._again is None:
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(64 * 1024):
                    pass
                return
            for byte in itertools.cycle(self._again or b"\0"):
                if self._closed.wait(DRIP_S):
                    return
                if self._again:
                    connection.sendall(bytes([byte]))

    def __enter__(self) -> HttpPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(SECONDS_MAX)
