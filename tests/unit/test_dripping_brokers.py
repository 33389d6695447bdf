"""A broker that drips its bytes, or answers without an end, at any step of a connection ends at the limit of its sweep.

Every byte restarts the timeout of a socket, and every answer restarts the timeout of a request.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.metadata import ApiVersionsResponse
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

from tests.cases import Cases
from tests.fakes.cluster import broker
from tests.fakes.http import HttpPeer
from tests.fakes.peer import (
    API_VERSIONS,
    FETCH,
    LIST_TRANSACTIONS,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    ask,
    dripped,
    framed,
    listing,
    starting,
)
from txnscan.kafka.client.client import Client, Send
from txnscan.kafka.client.connection import ConnectionSettings, TlsSettings
from txnscan.kafka.client.deadline import Deadline
from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.describe_producers import describe_open, describe_producers
from txnscan.kafka.protocol.fetch import fetch, fetch_committed
from txnscan.kafka.protocol.list_offsets import high_watermark
from txnscan.kafka.protocol.metadata import MetadataRound, read_metadata
from txnscan.kafka.topology import Partition

LIST_OFFSETS, DESCRIBE_PRODUCERS = 2, 61
LIMIT_MS, LATE_S = 500, 2.0
# A session lasts at least a second for kafka-python.
SESSION_LIMIT_MS = 2_500
BYTES_MAX = 32 << 20
# Much longer than any test: only the limit of the sweep can end a request.
LONG_MS = 600_000
PARTITION = Partition("t", "00000000-0000-0000-0000-000000000001", 0, 1, 1)


def settings(mechanism: str | None = None, *, tls: bool = False) -> ConnectionSettings:
    protocol = ("SASL_" if mechanism else "") + ("SSL" if tls else "PLAINTEXT")
    return ConnectionSettings(
        protocol,
        TlsSettings() if tls else None,
        mechanism,
        "u",
        "p",
        kerberos_service="kafka" if mechanism == "GSSAPI" else None,
        request_timeout_ms=LONG_MS,
        connection_setup_timeout_ms=LONG_MS,
    )


def versions(version: int, correlation_id: int) -> bytes:
    """A broker that supports everything."""
    keys = [ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=20) for key in range(90)]
    return framed(ApiVersionsResponse(version=version, error_code=0, api_keys=keys), correlation_id)


def handshake(mechanism: str, version: int, correlation_id: int) -> bytes:
    return framed(SaslHandshakeResponse(version=version, error_code=0, mechanisms=[mechanism]), correlation_id)


def authenticated(version: int, correlation_id: int, token: bytes = b"", lifetime_ms: int = 0) -> bytes:
    answer = SaslAuthenticateResponse(
        version=version, error_code=0, error_message=None, auth_bytes=token, session_lifetime_ms=lifetime_ms
    )
    return framed(answer, correlation_id)


def dripping_at(step: int, mechanism: str = "PLAIN") -> Callable[[int, int, int], Any]:
    def answer(key: int, version: int, correlation_id: int) -> Any:
        if key == step:
            return dripped(correlation_id)
        if key == API_VERSIONS:
            return versions(version, correlation_id)
        if key == SASL_HANDSHAKE:
            return handshake(mechanism, version, correlation_id)
        return authenticated(version, correlation_id)

    return answer


# The step, the request of the client, and its mechanism.
STEPS: tuple[tuple[str, int, Callable[[Send], object], str | None], ...] = (
    ("ApiVersions", API_VERSIONS, lambda send: send(1, ask()), None),
    ("SaslHandshake", SASL_HANDSHAKE, lambda send: send(1, ask()), "PLAIN"),
    ("SaslAuthenticate, PLAIN", SASL_AUTHENTICATE, lambda send: send(1, ask()), "PLAIN"),
    ("SaslAuthenticate, SCRAM", SASL_AUTHENTICATE, lambda send: send(1, ask()), "SCRAM-SHA-256"),
    ("Metadata", METADATA, lambda send: read_metadata(send, 1), None),
    ("Metadata after authentication", METADATA, lambda send: read_metadata(send, 1), "PLAIN"),
    ("Metadata of a round", METADATA, lambda send: MetadataRound().ask(send, 1), None),
    ("DescribeProducers", DESCRIBE_PRODUCERS, lambda send: describe_producers(send, 1, {"t": [0]}), None),
    ("DescribeProducers, open ones", DESCRIBE_PRODUCERS, lambda send: describe_open(send, 1, {"t": [0]}), None),
    ("ListOffsets", LIST_OFFSETS, lambda send: high_watermark(send, PARTITION), None),
    ("Fetch", FETCH, lambda send: fetch(send, PARTITION, 0, 1_000, records=True), None),
    ("Fetch of committed records", FETCH, lambda send: fetch_committed(send, PARTITION, 0, 1_000), None),
)


def assert_ends(port: int, request: Callable[[Send], object], how: ConnectionSettings) -> None:
    """Repeats the request until the limit, as a sweep does. It ends soon after, and with little memory."""
    deadline, began_s = Deadline.after(LIMIT_MS), time.monotonic()
    tracemalloc.start()
    try:
        with Client(how, [broker(1, port)], deadline=deadline) as client:
            while not deadline.is_up:
                with pytest.raises(RequestFailed):
                    request(client.send)
        assert tracemalloc.get_traced_memory()[1] < BYTES_MAX
    finally:
        tracemalloc.stop()
    assert time.monotonic() - began_s < LIMIT_MS / 1_000 + LATE_S


def test_a_broker_that_drips_ends_at_the_limit_in_every_step() -> None:
    with Cases() as cases, starting() as start:
        for name, step, request, mechanism in STEPS:
            with cases.case(name):
                peer = start(dripping_at(step, mechanism or "PLAIN"))
                assert_ends(peer.port, request, settings(mechanism))
        with cases.case("TLS handshake"), HttpPeer(b"\x16\x03\x03\x3f\xff\x02", b"\0") as tls:
            assert_ends(tls.port, lambda send: send(1, ask()), settings(tls=True))
        with cases.case("TLS handshake before SASL"), HttpPeer(b"\x16\x03\x03\x3f\xff\x02", b"\0") as tls:
            assert_ends(tls.port, lambda send: send(1, ask()), settings("PLAIN", tls=True))


class Counted:
    """A broker with this answer to some requests. Counts its requests."""

    def __init__(self, answer: Callable[[int, int, int], Any]) -> None:
        self._answer = answer
        self.requests: Counter[int] = Counter()

    def __call__(self, key: int, version: int, correlation_id: int) -> Any:
        self.requests[key] += 1
        return self._answer(key, version, correlation_id)


def unsupported(key: int, version: int, correlation_id: int) -> Any:
    """Sends the client from one version of ApiVersions to the next without an end."""
    return framed(ApiVersionsResponse(version=version, error_code=35, api_keys=[]), correlation_id)


def more_tokens(size: int) -> Callable[[int, int, int], Any]:
    """Never ends the exchange of tokens."""

    def answer(key: int, version: int, correlation_id: int) -> Any:
        if key == SASL_AUTHENTICATE:
            return authenticated(version, correlation_id, b"\0" * size)
        return dripping_at(-1, "GSSAPI")(key, version, correlation_id)

    return answer


class EndlessContext:
    """A context of `gssapi` that takes every token and wants another."""

    complete = False

    def __init__(self, **_: object) -> None: ...

    def step(self, _: bytes | None) -> bytes:
        return b"ticket"


@pytest.fixture
def endless_gssapi(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("gssapi")
    name = SimpleNamespace(canonicalize=lambda _: None)
    of_module = {
        "Name": lambda *_, **__: name,
        "SecurityContext": EndlessContext,
        "NameType": SimpleNamespace(hostbased_service=1),
        "MechType": SimpleNamespace(kerberos=1),
    }
    vars(module).update(of_module, __spec__=ModuleSpec("gssapi", None))
    monkeypatch.setitem(sys.modules, "gssapi", module)


@pytest.mark.usefixtures("endless_gssapi")
def test_an_exchange_without_an_end_ends_at_the_limit() -> None:
    """And does not go on behind the back of the sweep."""
    peers = (
        ("versions", unsupported, None),
        ("tokens of no bytes", more_tokens(0), "GSSAPI"),
        ("tokens of some bytes", more_tokens(100), "GSSAPI"),
        ("tokens of almost a megabyte", more_tokens((1 << 20) - 100), "GSSAPI"),
        ("tokens above the limit", more_tokens(1 << 20), "GSSAPI"),
    )
    with Cases() as cases, starting() as start:
        for name, answer, mechanism in peers:
            with cases.case(name):
                counted = Counted(answer)
                deadline = Deadline.after(LIMIT_MS)
                with Client(settings(mechanism), [broker(1, start(counted).port)], deadline=deadline) as client:
                    with pytest.raises(RequestFailed):
                        client.send(1, ask())
                    time.sleep(0.3)
                    before = counted.requests.total()
                    time.sleep(0.3)
                    assert counted.requests.total() == before
                assert_ends(start(answer).port, lambda send: send(1, ask()), settings(mechanism))


def with_lifetime(lifetime_ms: int, again: Callable[[int, int], Any]) -> Counted:
    """Authenticates clients for this time. again: the answer to each later authentication."""

    def answer(key: int, version: int, correlation_id: int) -> Any:
        if key == SASL_AUTHENTICATE and counted.requests[key] > 1:
            return again(version, correlation_id)
        if key == SASL_AUTHENTICATE:
            return authenticated(version, correlation_id, lifetime_ms=lifetime_ms)
        if key == LIST_TRANSACTIONS:
            return listing(correlation_id, version)
        return dripping_at(-1)(key, version, correlation_id)

    counted = Counted(answer)
    return counted


# The lifetime of the session, the answer to the next authentication, and whether requests after it are answered.
SESSIONS: tuple[tuple[str, int, Callable[[int, int], Any], bool], ...] = (
    ("a negative lifetime", -1, authenticated, True),
    ("a lifetime of a million years", 2**63 - 1, authenticated, True),
    ("a lifetime of a millisecond", 1, lambda v, c: authenticated(v, c, lifetime_ms=1), True),
    ("the next one drips", 1, lambda v, c: dripped(c), False),
    ("the next one is not answered", 1, lambda v, c: b"", False),
    ("the next one is refused", 1, lambda v, c: framed(refused(v), c), False),
)


def refused(version: int) -> Any:
    return SaslAuthenticateResponse(version=version, error_code=58, error_message="no", auth_bytes=b"")


def test_an_authentication_in_the_middle_of_a_sweep_takes_no_more_than_its_time() -> None:
    """The lifetime of a session is the broker's choice (KIP-368)."""
    with Cases() as cases, starting() as start:
        for name, lifetime_ms, again, answers in SESSIONS:
            with cases.case(name):
                counted = with_lifetime(lifetime_ms, again)
                began_s, deadline = time.monotonic(), Deadline.after(SESSION_LIMIT_MS)
                with Client(settings("PLAIN"), [broker(1, start(counted).port)], deadline=deadline) as client:
                    failed = 0
                    while not deadline.is_up:
                        try:
                            client.send(1, ask())
                        except RequestFailed:
                            failed += 1
                        time.sleep(0.02)
                assert time.monotonic() - began_s < SESSION_LIMIT_MS / 1_000 + LATE_S
                assert counted.requests[SASL_AUTHENTICATE] <= 5
                assert (failed <= 1) == answers
