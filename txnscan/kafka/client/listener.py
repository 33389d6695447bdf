"""Find out what a port speaks (TLS or not, SASL or not), to explain a failed connection and the setting to change.

If a client speaks the wrong protocol, a broker closes the connection without a reason. So the port is probed once more,
without secrets: a connection, a TLS handshake that trusts any certificate and has no other use, and SaslHandshake (api
key 17). A listener without SASL answers it with ILLEGAL_SASL_STATE. A listener with SASL answers with its mechanisms,
before any credentials (`SaslServerAuthenticator`, `KafkaApis.handleSaslHandshakeRequest`).
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.errors import ErrorCode

_STEP_S_MAX = 2.0
# The limit of all steps together.
LOOK_S_MAX = 12.0
_SASL_HANDSHAKE, _VERSION, _CORRELATION_ID = 17, 1, 1
_ANSWER_BYTES_MAX = 64 * 1024
_IN_FILE = "in the file of --command-config"


NOTHING_LISTENS = "nothing listens at that port; check host and port, and whether the broker is up"


@dataclass(frozen=True, slots=True)
class Listener:
    """The observed protocol of a port. trouble: why there is no connection to it at all, with the remedy, as a clause.

    protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; None for another protocol. mechanisms: of SASL.
    wants_certificate: whether it asks clients for a TLS certificate.
    """

    trouble: str | None = None
    protocol: str | None = None
    mechanisms: tuple[str, ...] = ()
    wants_certificate: bool = False


def look(hosts: Sequence[str], port: int) -> Listener:
    """Connects up to three times and sends no credentials. Takes seconds if the port does not answer, and never more
    than LOOK_S_MAX. hosts: the IP addresses of the broker, of which the first that takes a connection counts.
    """
    ends_s = time.monotonic() + LOOK_S_MAX
    try:
        with _connected(hosts, port, ends_s):
            pass
    except ConnectionRefusedError:
        return Listener(NOTHING_LISTENS)
    except TimeoutError:
        return Listener(f"no connection within {_STEP_S_MAX:g} s; check host and port, and firewalls on the way")
    except OSError as error:
        return Listener(f"{(error.strerror or type(error).__name__).lower()}; check host and port")
    tls = _speaks_tls(hosts, port, ends_s)
    transport = "SSL" if tls else "PLAINTEXT"
    try:
        with _connected(hosts, port, ends_s) as plain:
            if tls:
                with _encrypted(plain, ends_s) as encrypted:
                    error_code, mechanisms = _sasl_handshake(encrypted, ends_s)
            else:
                error_code, mechanisms = _sasl_handshake(plain, ends_s)
    except ssl.SSLError:
        # With TLS 1.3 a listener refuses a client without a certificate after the handshake.
        return Listener(protocol="SSL", wants_certificate=True)
    except (OSError, struct.error, UnicodeDecodeError):
        return Listener(protocol=transport if tls else None)
    if error_code == ErrorCode.ILLEGAL_SASL_STATE:
        return Listener(protocol=transport)
    return Listener(protocol=f"SASL_{transport}", mechanisms=mechanisms)


def mismatch(seen: Listener, settings: ConnectionSettings) -> str | None:
    """How these settings differ from the protocol of the port, and the remedy, as the predicate of a sentence about the
    broker. None if they do not differ.
    """
    if seen.trouble is not None:
        return f"cannot be reached: {seen.trouble}"
    ours = settings.security_protocol
    if seen.protocol is not None and seen.protocol != ours:
        named = f" (its mechanisms: {', '.join(seen.mechanisms)})" if seen.mechanisms else ""
        also = f", sasl.mechanism and sasl.jaas.config{named}" if seen.protocol.startswith("SASL") else ""
        remedy = (
            "leave --command-config out, or set security.protocol=PLAINTEXT"
            if seen.protocol == "PLAINTEXT"
            else f"set security.protocol={seen.protocol}{also} {_IN_FILE}"
        )
        return f"speaks {seen.protocol}, and security.protocol is {ours}; {remedy}"
    if seen.mechanisms and settings.sasl_mechanism not in seen.mechanisms:
        known = ", ".join(seen.mechanisms)
        return f"does not take sasl.mechanism={settings.sasl_mechanism}; set one of {known} {_IN_FILE}"
    if seen.wants_certificate and settings.tls is not None and settings.tls.certificate_pem is None:
        return f"asks for a client's certificate; set ssl.keystore.type=PEM and ssl.keystore.location {_IN_FILE}"
    return None


@contextlib.contextmanager
def _connected(hosts: Sequence[str], port: int, ends_s: float) -> Iterator[socket.socket]:
    with _connection(hosts, port, ends_s) as connection:
        yield connection


def _connection(hosts: Sequence[str], port: int, ends_s: float) -> socket.socket:
    *others, last = hosts
    for host in others:
        with contextlib.suppress(OSError):
            return socket.create_connection((host, port), timeout=_step_s(ends_s))
    return socket.create_connection((last, port), timeout=_step_s(ends_s))


def _step_s(ends_s: float) -> float:
    """The time for a step, if all of them end at this time. Raises TimeoutError if it is over."""
    left_s = ends_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("the time to look at the port is over")
    return min(_STEP_S_MAX, left_s)


def _speaks_tls(hosts: Sequence[str], port: int, ends_s: float) -> bool:
    try:
        with _connected(hosts, port, ends_s) as plain, _encrypted(plain, ends_s):
            return True
    except ssl.SSLError as error:
        # An alert is also TLS: under TLS 1.2, a listener that wants a certificate answers with it.
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


def _encrypted(plain: socket.socket, ends_s: float) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # No secret is sent over this connection.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # The limit of the whole handshake (`_ssl__SSLSocket_do_handshake_impl`).
    plain.settimeout(_step_s(ends_s))
    return context.wrap_socket(plain)


# RFC 4422, section 3.1. All other bytes of a peer are kept from the terminal.
_MECHANISM = re.compile(r"[A-Z0-9_-]{1,20}")


def _sasl_handshake(connection: socket.socket, ends_s: float) -> tuple[int, tuple[str, ...]]:
    """The error code and the mechanisms of a SaslHandshake. Raises OSError and struct.error."""
    mechanism = b"PLAIN"
    body = struct.pack(">hhihh", _SASL_HANDSHAKE, _VERSION, _CORRELATION_ID, -1, len(mechanism)) + mechanism
    connection.sendall(struct.pack(">i", len(body)) + body)
    (length,) = struct.unpack(">i", _received(connection, 4, ends_s))
    if not 10 <= length <= _ANSWER_BYTES_MAX:
        raise struct.error("no answer of Kafka's")
    answer = _received(connection, length, ends_s)
    correlation_id, error_code, count = struct.unpack_from(">ihi", answer)
    if correlation_id != _CORRELATION_ID:
        raise struct.error("no answer of Kafka's")
    mechanisms, at = [], 10
    for _ in range(count):
        (size,) = struct.unpack_from(">h", answer, at)
        name = answer[at + 2 : at + 2 + max(size, 0)].decode("latin-1")
        if not _MECHANISM.fullmatch(name):
            raise struct.error("no answer of Kafka's")
        mechanisms.append(name)
        at += 2 + size
    return error_code, tuple(sorted(mechanisms))


def _received(connection: socket.socket, count: int, ends_s: float) -> bytes:
    """So many bytes. All together have the time of a step: a peer that sends them one by one is no broker."""
    data, ends_s = b"", time.monotonic() + _step_s(ends_s)
    while len(data) < count:
        connection.settimeout(_step_s(ends_s))
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionResetError("closed")
        data += more
    return data


def accepts(host: str, port: int, timeout_s: float) -> bool:
    """Whether a TCP connection to this address can be opened."""
    try:
        socket.create_connection((host, port), timeout_s).close()
    except OSError:
        return False
    return True
