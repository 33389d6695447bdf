"""Requests to brokers and their answers as bytes.

`Sender` is a `send` for the modules of `txnscan/kafka`. It negotiates versions as the product's client does, and keeps
the body of each request and of each answer. An `Exchange` carries the bytes: to real brokers (`Sockets`), or to a
recording (`Replay`).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, cast

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.frames import AsBytes, Body, api_name
from txnscan.kafka.topology import Broker

API_VERSIONS = ApiVersionsRequest.API_KEY
_CLIENT_ID = b"golden"
_HEADER = struct.Struct(">hhih")
_NO_TAGS = b"\0"
_TIMEOUT_S = 15.0

# The lowest and the highest version of each API, by its key.
Offered = Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to a broker and its answer, both without their headers."""

    broker_id: int
    api: int
    version: int
    request: bytes
    answer: bytes

    @property
    def question(self) -> tuple[int, int, int, bytes]:
        """The request without its answer."""
        return self.broker_id, self.api, self.version, self.request


class Exchange(Protocol):
    """Carries bytes to a broker and back."""

    def offered(self, broker_id: int) -> Offered:
        """The versions that a broker offers. Raises RequestFailed."""

    def exchange(self, broker_id: int, api: int, version: int, flexible: bool, request: bytes) -> bytes:
        """The body of an answer. Raises RequestFailed."""


class Sockets:
    """Carries bytes to real brokers. Close it, or use it as a context manager."""

    def __init__(self, brokers: Iterable[Broker]) -> None:
        self._addresses = {broker.broker_id: (broker.host, broker.port) for broker in brokers}
        self._connections: dict[int, socket.socket] = {}
        self._offered: dict[int, Offered] = {}

    def offered(self, broker_id: int) -> Offered:
        """See Exchange."""
        if broker_id not in self._offered:
            request = ApiVersionsRequest(client_software_name="golden", client_software_version="1")
            body = self.exchange(broker_id, API_VERSIONS, 3, True, bytes(request.encode(version=3)))
            keys = ApiVersionsResponse.decode(body, version=3).api_keys
            self._offered[broker_id] = {key.api_key: (key.min_version, key.max_version) for key in keys}
        return self._offered[broker_id]

    def exchange(self, broker_id: int, api: int, version: int, flexible: bool, request: bytes) -> bytes:
        """See Exchange. A connection that broke is made anew once, because brokers come and go."""
        header = _HEADER.pack(api, version, 7, len(_CLIENT_ID)) + _CLIENT_ID + (_NO_TAGS if flexible else b"")
        frame = header + request
        fresh = broker_id not in self._connections
        try:
            answer = self._carried(broker_id, frame)
        except OSError as error:
            self._forget(broker_id)
            if fresh:
                raise RequestFailed(f"broker {broker_id} cannot be reached: {error}") from None
            return self.exchange(broker_id, api, version, flexible, request)
        tagged = flexible and api != API_VERSIONS
        if tagged and answer[4] != 0:
            raise RequestFailed(f"broker {broker_id} answered with tagged fields in the header")
        return answer[5:] if tagged else answer[4:]

    def _carried(self, broker_id: int, frame: bytes) -> bytes:
        if broker_id not in self._connections:
            self._connections[broker_id] = socket.create_connection(self._addresses[broker_id], _TIMEOUT_S)
        connection = self._connections[broker_id]
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        (length,) = struct.unpack(">i", _received(connection, 4))
        return _received(connection, length)

    def _forget(self, broker_id: int) -> None:
        if (connection := self._connections.pop(broker_id, None)) is not None:
            connection.close()

    def close(self) -> None:
        """Closes all connections."""
        for broker_id in tuple(self._connections):
            self._forget(broker_id)

    def __enter__(self) -> Sockets:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class Replay:
    """Answers with recorded bytes. A request that was recorded several times gets the last answer."""

    def __init__(self, offered: Offered, recorded: Sequence[Asked]) -> None:
        self._offers = offered
        self._answers = {asked.question: asked.answer for asked in recorded}

    def offered(self, _: int) -> Offered:
        """See Exchange."""
        return self._offers

    def exchange(self, broker_id: int, api: int, version: int, _: bool, request: bytes) -> bytes:
        """See Exchange. Raises LookupError for a request that was not recorded."""
        try:
            return self._answers[broker_id, api, version, request]
        except KeyError:
            raise LookupError(
                f"no answer of broker {broker_id} to API {api}, version {version} was recorded for the request "
                f"{request.hex()}; record again with `make record`"
            ) from None


class Sender:
    """A `send(broker_id, request)` that keeps what it carries in `asked`."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.asked: list[Asked] = []

    def __call__(self, broker_id: int, request: Any) -> Any:
        """The broker's answer. Raises RequestFailed, where a broker lacks the API too."""
        offered = self._exchange.offered(broker_id).get(request.API_KEY)
        limits = (getattr(request, "_min_version", None), getattr(request, "_max_version", None))
        version = negotiated(offered, request.max_version, *limits)
        if version is None:
            raise RequestFailed.unsupported(f"broker {broker_id}", api_name(request))
        request.API_VERSION = version
        body = self.raw(broker_id, request, version)
        if isinstance(request, AsBytes):
            return Body(version, body)
        return _decoded(cast(Hashable, type(request)), version, body)

    def raw(self, broker_id: int, request: Any, version: int) -> bytes:
        """The body of the answer to a request in this version."""
        body = bytes(request.encode(version=version))
        flexible = bool(request.flexible_version_q(version))
        answer = self._exchange.exchange(broker_id, request.API_KEY, version, flexible, body)
        self.asked.append(Asked(broker_id, request.API_KEY, version, body, answer))
        return answer


def negotiated(offered: tuple[int, int] | None, known: int, lowest: int | None, highest: int | None) -> int | None:
    """The version that kafka-python would choose: the highest that both know, within the limits of the request."""
    if offered is None:
        return None
    version = min(offered[1], known, known if highest is None else highest)
    return version if version >= max(offered[0], lowest or 0) else None


@lru_cache(4096)
def _decoded(request_type: Hashable, version: int, body: bytes) -> Any:
    """The answer as kafka-python decodes it. Brokers give most answers many times."""
    request: Any = request_type(version=version)  # type: ignore[operator]
    request.with_header()
    return request.header.get_response_class().decode(body)


def _received(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionResetError("closed")
        data += more
    return bytes(data)
