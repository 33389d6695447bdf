"""The HTTP endpoint: /metrics for Prometheus, /healthz and /readyz for whoever runs the process.

/healthz and /readyz need no password: they reveal nothing, and probes have none. A broker or a cluster that is down
changes neither: where one cluster cannot be swept, the metrics of the others must still be scraped.

Slow clients keep nobody out. A request has one deadline for all of it. If all places are taken, the connection that has
waited longest for the end of its request's head makes room. A probe sends its head at once.
"""

from __future__ import annotations

import base64
import hmac
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from socketserver import TCPServer
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from txnscan.config import ConfigError, printable

REQUESTS_MAX = 32
# From the connection to the last byte of the answer.
REQUEST_S_MAX = 10.0
_ROOM_S_MAX = 1.0
_USER = re.compile(r"[^:\s]+:\S.*")


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files of the endpoint. client_ca: who signs the certificates that clients must have, if they must."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """How the endpoint is reached. users: passwords by name; none: /metrics is for everybody."""

    host: str
    port: int
    tls: Tls | None = None
    users: Mapping[str, str] = field(default_factory=dict, repr=False)


def parse_listen(text: str) -> tuple[str, int]:
    """Host and port of "host:port", "[::1]:9464" and ":9464", which is every address. Raises ConfigError."""
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^\s:\[\]/]*)):(\d{1,5})", text)
    if match is None or int(match[3]) > 65_535:
        raise ConfigError("--listen", f"'{printable(text)}' is not host:port; write 127.0.0.1:9464, or :9464 for all")
    return match[1] or match[2], int(match[3])


def parse_users(text: str, option: str) -> dict[str, str]:
    """Passwords by name, of lines `name:password`. Raises ConfigError, which repeats none of them."""
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    for number, line in lines:
        if not _USER.fullmatch(line):
            raise ConfigError(option, f"line {number} is not name:password")
    if not lines:
        raise ConfigError(option, "holds no name:password")
    return dict(line.split(":", 1) for _, line in lines)


class Endpoint:
    """Listens from here on; serves from `start` on. Close it. Raises ConfigError.

    alive, ready: asked whenever /healthz and /readyz are.
    """

    def __init__(
        self,
        access: Access,
        registry: CollectorRegistry,
        *,
        alive: Callable[[], bool],
        ready: Callable[[], bool],
    ) -> None:
        context = _context(access.tls) if access.tls is not None else None
        app = _app(make_wsgi_app(registry), access.users, alive, ready)
        everywhere = not access.host
        both = everywhere and socket.has_dualstack_ipv6()
        host = access.host or ("::" if both else "0.0.0.0")  # noqa: S104

        class Server(_Server):
            """With this endpoint's address family and TLS."""

            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            dual_stack = both
            tls = context

        try:
            self._server = make_server(host, access.port, app, Server, _Handler)
        except (OSError, UnicodeError) as error:
            why = (getattr(error, "strerror", None) or "no such address").lower()
            raise ConfigError(
                "--listen", f"{printable(access.host)}:{access.port} cannot be listened at: {why}"
            ) from None
        scheme = "https" if context is not None else "http"
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{scheme}://{'localhost' if everywhere else shown}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="txnscan-endpoint", daemon=True)

    def start(self) -> None:
        """Serves from here on."""
        self._thread.start()

    def close(self) -> None:
        """Ends listening."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # Without a function that gives it, OpenSSL asks the terminal for a password.
        context.load_cert_chain(tls.certificate, tls.key, password=lambda: b"")
    except (OSError, ValueError) as error:
        files = f"{tls.certificate} and {tls.key}"
        raise ConfigError("--tls-cert", f"{printable(files)} cannot be used: {_reason(error)}") from None
    if tls.client_ca is not None:
        try:
            context.load_verify_locations(tls.client_ca)
        except (OSError, ValueError) as error:
            raise ConfigError(
                "--tls-client-ca", f"{printable(str(tls.client_ca))} cannot be used: {_reason(error)}"
            ) from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _reason(error: Exception) -> str:
    return printable(str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error))


def _app(
    metrics: Callable[..., Any], users: Mapping[str, str], alive: Callable[[], bool], ready: Callable[[], bool]
) -> Callable[..., Iterable[bytes]]:
    def plain(start: Callable[..., Any], status: str, text: str, *headers: tuple[str, str]) -> Iterable[bytes]:
        start(status, [("Content-Type", "text/plain; charset=utf-8"), *headers])
        return [f"{text}\n".encode()]

    def app(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/healthz":
            return plain(start, *(("200 OK", "ok") if alive() else ("503 Service Unavailable", "a sweep has stopped")))
        if path == "/readyz":
            return plain(start, *(("200 OK", "ok") if ready() else ("503 Service Unavailable", "not yet swept")))
        if users and not _is_known(environ.get("HTTP_AUTHORIZATION", ""), users):
            return plain(
                start, "401 Unauthorized", "name and password needed", ("WWW-Authenticate", "Basic realm=txnscan")
            )
        if path != "/metrics":
            return plain(start, "404 Not Found", "/metrics, /healthz and /readyz are here")
        return metrics(environ, start)  # type: ignore[no-any-return]

    return app


def _is_known(authorization: str, users: Mapping[str, str]) -> bool:
    scheme, _, encoded = authorization.partition(" ")
    try:
        name, _, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except ValueError:
        # What is not Base64, not ASCII, or not UTF-8.
        return False
    expected = users.get(name)
    # Compared also where the name is unknown, so that the time reveals nothing about names.
    same = hmac.compare_digest(password.encode(), (expected or "").encode())
    return scheme.lower() == "basic" and expected is not None and same


class _Handler(WSGIRequestHandler):
    """Logs no requests, and tells the server when a request's head is read."""

    def parse_request(self) -> bool:
        """See BaseHTTPRequestHandler."""
        is_right = super().parse_request()
        if isinstance(self.server, _Server):
            self.server.head_is_read(self.connection)
        return is_right

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing."""


class _Server(ThreadingWSGIServer):
    """A bounded number of requests at a time; TLS in the thread of the request, so that no client holds up others."""

    # With Python's 5 a probe waits for seconds behind clients that all connect at once.
    request_queue_size = 128
    dual_stack = False
    tls: ssl.SSLContext | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._free = threading.BoundedSemaphore(REQUESTS_MAX)
        # The connections whose heads are being read, the oldest first.
        self._reading: dict[Any, None] = {}
        self._lock = threading.Lock()
        super().__init__(*arguments, **options)

    def server_bind(self) -> None:
        """Binds, and asks no name server for this machine's name."""
        if self.dual_stack:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def get_request(self) -> tuple[Any, Any]:
        """A connection. Its handshake is made when it is first read from, in a thread of its own."""
        connection, address = super().get_request()
        if self.tls is None:
            return connection, address
        return self.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answers in a thread, or not at all if too many are being answered."""
        if not self._free.acquire(blocking=False):
            self._make_room()
            if not self._free.acquire(timeout=_ROOM_S_MAX):
                self.shutdown_request(request)
                return
        with self._lock:
            self._reading[request] = None
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """See ThreadingMixIn."""
        deadline = threading.Timer(REQUEST_S_MAX, _disconnect, [request])
        deadline.daemon = True
        deadline.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            deadline.cancel()
            self.head_is_read(request)
            self._free.release()

    def head_is_read(self, request: Any) -> None:
        """The request keeps its place from here on."""
        with self._lock:
            self._reading.pop(request, None)

    def _make_room(self) -> None:
        """Disconnects the client that has been sending its head for longest."""
        with self._lock:
            oldest = next(iter(self._reading), None)
            if oldest is not None:
                del self._reading[oldest]
        if oldest is not None:
            _disconnect(oldest)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Does nothing: that a client breaks off, or speaks no TLS, is not an error of this process."""


def _disconnect(connection: socket.socket) -> None:
    """Wakes the thread that reads from it or writes to it. That thread closes it."""
    with suppress(OSError):
        # Of TLS the connection beneath: the handshake may not be over.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
