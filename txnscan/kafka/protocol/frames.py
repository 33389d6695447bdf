"""Answers as bytes: kafka-python sends the request and receives the answer, and the caller decodes it.

Some answers grow with the cluster, mainly DescribeProducers and Metadata of all topics. As objects, a million producers
cost kafka-python ten seconds and a gigabyte. `AsBytes` wraps such a request. Its answer is a `Body`. The module of the
API reads the body with its own few lines (`Cursor`), and takes only the fields that a sweep needs. The caller also
encodes the request: a body that is the same for every broker is encoded once, and a body with thousands of partitions
needs no object for each topic.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.primitives import ELEMENTS_MAX, Reader

_INT32 = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Body:
    """An answer without its header, in the negotiated version. throttle_time_ms: how long to wait before the next."""

    version: int
    data: bytes

    @property
    def throttle_time_ms(self) -> int:
        """The first field of every answer that is read as bytes (of Metadata since v3)."""
        return int(_INT32.unpack_from(self.data)[0]) if len(self.data) >= _INT32.size else 0


class AsBytes:
    """A request of kafka-python whose answer is returned as a `Body`.

    It replaces the request in all steps of kafka-python: to negotiate the version, to encode, and to find the decoder
    of the answer. body: encodes the request, without its header, in a version.
    """

    def __init__(self, request: Any, body: Callable[[int], bytes]) -> None:
        object.__setattr__(self, "request", request)
        object.__setattr__(self, "_body", body)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.request, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.request, name, value)

    @property
    def header(self) -> Any:
        """The request's header. kafka-python gets the class of the answer from it."""
        return _Header(self.request.header)

    def encode(self, version: int | None = None, header: bool = False, framed: bool = False) -> bytes:
        """The request as it is sent to the broker, in the given version or in the negotiated version."""
        spoken = self.request.API_VERSION if version is None else version
        encoded: bytes = self._body(spoken)
        if header:
            encoded = self.request.encode_header(flexible=self.request.flexible_version_q(spoken)) + encoded
        return _INT32.pack(len(encoded)) + encoded if framed else encoded


class _Header:
    as_bytes = True

    def __init__(self, header: Any) -> None:
        self._header = header

    def __getattr__(self, name: str) -> Any:
        return getattr(self._header, name)

    def get_response_class(self) -> Any:
        return _Undecoded(self._header)


class _Undecoded:
    """Replaces the class of the answer: decodes the header, and does not decode the body."""

    def __init__(self, header: Any) -> None:
        self._version = header.request_api_version
        self._response_class = header.get_response_class()

    def parse_header(self, received: Any) -> Any:
        return self._response_class.parse_header(received)

    def decode(self, received: Any) -> Body:
        # kafka-python's own read would copy the bytes twice.
        return Body(self._version, bytes(memoryview(received)[received.tell() :]))


class CountingSend:
    """Sends with another `send`, and counts the bytes of the answers that are returned as bytes."""

    def __init__(self, send: Callable[[int, Any], Any]) -> None:
        self._send = send
        self.read_bytes = 0

    def __call__(self, broker_id: int, request: Any) -> Any:
        answer = self._send(broker_id, request)
        self.read_bytes += len(answer.data) if isinstance(answer, Body) else 0
        return answer


def api_name(request: Any) -> str:
    """The name of a request's API, with or without `AsBytes`."""
    return type(request.request if isinstance(request, AsBytes) else request).__name__.removesuffix("Request")


class Cursor(Reader):
    """Reads an answer. Raises RequestFailed."""

    __slots__ = ()

    def error(self, why: str) -> RequestFailed:
        """See Reader."""
        return undecodable(why)


class CountedCursor(Cursor):
    """The same for an answer of which everything becomes an object: all its lists together have a limit."""

    __slots__ = ("_left",)

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._left = ELEMENTS_MAX

    def length(self) -> int:
        """See Reader."""
        count = super().length()
        self._left -= count
        if self._left < 0:
            raise undecodable(f"its lists have more than {ELEMENTS_MAX:,} elements")
        return count


def undecodable(why: str) -> RequestFailed:
    """The error of an answer whose bytes make no sense."""
    return RequestFailed(f"an answer cannot be decoded: {why}")
