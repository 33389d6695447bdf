"""Read answers from a socket directly into their own buffer, which grows with the bytes that arrive.

kafka-python reads pieces of 4 KB, joins them, splits them at the borders of answers, and copies them into a buffer of
the length that the peer claims. That is most of the cost of a large answer. And with four bytes a peer can claim half a
gigabyte. Here the socket writes into the buffer of the current answer, except for the last byte. The last byte
completes the answer, and kafka-python continues as always.

A peer controls the length and the content of an answer. So each answer has a size limit, and all answers under way in
this process have a common limit.

kafka-python decodes most answers, on the thread of all connections. Each element of a list becomes an object, and each
struct with a tagged field copies the rest of the answer: 80,000 of them took five seconds. So the elements, these
copies and the texts have limits, too. Answers that grow with the cluster are decoded elsewhere (`frames.py`).
"""

from __future__ import annotations

import io
import math
import re
import ssl
import threading
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from kafka.errors import InvalidReceiveError, KafkaConnectionError
from kafka.protocol.frame import KafkaBytes
from kafka.protocol.sasl import SaslAuthenticateResponse
from kafka.protocol.schemas.fields.codecs import tagged_fields
from kafka.protocol.schemas.fields.codegen import CodegenContext

from txnscan.kafka.protocol.primitives import ELEMENTS_MAX, TEXT_BYTES_MAX

# The size of a read while no answer is under way. Most answers fit, and so does a TLS record.
_PIECE_BYTES = 64 * 1024
_LATER = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
# A DescribeProducers answer over a million producers is about 37 MB.
ANSWER_BYTES_MAX = 512 * 1024 * 1024
# The answers before authentication are some kilobytes long.
HANDSHAKE_BYTES_MAX = 1024 * 1024
UNDER_WAY_BYTES_MAX = 1024 * 1024 * 1024
# Of the copies for tagged fields. Kafka has such fields at the end of an answer.
COPIED_BYTES_MAX = 1024 * 1024 * 1024
# The maximum initial size of an answer's buffer. The buffer doubles when it is full.
_FIRST_BYTES = 1024 * 1024
_SASL_HANDSHAKE, _API_VERSIONS, _SASL_AUTHENTICATE = 17, 18, 36
_HANDSHAKE = (_SASL_HANDSHAKE, _API_VERSIONS, _SASL_AUTHENTICATE)
_FETCH = 1
# Kafka's own reasons for refused credentials are sentences.
REASON_LENGTH_MAX = 300
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


class _Decoding(threading.local):
    """What kafka-python may still take for the answer that this thread decodes. Elsewhere it has no limits."""

    elements: float = math.inf
    copied_bytes: float = math.inf

    def range(self, count: int) -> range:
        """As `range`, for the elements of a list. Raises InvalidReceiveError if all lists have too many."""
        self.elements -= max(0, count)
        if self.elements < 0:
            raise InvalidReceiveError(f"lists of more than {ELEMENTS_MAX:,} elements")
        return range(count)

    @staticmethod
    def text(value: Any, *encoding: str) -> str:
        """As `str`, of the bytes of a text, or of a value that is encoded. Raises InvalidReceiveError."""
        if encoding and len(value) > TEXT_BYTES_MAX:
            raise InvalidReceiveError(f"a text of more than {TEXT_BYTES_MAX:,} bytes")
        return str(value, *encoding)

    def copied(self, count: int) -> None:
        """Counts a copy. Raises InvalidReceiveError."""
        self.copied_bytes -= count
        if self.copied_bytes < 0:
            raise InvalidReceiveError("too many tagged fields")


_DECODING = _Decoding()


def _limit_decoders() -> None:
    """Makes the decoders that kafka-python generates count."""
    init, decode = CodegenContext.__init__, tagged_fields.TaggedFields.decode

    def counting(self: Any) -> None:
        init(self)
        self.globs |= {"range": _DECODING.range, "str": _DECODING.text}

    def counted(self: Any, data: Any, version: Any = None) -> Any:
        # Else it is the answer itself.
        if isinstance(data, io.BytesIO):
            _DECODING.copied(data.getbuffer().nbytes)
        return decode(self, data, version)

    CodegenContext.__init__ = counting
    tagged_fields.TaggedFields.decode = counted
    tagged_fields.range = _DECODING.range


_limit_decoders()


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


# What brokers get to authenticate this client.
Secrets = Callable[[], Collection[str]]


def received(
    transport: Any, budget: Budget = BUDGET, secrets: Secrets = tuple
) -> tuple[bytes, KafkaConnectionError | None]:
    """Replaces `KafkaTCPTransport._sock_recv` of kafka-python, and returns the same: the bytes that have arrived,
    except the bytes that went into an answer's buffer, and the error.
    """
    try:
        connection, parser = transport._sock, transport.get_protocol().parser
        if "receive_bytes" not in vars(parser):
            parser.receive_bytes = partial(answers_in, parser, budget, secrets=secrets)
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


def answers_in(parser: Any, budget: Budget, data: bytes, *, secrets: Secrets = tuple) -> list[tuple[int, Any]]:
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
        _DECODING.elements, _DECODING.copied_bytes = ELEMENTS_MAX, COPIED_BYTES_MAX
        try:
            number, answer = parser._process_response(frame)
        finally:
            _DECODING.elements = _DECODING.copied_bytes = math.inf
        if isinstance(answer, SaslAuthenticateResponse):
            answer.error_message = _reason(answer.error_message or "", secrets())
        found.append((number, answer))
        parser._reset_buffer()
    return found


def _reason(text: str, secrets: Collection[str]) -> str:
    """A broker's reason for refused credentials. Failures and logs show it, so it must not repeat a secret."""
    if any(secret in text for secret in secrets):
        return "its reason repeats the credentials, and is not shown"
    return text[:REASON_LENGTH_MAX]


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
