"""One HTTP request with a single deadline for connection, TLS, request, status line, headers and body.

The timeout of `urllib` starts again with each piece that arrives, so a peer that sends a byte now and then never
exceeds it. Only the resolution of names is outside this deadline, because the resolver has its own timeouts. A redirect
is an error, because the request may contain a secret.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
import urllib.request
from functools import partial
from typing import Any


class _Moment:
    """A moment in the future, by the monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self._at_s = time.monotonic() + seconds

    def left_s(self) -> float:
        """The seconds until the moment, more than 0. Raises TimeoutError after the moment."""
        left_s = self._at_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        return left_s


def opened(request: urllib.request.Request, seconds: float) -> Any:
    """The answer, as `urllib.request.urlopen` returns it. Reading its body has the same deadline. Raises the same
    errors as `urlopen`.
    """
    deadline = _Moment(seconds)
    opener = urllib.request.build_opener(_Plain(deadline), _Tls(deadline), _NoRedirects)
    return opener.open(request, timeout=seconds)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Makes a redirect a failure: it would turn a POST into a GET without its body."""

    def redirect_request(self, *_: object) -> None:
        """Follows no redirect, so that the answer is an error."""


class _Plain(urllib.request.HTTPHandler):
    def __init__(self, deadline: _Moment) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """See HTTPHandler."""
        return self.do_open(partial(_Connection, deadline=self._deadline), req)


class _Tls(urllib.request.HTTPSHandler):
    def __init__(self, deadline: _Moment) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """See HTTPSHandler."""
        return self.do_open(partial(_TlsConnection, deadline=self._deadline), req)


class _Connection(http.client.HTTPConnection):
    def __init__(self, *arguments: Any, deadline: _Moment, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline = deadline
        self._create_connection = self._connected
        self.response_class = partial(_Answer, deadline=deadline)  # type: ignore[assignment]

    def send(self, data: Any) -> None:
        """See HTTPConnection."""
        if self.sock is not None:
            self.sock.settimeout(self._deadline.left_s())
        super().send(data)

    def _connected(self, address: tuple[str, int], *_: object) -> socket.socket:
        """A connection to the first address of this name that answers. Each address gets its share of the time."""
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
        failed: OSError = TimeoutError("timed out")
        for number, one in enumerate(found):
            host, port = str(one[4][0]), int(one[4][1])
            part_s = self._deadline.left_s() / (len(found) - number)
            try:
                connection = socket.create_connection((host, port), part_s)
            except OSError as error:
                failed = error
            else:
                connection.settimeout(self._deadline.left_s())
                return connection
        raise failed


class _TlsConnection(_Connection, http.client.HTTPSConnection):
    """A TLS connection. The timeout of its socket limits the whole handshake."""


class _Answer(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, deadline: _Moment, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = io.BufferedReader(_Timed(self.fp.detach(), sock, deadline))


class _Timed(io.RawIOBase):
    """Reads from a socket until the deadline."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, deadline: _Moment) -> None:
        self._raw, self._sock, self._deadline = raw, sock, deadline

    def readable(self) -> bool:
        """See RawIOBase."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """See RawIOBase."""
        self._sock.settimeout(self._deadline.left_s())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """See RawIOBase."""
        self._raw.close()
        super().close()
