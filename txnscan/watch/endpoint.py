"""The HTTP endpoint: /metrics for Prometheus, /healthz and /readyz for the platform that runs the process.

/healthz and /readyz need no password: probes have no password, and the answers reveal no data. They do not depend on
whether brokers or clusters are up: if one cluster cannot be swept, the metrics of the others must still be scraped. But
a sweep that neither ends nor fails needs a new process, so then /healthz is 503.

Slow clients cannot block others. Each request has one deadline, from the connection to the last byte. If all places are
taken, the connection whose request head has been incomplete for longest is closed. A probe sends its head at once.
"""

from __future__ import annotations

import base64
import hmac
import re
import socket
import ssl
import threading
import time
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
from txnscan.kafka.topology import PORT_MAX

REQUESTS_MAX = 32
# From the connection to the last byte of the answer.
REQUEST_S_MAX = 10.0
_ROOM_S_MAX = 1.0
# Metrics change with sweeps. Within this time all requests get the same text: to write it takes 50 ms of the process.
FRESH_S = 1.0
_OPEN_METRICS = "application/openmetrics-text"
_USER = re.compile(r"[^:\s]+:\S.*")


@dataclass(frozen=True, slots=True)
class Tls:
    """The PEM files of the endpoint. client_ca: the CA of client certificates, if clients must have a certificate."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """The address and the access control of the endpoint. users: passwords by name; if empty, /metrics is public."""

    host: str
    port: int
    tls: Tls | None = None
    users: Mapping[str, str] = field(default_factory=dict, repr=False)


def parse_listen(text: str) -> tuple[str, int]:
    """The host and port of "host:port", "[::1]:9464" or ":9464" (all addresses). Raises ConfigError."""
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^\s:\[\]/]*)):(\d{1,9})", text, re.ASCII)
    if match is None:
        raise ConfigError("--listen", f"'{printable(text)}' is not host:port; write 127.0.0.1:9464, or :9464 for all")
    if int(match[3]) > PORT_MAX:
        raise ConfigError("--listen", f"port {match[3]} is not between 0 and {PORT_MAX}")
    return match[1] or match[2], int(match[3])


def parse_users(text: str, option: str) -> dict[str, str]:
    """Passwords by name, from lines `name:password`. Raises ConfigError, without any name or password in its
    message.
    """
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    for number, line in lines:
        if not _USER.fullmatch(line):
            raise ConfigError(option, f"line {number} is not name:password")
    if not lines:
        raise ConfigError(option, "holds no name:password")
    return dict(line.split(":", 1) for _, line in lines)


class Endpoint:
    """Listens as soon as it is created, and serves after `start`. Close it. Raises ConfigError.

    alive, ready: called for each request of /healthz and /readyz.
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
        app = _app(_written_once(make_wsgi_app(registry)), access.users, alive, ready)
        everywhere = not access.host
        both = everywhere and socket.has_dualstack_ipv6()
        host = access.host or ("::" if both else "0.0.0.0")  # noqa: S104

        class Server(_Server):
            """A server with this endpoint's address family and TLS."""

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
        """Starts serving."""
        self._thread.start()

    def close(self) -> None:
        """Stops listening."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # Without a password function, OpenSSL would ask the terminal.
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
            return plain(
                start,
                *(("200 OK", "ok") if alive() else ("503 Service Unavailable", "a sweep has stopped, or is overdue")),
            )
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


def _written_once(metrics: Callable[..., Any]) -> Callable[..., Iterable[bytes]]:
    """Writes the metrics once in FRESH_S for each of the two formats, compressed or not, one at a time. Other parts of
    a request are ignored: a client must not choose how often they are written.
    """
    lock = threading.Lock()
    kept: dict[tuple[str, str], tuple[float, Any, bytes]] = {}

    def app(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("REQUEST_METHOD") != "GET":
            return metrics(environ, start)  # type: ignore[no-any-return]
        accept = f"{_OPEN_METRICS}; version=1.0.0" if _OPEN_METRICS in environ.get("HTTP_ACCEPT", "") else ""
        encoding = "gzip" if "gzip" in environ.get("HTTP_ACCEPT_ENCODING", "").lower() else ""
        with lock:
            found = kept.get((accept, encoding))
            if found is None or time.monotonic() - found[0] >= FRESH_S:
                said: list[Any] = []
                asked = {"REQUEST_METHOD": "GET", "PATH_INFO": "/metrics", "QUERY_STRING": ""}
                asked |= {"HTTP_ACCEPT": accept, "HTTP_ACCEPT_ENCODING": encoding}
                body = b"".join(metrics(asked, lambda *answer: said.append(answer)))
                found = kept[accept, encoding] = (time.monotonic(), said[-1], body)
        start(*found[1])
        return [found[2]]

    return app


def _is_known(authorization: str, users: Mapping[str, str]) -> bool:
    scheme, _, encoded = authorization.partition(" ")
    try:
        name, _, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except ValueError:
        # The text is not Base64, not ASCII, or not UTF-8.
        return False
    expected = users.get(name)
    # Compare even if the name is unknown, so that the duration reveals no names.
    same = hmac.compare_digest(password.encode(), (expected or "").encode())
    return scheme.lower() == "basic" and expected is not None and same


class _Handler(WSGIRequestHandler):
    """Logs no requests, and informs the server when the head of a request has been read."""

    def parse_request(self) -> bool:
        """See BaseHTTPRequestHandler."""
        is_right = super().parse_request()
        if isinstance(self.server, _Server):
            self.server.head_is_read(self.connection)
        return is_right

    def log_message(self, format: str, *arguments: Any) -> None:
        """Logs no message."""


class _Server(ThreadingWSGIServer):
    """Serves a limited number of requests at a time. The TLS handshake runs in the request's thread, so a slow client
    delays only itself.
    """

    # With Python's default of 5, a probe waits for seconds behind clients that all connect at once.
    request_queue_size = 128
    dual_stack = False
    tls: ssl.SSLContext | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._free = threading.BoundedSemaphore(REQUESTS_MAX)
        # The connections whose heads are being read, oldest first.
        self._reading: dict[Any, None] = {}
        self._lock = threading.Lock()
        super().__init__(*arguments, **options)

    def server_bind(self) -> None:
        """Binds without a DNS query for this machine's name."""
        if self.dual_stack:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def get_request(self) -> tuple[Any, Any]:
        """Accepts a connection. Its TLS handshake runs at its first read, in its own thread."""
        connection, address = super().get_request()
        if self.tls is None:
            return connection, address
        return self.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answers in a thread. If too many requests are being answered, closes the connection."""
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
        """From now on the request keeps its place."""
        with self._lock:
            self._reading.pop(request, None)

    def _make_room(self) -> None:
        """Disconnects the client whose head has been incomplete for longest."""
        with self._lock:
            oldest = next(iter(self._reading), None)
            if oldest is not None:
                del self._reading[oldest]
        if oldest is not None:
            _disconnect(oldest)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores the error: a disconnected client, or one without TLS, is not an error of this process."""


def _disconnect(connection: socket.socket) -> None:
    """Wakes the thread that reads or writes this connection. That thread closes it."""
    with suppress(OSError):
        # For TLS, shut down the connection beneath: the handshake may be incomplete.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
