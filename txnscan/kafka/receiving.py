"""How answers are read from a socket: straight into their own buffer.

kafka-python takes what has arrived in pieces of 4 KB, joins them, cuts them at the borders of answers, and copies them
into a buffer that it has made as large as the answer. Of an answer of megabytes that is most of its cost. Where an
answer is under way the socket writes into that buffer here, all but the last byte: with that one kafka-python sees that
the answer is whole, and goes on as always.
"""

from __future__ import annotations

import ssl
from typing import Any

from kafka.errors import KafkaConnectionError

# What is taken while no answer is under way: most answers whole, and of a large one its beginning. A TLS record fits.
_PIECE_BYTES = 64 * 1024
_LATER = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def received(transport: Any) -> tuple[bytes, KafkaConnectionError | None]:
    """Replaces `KafkaTCPTransport._sock_recv` of kafka-python, and returns the same: the bytes that have arrived, but
    for those that went into an answer's buffer, and what went wrong.
    """
    try:
        connection, parser = transport._sock, transport.get_protocol().parser
        while parser._receiving:
            answer = parser._rbuffer
            with memoryview(answer) as buffer, buffer[answer.tell() : -1] as room:
                if not room:
                    break
                count = connection.recv_into(room)
            if not count:
                return b"", KafkaConnectionError("socket disconnected")
            answer.seek(answer.tell() + count)
        data = connection.recv(_PIECE_BYTES)
    except _LATER:
        return b"", None
    except Exception as error:
        return b"", KafkaConnectionError(error)
    return data, None if data else KafkaConnectionError("socket disconnected")
