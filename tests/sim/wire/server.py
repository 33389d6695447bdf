"""The brokers of one process: TCP in, answers out, each broker with its own port.

The requests of a connection are answered in order. A cached answer costs a look-up and a send. Only a new answer takes
time, and the other brokers of the process wait for it.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections import deque
from dataclasses import dataclass, field
from typing import Any, cast

from tests.sim.codec import Reader
from tests.sim.wire.answers import OFFERED, Answers, Api, api_versions
from tests.sim.wire.world import HOST
from txnscan.kafka.protocol.primitives import NO_TAGS

# The maximum size of cached answers in each process.
_KEPT_BYTES_MAX = 512 * 1024 * 1024
# A smaller answer is copied and sent in one piece with its header; a larger one is sent separately.
_COPY_BYTES_MAX = 64 * 1024
# The limit of `socket.request.max.bytes`.
_REQUEST_BYTES_MAX = 100 * 1024 * 1024
_BACKLOG = 1_024
_HEADER = struct.Struct(">hhi")
_FRAME = struct.Struct(">ii")
_CLIENT_ID = struct.Struct(">h")


@dataclass(slots=True)
class Counts:
    """The counts of a broker. In flight: received and not yet handed to the network."""

    requests: dict[str, int] = field(default_factory=dict)
    bytes_by_api: dict[str, int] = field(default_factory=dict)
    resets: int = 0
    in_flight_max: int = 0
    describe_producers_in_flight_max: int = 0


class Kept:
    """Cached answers by request, for all brokers of a process. If the cache is full, the oldest answers are dropped."""

    def __init__(self, bytes_max: int = _KEPT_BYTES_MAX) -> None:
        self._answers: dict[tuple[int, bytes], bytes] = {}
        self._bytes = 0
        self._bytes_max = bytes_max

    def get(self, key: tuple[int, bytes]) -> bytes | None:
        """The cached answer, if there is one. key: the broker, and the request without the fields that differ between
        requests.
        """
        return self._answers.get(key)

    def keep(self, key: tuple[int, bytes], body: bytes) -> None:
        """Caches an answer, unless it is too large alone."""
        size = len(body) + len(key[1])
        if size > self._bytes_max:
            return
        while self._bytes + size > self._bytes_max:
            oldest = next(iter(self._answers))
            self._bytes -= len(self._answers.pop(oldest)) + len(oldest[1])
        self._answers[key] = body
        self._bytes += size

    def clear(self) -> None:
        """Clears the cache."""
        self._answers.clear()
        self._bytes = 0


class Broker:
    """One broker: its answers, its latency, and its counts."""

    def __init__(self, broker_id: int, answers: Answers, kept: Kept) -> None:
        shape = answers.world.shape
        self.broker_id = broker_id
        self.latency_s = shape.latency_of_ms(broker_id) / 1000
        self.counts = Counts()
        self._answers = answers
        self._kept = kept
        self._reset_every = shape.reset_every
        self._described = 0
        # The requests in flight now, of all APIs and of DescribeProducers.
        self._in_flight = [0, 0]

    def received(self, api: Api) -> bool:
        """Counts a request. Returns False if the connection must be closed instead of an answer."""
        counts = self.counts
        counts.requests[api.name] = counts.requests.get(api.name, 0) + 1
        if api is Api.DescribeProducers:
            self._described += 1
            if self._reset_every and self._described % self._reset_every == 0:
                counts.resets += 1
                return False
            self._in_flight[1] += 1
            counts.describe_producers_in_flight_max = max(counts.describe_producers_in_flight_max, self._in_flight[1])
        self._in_flight[0] += 1
        counts.in_flight_max = max(counts.in_flight_max, self._in_flight[0])
        return True

    def gone(self, api: Api, sent: int) -> None:
        """Records that an answer of `sent` bytes left, or that none will (0)."""
        self._in_flight[0] -= 1
        self._in_flight[1] -= api is Api.DescribeProducers
        sent_by_api = self.counts.bytes_by_api
        sent_by_api[api.name] = sent_by_api.get(api.name, 0) + sent

    def reset_counts(self) -> None:
        """Resets the counts to 0. Requests in flight stay in flight."""
        self.counts = Counts()

    def body(self, api: Api, version: int, frame: bytes) -> bytes:
        """The body of the answer to a request."""
        start = _HEADER.size + _CLIENT_ID.size + max(_CLIENT_ID.unpack_from(frame, _HEADER.size)[0], 0)
        if api is Api.ApiVersions:
            return api_versions(version)
        offered = OFFERED[api]
        key = (self.broker_id if offered.by_broker else 0, frame[:4] + frame[start:])
        body = self._kept.get(key)
        if body is None:
            request = Reader(frame, start)
            if offered.flexible:
                request.tags()
            body = self._answers.body(self.broker_id, api, version, request)
            if offered.kept:
                self._kept.keep(key, body)
            if api is Api.WriteTxnMarkers:
                self._kept.clear()
        at = self._answers.controller_at(api, version)
        if at is None:
            return body
        # A random controller in each answer.
        controller = random.choice(self._answers.world.shape.broker_ids)
        return b"".join((body[:at], controller.to_bytes(4), memoryview(body)[at + 4 :]))


class Connection(asyncio.Protocol):
    """A client's connection to a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._received = bytearray()
        # The requests in flight; and the answers that are not due yet: header and body, or None for the end of the
        # connection.
        self._in_flight: deque[Api] = deque()
        self._waiting: deque[tuple[bytes, bytes] | None] = deque()
        self._ends = False
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol. asyncio has set TCP_NODELAY."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._waiting.clear()
        while self._in_flight:
            self._broker.gone(self._in_flight.popleft(), 0)

    def pause_writing(self) -> None:
        """See asyncio.Protocol. A client that does not read its answers cannot send more requests."""
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Answers every complete request. Closes the connection at a request that it cannot decode."""
        if self._ends:
            return
        received = self._received
        received += data
        frames = []
        while len(received) >= 4:
            end = 4 + int.from_bytes(received[:4], signed=True)
            if not 4 < end <= _REQUEST_BYTES_MAX:
                self._transport.abort()
                return
            if len(received) < end:
                break
            frames.append(bytes(received[4:end]))
            del received[:end]
        # All requests are in flight before the first is answered. Requests before a bad one are still answered.
        requests = []
        try:
            for frame in frames:
                requests.append((self._accept(frame), frame))
        except (Refused, ValueError, struct.error):
            self._ends = True
        try:
            for api, frame in requests:
                self._answer(api, frame)
        except (IndexError, ValueError, struct.error):
            self._ends = True
        if self._ends:
            self._later(None)

    def _accept(self, frame: bytes) -> Api:
        key, version, _ = _HEADER.unpack_from(frame)
        api = Api(key)
        offered = OFFERED[api]
        if api is not Api.ApiVersions and not offered.first <= version <= offered.last:
            raise Refused
        if not self._broker.received(api):
            raise Refused
        self._in_flight.append(api)
        return api

    def _answer(self, api: Api, frame: bytes) -> None:
        _, version, correlation_id = _HEADER.unpack_from(frame)
        body = self._broker.body(api, version, frame)
        # The answer to ApiVersions has the old header in all versions, because the client does not know the versions
        # yet.
        tags = b"" if api is Api.ApiVersions or not OFFERED[api].flexible else NO_TAGS
        self._later((_FRAME.pack(4 + len(tags) + len(body), correlation_id) + tags, body))

    def _later(self, answer: tuple[bytes, bytes] | None) -> None:
        self._waiting.append(answer)
        if self._broker.latency_s:
            asyncio.get_running_loop().call_later(self._broker.latency_s, self._send_next)
        else:
            self._send_next()

    def _send_next(self) -> None:
        if not self._waiting or self._transport.is_closing():
            return
        answer = self._waiting.popleft()
        if answer is None:
            self._transport.close()
            return
        head, body = answer
        self._broker.gone(self._in_flight.popleft(), len(head) + len(body))
        if len(body) <= _COPY_BYTES_MAX:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)


class Refused(Exception):
    """The connection must be closed because of this request."""


async def listen(broker: Broker) -> tuple[asyncio.Server, int]:
    """Opens any free port for a broker. It accepts no connections before `start_serving`."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Connection(broker), HOST, 0, backlog=_BACKLOG, start_serving=False, reuse_address=True
    )
    return server, int(server.sockets[0].getsockname()[1])
