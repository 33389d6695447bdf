"""GSSAPI by kafka-python and the library `gssapi`, with the ticket in the user's cache. Its errors become sentences."""

from __future__ import annotations

from typing import Any

from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.gssapi import SaslMechanismGSSAPI

from txnscan.kafka.security.oauth import TokenFailed

MECHANISM = "GSSAPI"


class TicketFailed(TokenFailed):
    """Kerberos gave no ticket, or did not accept the broker's answer. The message is a clause."""

    of_what = "ticket"


class Kerberos(SaslMechanismGSSAPI):  # type: ignore[misc]
    """kafka-python's mechanism, with the errors of `gssapi` raised as TicketFailed."""

    def __init__(self, **config: Any) -> None:
        try:
            super().__init__(**config)
        except Exception as error:
            who = f"{config.get('sasl_kerberos_service_name')}@{config.get('host')}"
            raise TicketFailed(
                f"Kerberos gave none for {who} ({_said(error)}); look with klist, get one with kinit"
            ) from error

    def receive(self, auth_bytes: bytes) -> None:
        """See SaslMechanism."""
        try:
            super().receive(auth_bytes)
        except Exception as error:
            raise TicketFailed(f"Kerberos did not take what the broker said ({_said(error)})") from error


def _said(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


register_sasl_mechanism(MECHANISM, Kerberos, overwrite=True)
