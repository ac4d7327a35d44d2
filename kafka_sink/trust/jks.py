"""Reads Java's own key stores (JKS). Bytes only; any thread.

The format has not changed since Java 1.2. Keys are protected by a scheme of its own, a key stream of SHA-1 digests; it
is implemented here because no library that is still maintained has it. Nothing is ever written in this format.

Source: OpenJDK ``sun.security.provider.JavaKeyStore`` and ``KeyProtector``.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass, field
from typing import Final

MAGIC: Final = b"\xfe\xed\xfe\xed"
_DIGEST_BYTES: Final = 20
_SALT_BYTES: Final = 20
_KEY_ENTRY: Final = 1
_CERTIFICATE_ENTRY: Final = 2
#: The object identifier 1.3.6.1.4.1.42.2.17.1.1 of the key protection.
_PROTECTION: Final = bytes.fromhex("060a2b060104012a02110101")
_SEQUENCE: Final = 0x30
_OCTETS: Final = 0x04


class KeyStoreError(Exception):
    """The store cannot be read; the text says why, and contains nothing of the store. *is_about_password*: another
    password may help."""

    def __init__(self, text: str, *, is_about_password: bool = False) -> None:
        super().__init__(text)
        self.is_about_password = is_about_password


@dataclass(frozen=True)
class ProtectedKey:
    """A private key as it is stored, and its certificates (DER), own certificate first."""

    protected: bytes = field(repr=False)
    chain: tuple[bytes, ...]


def read_jks(data: bytes, password: str) -> tuple[list[ProtectedKey], list[bytes]]:
    """The private keys and the trusted certificates (DER) of a store.

    :param password: of the store; empty to read certificates without a check of integrity, as Java does.
    :raises KeyStoreError: if the store is damaged, was changed or is of another kind, or the password is wrong.
    """
    reader = _Reader(data[:-_DIGEST_BYTES])
    if reader.take(4) != MAGIC:
        raise KeyStoreError("it is not a JKS file")
    version = reader.number(4)
    if version not in (1, 2):
        raise KeyStoreError(f"version {version} of JKS is unknown")
    if password:
        digest = hashlib.sha1(_utf_16(password) + b"Mighty Aphrodite" + data[:-_DIGEST_BYTES])
        if not hmac.compare_digest(digest.digest(), data[-_DIGEST_BYTES:]):
            raise KeyStoreError("the password of the store is wrong, or the file is damaged", is_about_password=True)
    keys: list[ProtectedKey] = []
    trusted: list[bytes] = []
    for _ in range(reader.number(4)):
        kind = reader.number(4)
        reader.take(reader.number(2))  # the alias
        reader.take(8)  # the date
        if kind == _KEY_ENTRY:
            protected = reader.take(reader.number(4))
            keys.append(ProtectedKey(protected, tuple(_certificate(reader, version) for _ in range(reader.number(4)))))
        elif kind == _CERTIFICATE_ENTRY:
            trusted.append(_certificate(reader, version))
        else:
            raise KeyStoreError(f"it has an entry of the unknown kind {kind}")
    return keys, trusted


def _certificate(reader: _Reader, version: int) -> bytes:
    if version > 1:
        reader.take(reader.number(2))  # "X.509"
    return reader.take(reader.number(4))


def unprotect(protected: bytes, password: str) -> bytes:
    """The private key (PKCS #8, DER) of a :class:`ProtectedKey`.

    :raises KeyStoreError: if it is malformed or protected in another way, or the password is wrong.
    """
    info = _Reader(_Reader(protected).element(_SEQUENCE))
    if not info.element(_SEQUENCE).startswith(_PROTECTION):
        raise KeyStoreError("its private key is protected in an unknown way")
    stored = info.element(_OCTETS)
    salt, check = stored[:_SALT_BYTES], stored[-_DIGEST_BYTES:]
    encrypted = stored[_SALT_BYTES:-_DIGEST_BYTES]
    secret = _utf_16(password)
    blocks = [salt]
    for _ in range(0, len(encrypted), _DIGEST_BYTES):
        blocks.append(hashlib.sha1(secret + blocks[-1]).digest())
    key = bytes(a ^ b for a, b in zip(encrypted, b"".join(blocks[1:]), strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), check):
        raise KeyStoreError("the password of the private key is wrong", is_about_password=True)
    return key


def _utf_16(password: str) -> bytes:
    return password.encode("utf-16-be", errors="surrogatepass")


class _Reader:
    """Takes bytes from the front. :raises KeyStoreError: if there are too few."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise KeyStoreError("it is damaged: it ends too early")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def number(self, size: int) -> int:
        return int(struct.unpack({2: ">H", 4: ">I"}[size], self.take(size))[0])

    def element(self, tag: int) -> bytes:
        """The content of the DER element that is next, which must have this *tag*."""
        (actual, length) = self.take(2)
        if actual != tag:
            raise KeyStoreError("its private key is malformed")
        if length & 0x80:
            length = int.from_bytes(self.take(length & 0x7F), "big")
        return self.take(length)
