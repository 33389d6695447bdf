"""Key stores and trust stores of Java as PEM text. PKCS12 is read by the library `cryptography`, an extra.

Java takes either for type JKS, which is its default (`keystore.type.compat`), so that the file's first bytes decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_JKS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")


@dataclass(frozen=True, slots=True)
class Store:
    """What a store holds, as PEM. certificates: that of the key first, where it has one, and its chain."""

    certificates: str
    key: str | None


def read_store(setting: str, location: str, password: str | None) -> Store:
    """The store at a location. setting: ssl.keystore or ssl.truststore. Raises ValueError, whose message names the
    setting and holds no value.
    """
    try:
        data = Path(location).read_bytes()
    except OSError:
        raise ValueError(f"{setting}.location names a file that cannot be read") from None
    if data.startswith(_JKS):
        raise ValueError(
            f"{setting}.location is a JKS store, which only Java reads; convert it once with `keytool -importkeystore "
            f"-srckeystore STORE.jks -destkeystore STORE.p12 -deststoretype PKCS12`, and set {setting}.type=PKCS12"
        )
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise ValueError(f"{setting}.type=PKCS12 needs the library cryptography; install txnscan[pkcs12]") from None
    try:
        held = pkcs12.load_pkcs12(data, password.encode() if password is not None else None)
    except ValueError:
        raise ValueError(f"{setting}.location is no PKCS12 store, or {setting}.password is not its password") from None
    own = [held.cert] if held.cert is not None else []
    pem = b"".join(
        one.certificate.public_bytes(serialization.Encoding.PEM) for one in (*own, *held.additional_certs)
    ).decode()
    if held.key is None:
        return Store(pem, None)
    key = held.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Store(pem, key.decode())
