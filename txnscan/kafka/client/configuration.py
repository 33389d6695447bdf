"""Convert connection settings to kafka-python's configuration."""

from __future__ import annotations

from typing import Any

from txnscan.kafka.client.connection import ConnectionSettings
from txnscan.kafka.client.receiving import ANSWER_BYTES_MAX
from txnscan.kafka.security.oauth import Tokens


def configuration(settings: ConnectionSettings) -> dict[str, Any]:
    """The options of kafka-python's connection manager. Raises ssl.SSLError or ValueError for unusable PEM text."""
    if settings.kerberos_service is not None:
        import txnscan.kafka.security.kerberos
    if settings.sasl_mechanism is not None and settings.sasl_mechanism.startswith("SCRAM-"):
        import txnscan.kafka.security.scram  # noqa: F401  registers its mechanism in the place of kafka-python's
    kerberos, oauth = settings.kerberos_service, settings.oauth
    return {
        "client_id": settings.client_id,
        "client_software_name": "txnscan",
        "request_timeout_ms": settings.request_timeout_ms,
        "socket_connection_setup_timeout_ms": settings.connection_setup_timeout_ms,
        "socket_connection_setup_timeout_max_ms": settings.connection_setup_timeout_ms,
        # `receiving.py` has its own limits.
        "receive_message_max_bytes": ANSWER_BYTES_MAX,
        "security_protocol": settings.security_protocol,
        "ssl_context": settings.tls.context() if settings.tls is not None else None,
        "sasl_mechanism": settings.sasl_mechanism,
        "sasl_plain_username": settings.sasl_username,
        "sasl_plain_password": settings.sasl_password,
        **({"sasl_kerberos_service_name": kerberos} if kerberos is not None else {}),
        **({"sasl_oauth_token_provider": Tokens(oauth)} if oauth is not None else {}),
    }
