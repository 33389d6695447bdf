"""Answers read from a socket into their own buffers: complete and in order, for any fragmentation."""

from __future__ import annotations

import select
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.errors import KafkaConnectionError
from kafka.protocol.parser import KafkaProtocol

from tests.fakes.cluster import ADDRESS
from txnscan.kafka.client.receiving import received

SOON_S = 20.0
# Larger than a single read, a TLS record and a socket buffer.
SIZES = (0, 1, 12, 60_000, 65_532, 65_536, 70_000, 3_000_000)
authority = trustme.CA()


class Answer:
    """Stands in for the class of an answer, whose header is its correlation id."""

    @staticmethod
    def parse_header(received: Any) -> SimpleNamespace:
        return SimpleNamespace(correlation_id=struct.unpack(">i", received.read(4))[0])

    @staticmethod
    def decode(received: Any) -> bytes:
        return bytes(received.read())


class Reader:
    """Reads like kafka-python: waits until the socket is readable, and parses the bytes."""

    def __init__(self, connection: socket.socket, answers: int) -> None:
        connection.setblocking(False)
        self.connection, self.parser = connection, KafkaProtocol(client_id="test")
        self.transport = SimpleNamespace(_sock=connection, get_protocol=lambda: SimpleNamespace(parser=self.parser))
        for number in range(answers):
            header = SimpleNamespace(correlation_id=number, get_response_class=lambda: Answer)
            self.parser.in_flight_requests.append(header)

    def read(self) -> list[bytes]:
        """The answers, after all have arrived. Raises KafkaConnectionError."""
        found: list[bytes] = []
        while self.parser.in_flight_requests:
            assert select.select([self.connection], [], [], SOON_S)[0], "nothing more to read, and an answer is missing"
            data, error = received(self.transport)
            if error is not None:
                raise error
            found += (answer for _, answer in self.parser.receive_bytes(data))
        return found


def framed(bodies: list[bytes]) -> bytes:
    return b"".join(struct.pack(">ii", len(body) + 4, number) + body for number, body in enumerate(bodies))


def body(size: int) -> bytes:
    return bytes(range(256)) * (size // 256) + bytes(size % 256)


@contextmanager
def plain() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection: a broker's and ours."""
    with socket.create_server((ADDRESS, 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    with theirs, ours:
        yield theirs, ours


@contextmanager
def encrypted() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The same over TLS."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.issue_cert(ADDRESS).configure_cert(server)
    authority.configure_trust(client)
    with plain() as (theirs, ours):
        shaken: list[ssl.SSLSocket] = []
        shaking = threading.Thread(target=lambda: shaken.append(server.wrap_socket(theirs, server_side=True)))
        shaking.start()
        with client.wrap_socket(ours, server_hostname=ADDRESS) as mine:
            shaking.join()
            with shaken[0] as other:
                yield other, mine


@pytest.mark.parametrize("connected", [plain, encrypted])
@pytest.mark.parametrize("size", SIZES)
def test_consecutive_answers_of_any_size_arrive_complete(connected: Any, size: int) -> None:
    bodies = [body(size), b"in between", body(size)]
    with connected() as (theirs, ours):
        sending = threading.Thread(target=theirs.sendall, args=(framed(bodies),))
        sending.start()
        assert Reader(ours, len(bodies)).read() == bodies
        sending.join()


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 5, 300]), min_size=1, max_size=3),
    cuts=st.sets(st.integers(1, 900), max_size=8),
)
def test_answers_arrive_unchanged_for_any_fragmentation(sizes: list[int], cuts: set[int]) -> None:
    bodies = [body(size) for size in sizes]
    data, found = framed(bodies), []
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    with plain() as (theirs, ours):
        reader = Reader(ours, len(bodies))
        for begin, end in pairwise(edges):
            theirs.sendall(data[begin:end])
            taken = 0
            while taken < end - begin:
                assert select.select([ours], [], [], SOON_S)[0]
                before = arrived(reader)
                some, error = received(reader.transport)
                assert error is None
                taken += arrived(reader) - before + len(some)
                found += [answer for _, answer in reader.parser.receive_bytes(some)]
    assert found == bodies


def arrived(reader: Reader) -> int:
    """The number of received bytes of the current answer."""
    return reader.parser._rbuffer.tell() if reader.parser._receiving else 0


@pytest.mark.parametrize("connected", [plain, encrypted])
@pytest.mark.parametrize("sent", [0, 3, 4, 8, 100, 70_000])
def test_a_connection_closed_within_an_answer_is_an_error(connected: Any, sent: int) -> None:
    with connected() as (theirs, ours):
        theirs.sendall(framed([body(100_000)])[:sent])
        theirs.close()
        with pytest.raises(KafkaConnectionError):
            Reader(ours, 1).read()


def test_no_available_data_is_no_error() -> None:
    with plain() as (_, ours):
        assert received(Reader(ours, 1).transport) == (b"", None)


def test_a_connection_closed_locally_is_an_error() -> None:
    with plain() as (_, ours):
        reader = Reader(ours, 1)
        reader.transport._sock = None
        _, error = received(reader.transport)
        assert isinstance(error, KafkaConnectionError)
