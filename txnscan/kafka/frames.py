"""Answers as bytes: kafka-python sends the request and takes the answer off the wire; the caller decodes it.

Two answers grow with the cluster, DescribeProducers and Metadata of all topics: as objects, a million producers cost
kafka-python ten seconds and a gigabyte. `AsBytes` wraps such a request; its answer is a `Body`, which the module of the
API walks through with a few lines of its own (`Cursor`), taking only what a sweep needs. The request brings its own
body, too: one that is the same for every broker is encoded once, and one of thousands of partitions without an object
for each topic.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from txnscan.kafka.errors import RequestFailed

_INT16, _INT32, _INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class Body:
    """An answer without its header, in the version that was negotiated. throttle_time_ms: how long to hold back."""

    version: int
    data: bytes

    @property
    def throttle_time_ms(self) -> int:
        """It stands first in every answer that is asked for so (Metadata since v3, DescribeProducers)."""
        return int(_INT32.unpack_from(self.data)[0]) if len(self.data) >= _INT32.size else 0


class AsBytes:
    """A request of kafka-python whose answer is to come back as a `Body`.

    It stands in for the request wherever kafka-python looks at one: when it negotiates the version, encodes, and finds
    out how to decode the answer. body: gives the request without its header, in a version.
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
        """The request's header, which is asked for the class of the answer."""
        return _Header(self.request.header)

    def encode(self, version: int | None = None, header: bool = False, framed: bool = False) -> bytes:
        """The request as it goes to the broker, in a version or in the one that was negotiated."""
        spoken = self.request.API_VERSION if version is None else version
        encoded: bytes = self._body(spoken)
        if header:
            encoded = self.request.encode_header(flexible=self.request.flexible_version_q(spoken)) + encoded
        return _INT32.pack(len(encoded)) + encoded if framed else encoded


class _Header:
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
        return Body(self._version, received.read())


def api_name(request: Any) -> str:
    """The API of a request, `AsBytes` or not."""
    return type(request.request if isinstance(request, AsBytes) else request).__name__.removesuffix("Request")


class Cursor:
    """Reads the primitive types of Kafka's flexible versions (KIP-482), in order. Raises RequestFailed where the bytes
    end too early or cannot be what they claim.
    """

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self.data):
            raise undecodable("it ends too early")

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def _number(self, kind: struct.Struct) -> int:
        at = self.at
        self.skip(kind.size)
        return int(kind.unpack_from(self.data, at)[0])

    def uvarint(self) -> int:
        """An unsigned varint of at most 32 bits."""
        at = self.at
        # One byte, nearly always.
        if at < len(self.data) and self.data[at] < 0x80:
            self.at = at + 1
            return self.data[at]
        value = shift = 0
        while True:
            at = self.at
            self.skip(1)
            byte = self.data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise undecodable("a number in it is too long")

    def length(self) -> int:
        """The length of a compact array. Raises RequestFailed for null: absence must not follow from it."""
        length = self.uvarint() - 1
        if length < 0:
            raise undecodable("it holds null in place of a list")
        return length

    def string(self) -> str | None:
        """A compact nullable string."""
        length = self.uvarint() - 1
        if length < 0:
            return None
        at = self.at
        self.skip(length)
        try:
            return self.data[at : at + length].decode("utf-8")
        except UnicodeDecodeError:
            raise undecodable("a text in it is not UTF-8") from None

    def tags(self) -> None:
        """Passes over tagged fields, which a later release may have added."""
        for _ in range(self.uvarint()):
            self.uvarint()
            self.skip(self.uvarint())

    def end(self) -> None:
        """Raises RequestFailed where bytes are left over."""
        if self.at != len(self.data):
            raise undecodable(f"it has {len(self.data) - self.at} bytes too many")


def undecodable(why: str) -> RequestFailed:
    """The error of an answer whose bytes make no sense."""
    return RequestFailed(f"an answer cannot be decoded: {why}")
