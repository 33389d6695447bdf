"""Answers as bytes: kafka-python sends the request and takes the answer off the wire; the caller decodes it.

Some answers grow with the cluster, above all DescribeProducers and Metadata of all topics: as objects, a million
producers cost kafka-python ten seconds and a gigabyte. `AsBytes` wraps such a request; its answer is a `Body`, which
the module of the API walks through with a few lines of its own (`Cursor`), taking only what a sweep needs. The caller
encodes the request, too: a body that is the same for every broker is encoded once, and one with thousands of
partitions needs no object for each topic.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from txnscan.kafka.errors import RequestFailed
from txnscan.kafka.protocol.primitives import Reader

_INT32 = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Body:
    """An answer without its header, in the version that was negotiated. throttle_time_ms: how long to hold back."""

    version: int
    data: bytes

    @property
    def throttle_time_ms(self) -> int:
        """It is the first field of every answer that is read as bytes (of Metadata since v3)."""
        return int(_INT32.unpack_from(self.data)[0]) if len(self.data) >= _INT32.size else 0


class AsBytes:
    """A request of kafka-python whose answer is to come back as a `Body`.

    It stands in for the request wherever kafka-python looks at one: when it negotiates the version, encodes, and finds
    out how to decode the answer. body: encodes the request, without its header, in a version.
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
        """The request's header, which kafka-python asks for the class of the answer."""
        return _Header(self.request.header)

    def encode(self, version: int | None = None, header: bool = False, framed: bool = False) -> bytes:
        """The request as it goes to the broker, in a version or in the one that was negotiated."""
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
    """Stands in for the class of the answer: the header is decoded, and the body left as it is."""

    def __init__(self, header: Any) -> None:
        self._version = header.request_api_version
        self._response_class = header.get_response_class()

    def parse_header(self, received: Any) -> Any:
        return self._response_class.parse_header(received)

    def decode(self, received: Any) -> Body:
        # kafka-python's own read would copy the bytes twice.
        return Body(self._version, bytes(memoryview(received)[received.tell() :]))


class Counted:
    """Sends with another `send`, and counts the bytes of the answers that came as bytes."""

    def __init__(self, send: Callable[[int, Any], Any]) -> None:
        self._send = send
        self.read_bytes = 0

    def __call__(self, broker_id: int, request: Any) -> Any:
        answer = self._send(broker_id, request)
        self.read_bytes += len(answer.data) if isinstance(answer, Body) else 0
        return answer


def api_name(request: Any) -> str:
    """The API of a request, `AsBytes` or not."""
    return type(request.request if isinstance(request, AsBytes) else request).__name__.removesuffix("Request")


class Cursor(Reader):
    """Reads an answer. Raises RequestFailed."""

    __slots__ = ()

    def error(self, why: str) -> RequestFailed:
        """See Reader."""
        return undecodable(why)


def undecodable(why: str) -> RequestFailed:
    """The error of an answer whose bytes make no sense."""
    return RequestFailed(f"an answer cannot be decoded: {why}")
