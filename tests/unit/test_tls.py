"""A broker, or someone between, that offers less than TLS 1.2, or another certificate."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

import pytest
import trustme

from tests.cases import Cases
from txnscan.kafka.client.connection import TlsSettings

CA, OTHER_CA = trustme.CA(), trustme.CA()
NAME = "broker-1.example.org"


def server(ca: trustme.CA = CA, name: str = NAME, most: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    """The context of a server that offers at most this version, and all ciphers of old."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version, context.maximum_version = ssl.TLSVersion.MINIMUM_SUPPORTED, most
    ca.issue_cert(name).configure_cert(context)
    return context


def agreed(client: ssl.SSLContext, server: ssl.SSLContext) -> str | None:
    """The version of a handshake in memory. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours: Any = client.wrap_bio(to_client, to_server, server_hostname=NAME)
    theirs: Any = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(5):
        for one in (ours, theirs):
            try:
                one.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return str(ours.version())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_handshake_needs_tls_1_2_and_the_certificate_of_this_broker() -> None:
    refused: dict[str, Callable[[], ssl.SSLContext]] = {
        "TLS 1.0": lambda: server(most=ssl.TLSVersion.TLSv1),
        "TLS 1.1": lambda: server(most=ssl.TLSVersion.TLSv1_1),
        "another authority": lambda: server(OTHER_CA),
        "another name": lambda: server(name="broker-2.example.org"),
        "a name above it": lambda: server(name="example.org"),
    }
    accepted = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
    trusting = TlsSettings(ca_pem=CA.cert_pem.bytes().decode())
    with Cases() as cases:
        for name, made in refused.items():
            with cases.case(name), pytest.raises(ssl.SSLError):
                agreed(trusting.context(), made())
        for version, most in accepted.items():
            with cases.case(version):
                assert agreed(trusting.context(), server(most=most)) == version
