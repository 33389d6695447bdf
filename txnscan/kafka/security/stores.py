"""Java's key stores and trust stores as PEM text. The library `cryptography`, an extra, reads PKCS12. `jks.py` reads
Java's own JKS.

By default Java reads both formats if the type is JKS (`keystore.type.compat`), so the file's first bytes decide.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

from txnscan.kafka.security import jks
from txnscan.kafka.security.safe_files import read_limited

_JCEKS = b"\xce\xce\xce\xce"


@dataclass(frozen=True, slots=True)
class PemStore:
    """The entries of a store, as PEM. certificates: the key's own certificate comes first, if there is a key."""

    certificates: str
    key: str | None


def read_store(setting: str, location: str, password: str | None, key_password: str | None = None) -> PemStore:
    """The store at a location. setting: ssl.keystore or ssl.truststore. key_password: if it differs from the store's
    password. Raises ValueError, with the name of the setting in the message and no value.
    """
    try:
        data = read_limited(location)
    except OSError:
        raise ValueError(f"{setting}.location names a file that cannot be read") from None
    if data.startswith(_JCEKS):
        raise ValueError(
            f"{setting}.location is a JCEKS store, which only Java reads; convert it once with `keytool "
            f"-importkeystore -srckeystore STORE -srcstoretype JCEKS -destkeystore STORE.p12 -deststoretype PKCS12`, "
            f"and set {setting}.type=PKCS12"
        )
    if data.startswith(jks.MAGIC):
        try:
            return _java_store(setting, data, password, key_password)
        except jks.WrongPassword:
            raise ValueError(f"{setting}.password is not the password of its JKS store") from None
        except jks.BadStore as bad:
            raise ValueError(f"{setting}.location is a JKS store that is damaged: {bad}") from None
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
        return PemStore(pem, None)
    key = held.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return PemStore(pem, key.decode())


def _java_store(setting: str, data: bytes, password: str | None, key_password: str | None) -> PemStore:
    """A JKS store, as PEM. Raises jks.BadStore, jks.WrongPassword and ValueError."""
    held = jks.entries(data, password)
    if setting == "ssl.truststore":
        # As Java does (`TrustStoreUtil`): a key's own certificate is trusted too.
        return PemStore(_pem("CERTIFICATE", *held.trusted, *(key.chain[0] for key in held.keys if key.chain)), None)
    if len(held.keys) != 1:
        raise ValueError(f"{setting}.location holds {len(held.keys)} keys; give a store with the one to use")
    (own,) = held.keys
    secret = key_password if key_password is not None else password
    if secret is None:
        raise ValueError(f"{setting}.password is needed for the key in a JKS store")
    try:
        key = jks.private_key(own.hidden, secret)
    except jks.WrongPassword:
        raise ValueError(f"ssl.key.password, or else {setting}.password, is not the key's password") from None
    return PemStore(_pem("CERTIFICATE", *own.chain), _pem("PRIVATE KEY", key))


def _pem(kind: str, *values: bytes) -> str:
    return "".join(
        f"-----BEGIN {kind}-----\n{base64.encodebytes(value).decode()}-----END {kind}-----\n" for value in values
    )
