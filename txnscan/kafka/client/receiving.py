"""Read answers from a socket directly into their own buffer, which grows with the bytes that arrive.

kafka-python reads pieces of 4 KB, joins them, splits them at the borders of answers, and copies them into a buffer of
the length that the peer claims. That is most of the cost of a large answer. And with four bytes a peer can claim half a
gigabyte. Here the socket writes into the buffer of the current answer, except for the last byte. The last byte
completes the answer, and kafka-python continues as always.

A peer controls the length and the content of an answer. So each answer has a size limit, and all answers under way in
this process have a common limit.
"""

from __future__ import annotations

import re
import ssl
import threading
from functools import partial
from typing import Any

from kafka.errors import InvalidReceiveError, KafkaConnectionError
from kafka.protocol.frame import KafkaBytes

# The size of a read while no answer is under way. Most answers fit, and so does a TLS record.
_PIECE_BYTES = 64 * 1024
_LATER = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
# A DescribeProducers answer over a million producers is about 37 MB.
ANSWER_BYTES_MAX = 512 * 1024 * 1024
# The answers before authentication are some kilobytes long.
HANDSHAKE_BYTES_MAX = 1024 * 1024
UNDER_WAY_BYTES_MAX = 1024 * 1024 * 1024
# The maximum initial size of an answer's buffer. The buffer doubles when it is full.
_FIRST_BYTES = 1024 * 1024
_SASL_HANDSHAKE, _API_VERSIONS, _SASL_AUTHENTICATE = 17, 18, 36
_HANDSHAKE = (_SASL_HANDSHAKE, _API_VERSIONS, _SASL_AUTHENTICATE)
_FETCH = 1
# kafka-python reads a variable-length number to its end, in quadratic time. Kafka writes at most five bytes. Text in
# other alphabets also has such bytes, but fewer in a row.
_ENDLESS_NUMBER = re.compile(rb"[\x80-\xff]{4096}")


class Budget:
    """The common limit of bytes for all answers under way. Safe to use from many threads."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._lock = threading.Lock()

    def take(self, count: int) -> None:
        """Reserves bytes. Raises InvalidReceiveError above the limit."""
        with self._lock:
            if self.used_bytes + count > self.bytes_max:
                raise InvalidReceiveError(f"frames above the limit of {self.bytes_max} bytes in all")
            self.used_bytes += count

    def give_back(self, count: int) -> None:
        """Frees reserved bytes."""
        with self._lock:
            self.used_bytes -= count


BUDGET = Budget(UNDER_WAY_BYTES_MAX)


class Frame(KafkaBytes):  # type: ignore[misc]  # kafka-python has no types
    """The buffer of an answer. size: as the peer claims it. Its memory counts until the buffer is freed."""

    def __init__(self, size: int, budget: Budget) -> None:
        super().__init__(0)
        self._budget = budget
        self._taken = 0
        self.size = size

    @property
    def missing(self) -> int:
        """The number of bytes that have not arrived."""
        return self.size - int(self.tell())

    def room(self, count: int = 1) -> int:
        """Makes room for this number of bytes or more, up to the end. Returns the number of bytes that fit now."""
        wanted = min(self.tell() + count, self.size)
        if len(self) < wanted:
            larger = min(max(wanted, 2 * len(self), _FIRST_BYTES), self.size)
            self._budget.take(larger - self._taken)
            self._taken = larger
            self.extend(bytes(larger - len(self)))
        return len(self) - int(self.tell())

    def take(self, data: bytes) -> None:
        """Counts bytes that have arrived."""
        self.room(len(data))
        self.write(data)

    def __del__(self) -> None:
        self._budget.give_back(self._taken)


def received(transport: Any, budget: Budget = BUDGET) -> tuple[bytes, KafkaConnectionError | None]:
    """Replaces `KafkaTCPTransport._sock_recv` of kafka-python, and returns the same: the bytes that have arrived,
    except the bytes that went into an answer's buffer, and the error.
    """
    try:
        connection, parser = transport._sock, transport.get_protocol().parser
        if "receive_bytes" not in vars(parser):
            parser.receive_bytes = partial(answers_in, parser, budget)
        while parser._receiving and parser._rbuffer.missing > 1:
            frame = parser._rbuffer
            room = min(frame.room(), frame.missing - 1)
            with memoryview(frame) as buffer, buffer[frame.tell() : frame.tell() + room] as into:
                count = connection.recv_into(into)
            if not count:
                return b"", KafkaConnectionError("socket disconnected")
            frame.seek(frame.tell() + count)
        data = connection.recv(_PIECE_BYTES)
    except _LATER:
        return b"", None
    except InvalidReceiveError as error:
        return b"", KafkaConnectionError(f"{error}")
    except Exception as error:
        return b"", KafkaConnectionError(error)
    return data, None if data else KafkaConnectionError("socket disconnected")


def answers_in(parser: Any, budget: Budget, data: bytes) -> list[tuple[int, Any]]:
    """Replaces `KafkaProtocol.receive_bytes` of kafka-python: returns the answers that these bytes complete, by
    correlation id. Raises KafkaError.
    """
    found, at = [], 0
    while at < len(data):
        if not parser._receiving:
            length = data[at : at + 4 - parser._header.tell()]
            parser._header.write(length)
            at += len(length)
            if parser._header.tell() < 4:
                break
            size = int.from_bytes(parser._header, "big", signed=True)
            _check_size(parser, size)
            parser._rbuffer, parser._receiving = Frame(size, budget), True
        frame = parser._rbuffer
        piece = data[at : at + frame.missing]
        frame.take(piece)
        at += len(piece)
        if frame.missing:
            break
        parser._receiving = False
        parser.answer_bytes = frame.size
        frame.seek(0)
        _check_numbers(parser, frame)
        found.append(parser._process_response(frame))
        parser._reset_buffer()
    return found


def _check_size(parser: Any, size: int) -> None:
    key = _key(parser)
    ceiling = HANDSHAKE_BYTES_MAX if key in _HANDSHAKE else ANSWER_BYTES_MAX
    if not 0 <= size <= ceiling:
        raise InvalidReceiveError(f"a frame of {size} bytes, outside the limits of 0 and {ceiling}")


def _check_numbers(parser: Any, frame: Frame) -> None:
    """Checks an answer that kafka-python decodes. Fetch is exempt: its versions in use have no such numbers, and its
    records may have many such bytes.
    """
    header = parser.in_flight_requests[0] if parser.in_flight_requests else None
    if getattr(header, "as_bytes", False) or _key(parser) == _FETCH:
        return
    if _ENDLESS_NUMBER.search(frame):
        raise InvalidReceiveError("a number of variable length that does not end")


def _key(parser: Any) -> int | None:
    """The API key of the request that the next answer is for."""
    if not parser.in_flight_requests:
        return None
    return getattr(parser.in_flight_requests[0], "request_api_key", None)
