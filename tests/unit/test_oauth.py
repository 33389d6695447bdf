"""Token endpoints that redirect, drip or never end: secrets stay with the endpoint, and time is bounded."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from tests.cases import Cases
from txnscan.kafka.client.connection import OAuthSettings
from txnscan.kafka.security import oauth
from txnscan.kafka.security.oauth import TokenFailed, Tokens

SECRET = "s3cret"


class Endpoint(BaseHTTPRequestHandler):
    """Redirects /moved to /token, sends /slow a byte at a time, and /endless without end."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        Endpoint.asked.append(self.path)
        with suppress(OSError):
            self.send_response(302 if self.path == "/moved" else 200)
            if self.path == "/moved":
                self.send_header("Location", "/token")
            self.end_headers()
            if self.path == "/token":
                self.wfile.write(b'{"access_token": "abc", "expires_in": 60}')
            while self.path in ("/slow", "/endless"):
                self.wfile.write(b" " if self.path == "/slow" else b" " * 65_536)
                time.sleep(0.02 if self.path == "/slow" else 0)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """See BaseHTTPRequestHandler. Logs no requests."""


@contextmanager
def endpoint() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def test_a_failing_token_endpoint_fails_in_time_without_a_second_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(oauth, "_SECONDS_MAX", 0.5)
    with endpoint() as url, Cases() as cases:
        for path, asked in (("/moved", "redirects"), ("/slow", "cannot be reached"), ("/endless", "gave no token")):
            with cases.case(path):
                Endpoint.asked.clear()
                with pytest.raises(TokenFailed) as failed:
                    Tokens(OAuthSettings(url + path, "me", SECRET)).token()
                assert asked in str(failed.value) and SECRET not in str(failed.value)
                assert Endpoint.asked == [path]
        with cases.case("/token"):
            assert Tokens(OAuthSettings(f"{url}/token", "me", SECRET)).token() == "abc"
