"""Reads Java's own key stores (JKS). Bytes only; any thread.

The format has not changed since Java 1.2. Keys are protected by a scheme of its own, a key stream of SHA-1 digests; it
is implemented here because no library that is still maintained has it. Nothing is ever written in this format.

Source: OpenJDK ``sun.security.provider.JavaKeyStore`` and ``KeyProtector``.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final

from kafka_sink.common.bounded import Cursor

MAGIC: Final = b"\xfe\xed\xfe\xed"
_DIGEST_BYTES: Final = 20
_SALT_BYTES: Final = 20
_KEY_ENTRY: Final = 1
_CERTIFICATE_ENTRY: Final = 2
#: Its kind, the lengths of its alias and of what it holds, and a date.
_LEAST_ENTRY_BYTES: Final = 18
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
    reader = Cursor(data[:-_DIGEST_BYTES], _damaged)
    if reader.take(4) != MAGIC:
        raise KeyStoreError("it is not a JKS file")
    version = reader.int32()
    if version not in (1, 2):
        raise KeyStoreError(f"version {version} of JKS is unknown")
    if password:
        digest = hashlib.sha1(_utf_16(password) + b"Mighty Aphrodite" + data[:-_DIGEST_BYTES])
        if not hmac.compare_digest(digest.digest(), data[-_DIGEST_BYTES:]):
            raise KeyStoreError("the password of the store is wrong, or the file is damaged", is_about_password=True)
    keys: list[ProtectedKey] = []
    trusted: list[bytes] = []
    for _ in range(reader.count(_LEAST_ENTRY_BYTES)):
        kind = reader.int32()
        reader.take(reader.uint16())  # the alias
        reader.take(8)  # the date
        if kind == _KEY_ENTRY:
            protected = reader.take(reader.int32())
            chain = tuple(_certificate(reader, version) for _ in range(reader.count(4)))
            keys.append(ProtectedKey(protected, chain))
        elif kind == _CERTIFICATE_ENTRY:
            trusted.append(_certificate(reader, version))
        else:
            raise KeyStoreError(f"it has an entry of the unknown kind {kind}")
    return keys, trusted


def _certificate(reader: Cursor, version: int) -> bytes:
    if version > 1:
        reader.take(reader.uint16())  # "X.509"
    return reader.take(reader.int32())


def _damaged(problem: str) -> KeyStoreError:
    return KeyStoreError(f"it is damaged: {problem}")


def _element(reader: Cursor, tag: int) -> bytes:
    """The content of the DER element that is next, which must have this *tag*."""
    actual, length = reader.take(2)
    if actual != tag:
        raise KeyStoreError("its private key is malformed")
    if length & 0x80:
        length = int.from_bytes(reader.take(length & 0x7F))
    return reader.take(length)


def unprotect(protected: bytes, password: str) -> bytes:
    """The private key (PKCS #8, DER) of a :class:`ProtectedKey`.

    :raises KeyStoreError: if it is malformed or protected in another way, or the password is wrong.
    """
    info = Cursor(_element(Cursor(protected, _damaged), _SEQUENCE), _damaged)
    if not _element(info, _SEQUENCE).startswith(_PROTECTION):
        raise KeyStoreError("its private key is protected in an unknown way")
    stored = _element(info, _OCTETS)
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
