"""`txnscan check` reports weak connection security."""

from __future__ import annotations

import pytest

from txnscan.kafka.client.connection import ConnectionSettings, TlsSettings
from txnscan.sweeps.preflight import Level, check_security

CHECKED, UNCHECKED = TlsSettings(), TlsSettings(check_hostname=False)
PASSWORD = "s3cr3t"


@pytest.mark.parametrize(
    ("protocol", "tls", "mechanism", "notes"),
    [
        ("PLAINTEXT", None, None, []),
        ("SSL", CHECKED, None, []),
        ("SASL_SSL", CHECKED, "PLAIN", []),
        ("SASL_PLAINTEXT", None, "SCRAM-SHA-512", []),
        ("SASL_PLAINTEXT", None, "PLAIN", ["security.protocol=SASL_SSL"]),
        ("SSL", UNCHECKED, None, ["ssl.endpoint.identification.algorithm"]),
        ("SASL_SSL", UNCHECKED, "PLAIN", ["ssl.endpoint.identification.algorithm"]),
    ],
)
def test_each_weakness_is_a_note_naming_the_setting(
    protocol: str, tls: TlsSettings | None, mechanism: str | None, notes: list[str]
) -> None:
    settings = ConnectionSettings(protocol, tls, mechanism, "alice" if mechanism else None, PASSWORD)
    first, *others = check_security(settings)
    assert (first.area, first.level) == ("security", Level.OK)
    assert [one.level for one in others] == [Level.NOTE] * len(notes)
    assert all(setting in one.said for setting, one in zip(notes, others, strict=True))
    assert not any(PASSWORD in one.said for one in (first, *others))
