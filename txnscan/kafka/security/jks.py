"""Java's own key stores, type JKS (`sun.security.provider.JavaKeyStore`), from their bytes. Pure.

A store is a list of entries: trusted certificates, and private keys with their chains. It ends with a digest over all
entries and the password. A key is hidden (encrypted) with a stream of SHA-1 digests of the password, each over the
digest before it (`sun.security.provider.KeyProtector`). A digest of the key shows whether the password is right. Stores
of type PKCS12, Java's newer default, and JCEKS have their own formats.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass

MAGIC = b"\xfe\xed\xfe\xed"
_HEAD = struct.Struct(">4sII")
_KEY, _CERTIFICATE = 1, 2
_VERSIONS = (1, 2)
_DIGEST_BYTES = 20
_WHITENER = b"Mighty Aphrodite"
# SEQUENCE of the algorithm's identifier, 1.3.6.1.4.1.42.2.17.1.1, and NULL.
_ALGORITHM = bytes.fromhex("300e060a2b060104012a0211010105 00".replace(" ", ""))
_SEQUENCE, _OCTETS = 0x30, 0x04


class BadStore(ValueError):
    """The bytes are not a store. The message is the reason, as a clause."""


class WrongPassword(ValueError):
    """The password does not belong to the store, or not to the key."""


@dataclass(frozen=True, slots=True)
class Key:
    """A private key, still hidden, and its certificates in DER. The key's own certificate comes first."""

    alias: str
    hidden: bytes
    chain: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of a store. trusted: certificates in DER."""

    keys: tuple[Key, ...]
    trusted: tuple[bytes, ...]


def entries(data: bytes, password: str | None) -> Entries:
    """The entries of a store. Without a password there is no check whether the store was changed, as in Java. Raises
    BadStore and WrongPassword.
    """
    reader = _Reader(data[:-_DIGEST_BYTES])
    magic, version, count = _HEAD.unpack(reader.take(_HEAD.size))
    if magic != MAGIC or version not in _VERSIONS:
        raise BadStore("it is of another format or version")
    if password is not None:
        digest = hashlib.sha1(_characters(password) + _WHITENER + data[:-_DIGEST_BYTES], usedforsecurity=False)
        if not hmac.compare_digest(digest.digest(), data[-_DIGEST_BYTES:]):
            raise WrongPassword
    keys: list[Key] = []
    trusted: list[bytes] = []
    for _ in range(count):
        tag = reader.number(4)
        alias = reader.take(reader.number(2)).decode("utf-8", "replace")
        reader.take(8)  # when it was made
        if tag == _KEY:
            hidden = reader.take(reader.number(4))
            keys.append(Key(alias, hidden, tuple(reader.certificate(version) for _ in range(reader.number(4)))))
        elif tag == _CERTIFICATE:
            trusted.append(reader.certificate(version))
        else:
            raise BadStore(f"an entry has the tag {tag}")
    if reader.left:
        raise BadStore(f"{reader.left} bytes stand behind its entries")
    return Entries(tuple(keys), tuple(trusted))


def private_key(hidden: bytes, password: str) -> bytes:
    """The key in DER, as PKCS #8. Raises BadStore and WrongPassword."""
    outer = _Reader(_Reader(hidden).value(_SEQUENCE))
    if outer.take(len(_ALGORITHM)) != _ALGORITHM:
        raise BadStore("a key is not hidden as stores of this type hide keys")
    octets = outer.value(_OCTETS)
    if len(octets) < 2 * _DIGEST_BYTES:
        raise BadStore("a key is cut short")
    salt, body, check = octets[:_DIGEST_BYTES], octets[_DIGEST_BYTES:-_DIGEST_BYTES], octets[-_DIGEST_BYTES:]
    secret, digest, key = _characters(password), salt, bytearray()
    for at in range(0, len(body), _DIGEST_BYTES):
        digest = hashlib.sha1(secret + digest, usedforsecurity=False).digest()
        key += bytes(a ^ b for a, b in zip(body[at : at + _DIGEST_BYTES], digest, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key, usedforsecurity=False).digest(), check):
        raise WrongPassword
    return bytes(key)


def _characters(password: str) -> bytes:
    """A password as the bytes of Java's characters."""
    return password.encode("utf-16-be", "surrogatepass")


class _Reader:
    """Reads bytes from the front. Raises BadStore if the bytes end too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise BadStore("it is cut short")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def certificate(self, version: int) -> bytes:
        if version > 1:
            kind = self.take(self.number(2))
            if kind != b"X.509":
                raise BadStore("a certificate is none of X.509")
        return self.take(self.number(4))

    def value(self, tag: int) -> bytes:
        """The contents of a DER value."""
        if self.number(1) != tag:
            raise BadStore("a key is not in DER")
        size = self.number(1)
        return self.take(self.number(size & 0x7F) if size & 0x80 else size)
