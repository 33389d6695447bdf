"""SCRAM with a hostile broker: what is checked of its messages is what the proof is computed from."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from typing import Any

import pytest
from kafka.errors import SaslAuthenticationFailedError

from tests.cases import Cases
from txnscan.kafka.security.scram import ITERATIONS_MAX, ITERATIONS_MIN, Scram

PASSWORD = "pass-word"
SALT = "c2FsdA=="


def started() -> tuple[Any, str]:
    """The mechanism after its first message, and its nonce."""
    options: dict[str, Any] = {"sasl_plain_username": "u", "sasl_plain_password": PASSWORD}
    mechanism = Scram(**options, sasl_mechanism="SCRAM-SHA-256", security_protocol="SASL_SSL")
    return mechanism, mechanism.auth_bytes().rpartition(b"r=")[2].decode()


# The rest of the message after the client's nonce, and whether the broker gets a proof.
FIRST = {
    "Kafka's fewest": (f"x,s={SALT},i={ITERATIONS_MIN}", True),
    "Kafka's most": (f"x,s={SALT},i={ITERATIONS_MAX}", True),
    "one": (f"x,s={SALT},i=1", False),
    "too few": (f"x,s={SALT},i={ITERATIONS_MIN - 1}", False),
    "too many": (f"x,s={SALT},i={ITERATIONS_MAX + 1}", False),
    "zeros in front": (f"x,s={SALT},i=0000000001", False),
    "many zeros in front": (f"x,s={SALT},i={'0' * 20}4096", False),
    "a sign": (f"x,s={SALT},i=+1", False),
    "a minus": (f"x,s={SALT},i=-4096", False),
    "a space": (f"x,s={SALT},i= 1", False),
    "a space after it": (f"x,s={SALT},i=4096 ", False),
    "a line feed after it": (f"x,s={SALT},i=4096\n", False),
    "an underscore": (f"x,s={SALT},i=0_1", False),
    "full-width digits": (f"x,s={SALT},i=\uff11", False),
    "Arabic digits": (f"x,s={SALT},i=\u0664\u0660\u0669\u0666", False),
    "twice": (f"x,s={SALT},i=4096,i=1", False),
    "twice, the other way round": (f"x,s={SALT},i=1,i=4096", False),
    "before the salt": (f"x,i=4096,s={SALT}", False),
    "an extension": (f"x,s={SALT},i=4096,m=1", False),
    "an extension in front": (f"x,m=1,s={SALT},i=4096", False),
    "a nonce twice": (f"x,r=y,s={SALT},i=4096", False),
    "no number": (f"x,s={SALT},i=", False),
    "no salt": ("x,i=4096", False),
    "a salt that is no base64": ("x,s=c2F-dA==,i=4096", False),
    "a salt that is cut off": ("x,s=c2FsdA=,i=4096", False),
    "a nonce with a control character": (f"\0,s={SALT},i=4096", False),
    "a long nonce": (f"{'x' * 20_000},s={SALT},i=4096", False),
    "an error": (",e=other-error", False),
}


def test_a_proof_is_sent_only_for_a_number_of_iterations_that_kafka_allows() -> None:
    with Cases() as cases:
        for name, (rest, fits) in FIRST.items():
            with cases.case(name):
                mechanism, nonce = started()
                message, began = f"r={nonce}{rest}".encode(), time.monotonic()
                if fits:
                    mechanism.receive(message)
                    assert b",p=" in mechanism.auth_bytes()
                else:
                    with pytest.raises(SaslAuthenticationFailedError):
                        mechanism.receive(message)
                    # The state is that before the message: no proof can be asked for.
                    assert b"p=" not in mechanism.auth_bytes()
                assert time.monotonic() - began < 2
        for name, other in {"another nonce": "r=x,s=c2FsdA==,i=4096", "nothing": "", "no text": "\udcff"}.items():
            with cases.case(name), pytest.raises((SaslAuthenticationFailedError, ValueError)):
                started()[0].receive(other.encode("utf-8", "surrogateescape"))


def signature(mechanism: Any, first: bytes, nonce: str) -> bytes:
    """The signature of a server that knows the password."""
    key = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), base64.b64decode(SALT), ITERATIONS_MIN)
    bare = f"n=u,r={nonce}".encode()
    said = b",".join([bare, first, b"c=biws,r=" + nonce.encode() + b"x"])
    server_key = hmac.new(key, b"Server Key", hashlib.sha256).digest()
    return base64.b64encode(hmac.new(server_key, said, hashlib.sha256).digest())


def test_only_a_server_that_knows_the_password_is_believed() -> None:
    def final(message: Any) -> Any:
        mechanism, nonce = started()
        first = f"r={nonce}x,s={SALT},i={ITERATIONS_MIN}".encode()
        mechanism.receive(first)
        mechanism.receive(message(signature(mechanism, first, nonce)))
        return mechanism.is_authenticated()

    assert final(lambda right: b"v=" + right)
    wrong = {
        "another signature": lambda right: b"v=" + base64.b64encode(bytes(32)),
        "none": lambda right: b"v=",
        "twice": lambda right: b"v=AAAA,v=" + right,
        "an extension": lambda right: b"v=" + right + b",x=1",
        "an error": lambda right: b"e=invalid-proof",
        "other characters in it": lambda right: b"v=" + right[:4] + b"\n" + right[4:],
        "nothing": lambda right: b"",
    }
    with Cases() as cases:
        for name, message in wrong.items():
            with cases.case(name), pytest.raises((SaslAuthenticationFailedError, ValueError)):
                final(message)
