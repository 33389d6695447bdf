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
    """Redirects /moved to /token, sends /slow a byte at a time, /endless without end, and what a test says as /body."""

    asked: ClassVar[list[str]] = []
    body: ClassVar[bytes] = b""

    def do_GET(self) -> None:
        Endpoint.asked.append(self.path)
        # A server that closes before it has read the request resets the connection, and its answer can be lost.
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with suppress(OSError):
            self.send_response(302 if self.path == "/moved" else 200)
            if self.path == "/moved":
                self.send_header("Location", "/token")
            self.end_headers()
            if self.path == "/body":
                self.wfile.write(Endpoint.body)
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
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
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


# Each is read by some program as a token, and by others as another one or as none.
NO_TOKEN = (
    b'{"access_token": "abc", "access_token": "def"}',
    b'{"access_token": "abc", "expires_in": 60, "expires_in": 9}',
    b'{"access_token": "abc", "x": {"a": 1, "a": 2}}',
    b'{"access_token": "abc", "expires_in": 1' + b"0" * 400 + b"}",
    b'{"access_token": "abc", "expires_in": 1e999}',
    b'{"access_token": "abc", "expires_in": NaN}',
    b'{"access_token": "abc", "expires_in": -1}',
    b'{"access_token": "abc", "expires_in": true}',
    b'{"access_token": "abc", "expires_in": "1_0"}',
    b'{"access_token": "abc", "expires_in": " 10"}',
    '{"access_token": "abc", "expires_in": "\uff11\uff10"}'.encode(),
    b'{"access_token": "abc", "expires_in": null}',
    b'{"access_token": "a b"}',
    b'{"access_token": "a,b"}',
    '{"access_token": "ab\u00e9"}'.encode(),
    b'{"access_token": "a=b"}',
    b'{"access_token": "abc\\u0001auth=Bearer x"}',
    b'{"access_token": ""}',
    b'{"access_token": ["abc"]}',
    b'[{"access_token": "abc"}]',
    '{"access_token": "abc"}'.encode("utf-16"),
    b'{"access_token": "abc"} {}',
    b"[" * 200_000,
)
# What is in the answer, and how long the token then lives, in seconds.
TOKENS = (
    (b'{"access_token": "abc"}', "abc", 60.0),
    (b'{"access_token": "a.b-c_d~e+f/g==", "expires_in": 3600}', "a.b-c_d~e+f/g==", 3600.0),
    (b'{"access_token": "abc", "expires_in": "3599", "token_type": "Bearer"}', "abc", 3599.0),
    (b'{"access_token": "abc", "expires_in": 0.5}', "abc", 0.5),
)


def test_an_answer_that_can_be_read_in_two_ways_gives_no_token() -> None:
    with endpoint() as url, Cases() as cases:
        for body in NO_TOKEN:
            with cases.case(body[:60]):
                Endpoint.body = body
                with pytest.raises(TokenFailed, match="gave no token"):
                    Tokens(OAuthSettings(f"{url}/body", "me", SECRET)).token()


def test_a_token_lives_as_long_as_its_answer_says() -> None:
    with Cases() as cases:
        for body, token, life_s in TOKENS:
            with cases.case(body):
                assert oauth._parsed(body) == (token, life_s)
