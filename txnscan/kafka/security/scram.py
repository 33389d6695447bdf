"""SCRAM by kafka-python, with the limits of Kafka on iterations (`ScramMechanism`).

The server chooses the number. With few iterations, a recorded exchange reveals the password. Many iterations keep a
client busy.

kafka-python splits a message at commas, takes the last of two equal keys, and reads numbers as Python does: `+1`,
`0_1`, and digits of other alphabets. So the message is parsed here, once and strictly, and kafka-python gets what was
parsed.

Source: RFC 5802; `ScramMessages.ServerFirstMessage` and `ServerFinalMessage` of Kafka, which brokers use.
"""

from __future__ import annotations

import re
from typing import Any

from kafka.errors import SaslAuthenticationFailedError
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.scram import SaslMechanismScram

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ITERATIONS_MIN, ITERATIONS_MAX = 4_096, 16_384
# A nonce, a salt and a number, in this order, and nothing else.
_BASE64 = rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)"
_FIRST = re.compile(rb"r=([!-+\--~]{1,1000}),s=(" + _BASE64 + rb"),i=([1-9][0-9]{0,8})")
_FINAL = re.compile(rb"v=(" + _BASE64 + rb")")
_MESSAGE_BYTES_MAX = 10_000


class Scram(SaslMechanismScram):  # type: ignore[misc]
    """kafka-python's mechanism. Raises SaslAuthenticationFailedError if the number is outside the limits, and for
    messages that are not SCRAM's.
    """

    def receive(self, auth_bytes: bytes) -> Any:
        """See SaslMechanism."""
        return super().receive(_first(auth_bytes) if self._state == 0 else _final(auth_bytes))


def _first(message: bytes) -> bytes:
    """The server's first message, from its parts."""
    found = _matched(_FIRST, message)
    nonce, salt, iterations = found[1], found[2], int(found[3])
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        limits = f"{ITERATIONS_MIN:,} to {ITERATIONS_MAX:,}"
        raise SaslAuthenticationFailedError(
            f"the broker wants {iterations:,} iterations of SCRAM, and Kafka allows {limits}"
        )
    return b"r=%b,s=%b,i=%d" % (nonce, salt, iterations)


def _final(message: bytes) -> bytes:
    """The server's final message, from its only part."""
    return b"v=%b" % _matched(_FINAL, message)[1]


def _matched(pattern: re.Pattern[bytes], message: bytes) -> re.Match[bytes]:
    found = pattern.fullmatch(message) if len(message) <= _MESSAGE_BYTES_MAX else None
    if found is None:
        raise SaslAuthenticationFailedError("the broker's answer is no message of SCRAM")
    return found


for _mechanism in MECHANISMS:
    register_sasl_mechanism(_mechanism, Scram, overwrite=True)
