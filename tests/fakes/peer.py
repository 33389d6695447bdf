"""A broker on a socket, which answers as a test says."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kafka.protocol.admin import ListTransactionsRequest, ListTransactionsResponse
from kafka.protocol.metadata import ApiVersionsResponse
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

from tests.fakes.cluster import ADDRESS
from txnscan.kafka.client.connection import ConnectionSettings

METADATA, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE, LIST_TRANSACTIONS = 3, 17, 18, 36, 66
FETCH = 1
SOON = ConnectionSettings(request_timeout_ms=300, connection_setup_timeout_ms=300)
SILENCE = b""
CLOSE = object()
# The answer of a broker by (api key, version, correlation id). None is the regular answer.
Misbehave = Callable[[int, int, int], Any]


def framed(response: Any, correlation_id: int) -> bytes:
    response.with_header(correlation_id=correlation_id)
    return bytes(response.encode(header=True, framed=True))


def listing(correlation_id: int, version: int = 0, throttle_ms: int = 0) -> bytes:
    state = ListTransactionsResponse.TransactionState(transactional_id="tx", producer_id=7, transaction_state="Empty")
    answer = ListTransactionsResponse(version=version, throttle_time_ms=throttle_ms, transaction_states=[state])
    return framed(answer, correlation_id)


class FakeBroker:
    """A broker on a local port that supports ApiVersions, SASL and ListTransactions, and can misbehave."""

    def __init__(self, misbehave: Misbehave = lambda *_: None, *, port: int = 0, modern: bool = False) -> None:
        self._misbehave, self._modern = misbehave, modern
        self._listener = socket.create_server((ADDRESS, port))
        self.port = self._listener.getsockname()[1]
        # Set when a Metadata request arrives. No test here sends one.
        self.asked_for_metadata = threading.Event()
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as received:
            try:
                while len(length := received.read(4)) == 4:
                    request = received.read(struct.unpack(">i", length)[0])
                    answer = self._answer(*struct.unpack(">hhi", request[:8]))
                    if answer is CLOSE:
                        connection.shutdown(socket.SHUT_RDWR)
                        return
                    for piece in [answer] if isinstance(answer, bytes) else answer:
                        connection.sendall(piece)
            except (OSError, struct.error, ValueError):
                return

    def _answer(self, key: int, version: int, correlation_id: int) -> Any:
        if key == METADATA:
            self.asked_for_metadata.set()
        spoiled = self._misbehave(key, version, correlation_id)
        return self._well(key, version, correlation_id) if spoiled is None else spoiled

    def _well(self, key: int, version: int, correlation_id: int) -> bytes:
        if key == LIST_TRANSACTIONS:
            return listing(correlation_id, version)
        if key == SASL_HANDSHAKE:
            return framed(SaslHandshakeResponse(version=version, error_code=0, mechanisms=["PLAIN"]), correlation_id)
        if key == SASL_AUTHENTICATE:
            refused = SaslAuthenticateResponse(version=version, error_code=58, error_message="no", auth_bytes=b"")
            return framed(refused, correlation_id)
        versions = {METADATA: 1, SASL_HANDSHAKE: 1, API_VERSIONS: 3, SASL_AUTHENTICATE: 1, LIST_TRANSACTIONS: 0}
        # kafka-python pauses throttled clients only for brokers of 2.0 and newer, which it recognizes by their Fetch
        # version.
        keys = [
            ApiVersionsResponse.ApiVersion(api_key=k, min_version=0, max_version=v)
            for k, v in (versions | ({FETCH: 8} if self._modern else {})).items()
        ]
        return framed(ApiVersionsResponse(version=version, error_code=0, api_keys=keys), correlation_id)

    def close(self) -> None:
        for open_socket in (self._listener, *self._connections):
            open_socket.close()


@contextmanager
def starting() -> Iterator[Callable[..., FakeBroker]]:
    """Starts brokers, which end with the context."""
    started: list[FakeBroker] = []

    def begin(*arguments: Any, **options: Any) -> FakeBroker:
        started.append(FakeBroker(*arguments, **options))
        return started[-1]

    yield begin
    for one in started:
        one.close()


def instead(answer: Any) -> Misbehave:
    """Answers ApiVersions correctly and everything else with this. A function gets the correlation id."""
    return lambda key, _, correlation_id: (
        None if key == API_VERSIONS else answer(correlation_id) if callable(answer) else answer
    )


def ask() -> Any:
    return ListTransactionsRequest(state_filters=[], producer_id_filters=[])


DRIP_S = 0.05


def dripped(correlation_id: int) -> Iterator[bytes]:
    """An answer of 100 KB, a byte at a time."""
    for byte in itertools.chain(struct.pack(">ii", 100_000, correlation_id), itertools.repeat(0)):
        yield bytes([byte])
        time.sleep(DRIP_S)
