"""Questions to a cluster of wire-level brokers."""

from __future__ import annotations

import io
import socket
import struct
from typing import Any, BinaryIO

from tests.sim.wire import ClusterShape
from tests.sim.wire.world import HOST

Opened = set[tuple[str, int, int, int]]


def planted(shape: ClusterShape, *, hanging: bool) -> Opened:
    """The open transactions of a shape, of one of the two kinds."""
    return {
        (*shape.key(ordinal), one.producer_id, one.start_offset)
        for ordinal, opened in shape.open_transactions().items()
        for one in opened
        if bool(one.transactional_id) is not hanging
    }


def framed(request: Any, correlation_id: int = 1, version: int = 0) -> bytes:
    """The request as bytes on the wire."""
    request.API_VERSION = version
    request.with_header(correlation_id=correlation_id, client_id="raw")
    return bytes(request.encode(version=version, header=True, framed=True))


def read(received: BinaryIO) -> tuple[int, bytes]:
    """The next answer: its correlation id, and the rest of it."""
    (length,) = struct.unpack(">i", received.read(4))
    frame = received.read(length)
    return struct.unpack_from(">i", frame)[0], frame[4:]


def ask(port: int, request: Any, response: Any, version: int) -> Any:
    """A broker's answer on a connection of its own, decoded by kafka-python."""
    with socket.create_connection((HOST, port), 10) as raw, raw.makefile("rb") as received:
        raw.sendall(framed(request, 1, version))
        _, answer = read(received)
    # A header without tags has one byte for them.
    return response.decode(io.BytesIO(answer[1:]), version=version, header=False)
