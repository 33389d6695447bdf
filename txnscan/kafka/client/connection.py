"""Connection settings as one picklable value. Executors get it with their task and read no files."""

from __future__ import annotations

import os
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from txnscan.kafka.security.acls import UNKNOWN_PRINCIPAL


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS from PEM text. Without `ca_pem`, the system's certificate authorities are trusted."""

    ca_pem: str | None = None
    certificate_pem: str | None = field(default=None, repr=False)
    key_pem: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True

    def context(self) -> ssl.SSLContext:
        """The TLS context. Raises ssl.SSLError or ValueError if the PEM text is unusable."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.check_hostname
        if self.ca_pem is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(cadata=self.ca_pem)
        if self.certificate_pem is not None:
            self._load_certificate(context)
        return context

    def _load_certificate(self, context: ssl.SSLContext) -> None:
        # Python loads a client certificate only from a file. Only this user can read it, and it is removed at once.
        descriptor, name = tempfile.mkstemp(suffix=".pem")
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(f"{self.key_pem or ''}\n{self.certificate_pem}\n")
            # Never None: OpenSSL would ask for the password on the terminal.
            context.load_cert_chain(name, password=lambda: self.key_password or "")
        finally:
            Path(name).unlink()


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """OAUTHBEARER with client credentials: the token endpoint, and the client.

    urlencoded: whether id and secret are URL-encoded for the header, as some servers require. extensions: sent to
    brokers with the token.
    """

    token_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    urlencoded: bool = False
    extensions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """All settings of a connection except its address. Its repr shows no secret.

    Timeouts are in milliseconds. `connection_setup_timeout_ms` limits connecting, TLS and SASL together.
    `request_timeout_ms` limits the wait for one answer. kerberos_service: the name of the brokers' service, for GSSAPI.
    """

    security_protocol: str = "PLAINTEXT"
    tls: TlsSettings | None = None
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    oauth: OAuthSettings | None = None
    kerberos_service: str | None = None
    client_id: str = "txnscan"
    request_timeout_ms: int = 15_000
    connection_setup_timeout_ms: int = 8_000

    @property
    def principal(self) -> str:
        """The principal that brokers most likely see. Only for advice: brokers may map names in their own ways."""
        return UNKNOWN_PRINCIPAL if self.sasl_username is None else f"User:{self.sasl_username}"
