"""SCRAM by kafka-python, with the limits of Kafka on iterations (`ScramMechanism`).

The server chooses the number. With few iterations, a recorded exchange reveals the password. Many iterations keep a
client busy.
"""

from __future__ import annotations

import re
from typing import Any

from kafka.errors import SaslAuthenticationFailedError
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.scram import SaslMechanismScram

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ITERATIONS_MIN, ITERATIONS_MAX = 4_096, 16_384
_ITERATIONS = re.compile(rb"(?:^|,)i=(\d{1,9})(?:,|$)")


class Scram(SaslMechanismScram):  # type: ignore[misc]
    """kafka-python's mechanism. Raises SaslAuthenticationFailedError if the number is outside the limits."""

    def receive(self, auth_bytes: bytes) -> Any:
        """See SaslMechanism."""
        found = _ITERATIONS.search(auth_bytes)
        if self._state == 0 and found is not None and not ITERATIONS_MIN <= int(found[1]) <= ITERATIONS_MAX:
            limits = f"{ITERATIONS_MIN:,} to {ITERATIONS_MAX:,}"
            raise SaslAuthenticationFailedError(
                f"the broker wants {int(found[1]):,} iterations of SCRAM, and Kafka allows {limits}"
            )
        return super().receive(auth_bytes)


for _mechanism in MECHANISMS:
    register_sasl_mechanism(_mechanism, Scram, overwrite=True)
