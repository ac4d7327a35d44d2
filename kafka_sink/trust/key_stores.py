"""Java's key stores as PEM text: JKS, and PKCS12 with the package ``cryptography``. Bytes only; any thread.

As in Java, a store is recognised by its content, so both types read both formats. JKS has not changed since Java 1.2.
Its keys are protected by a scheme of its own, a key stream of SHA-1 digests; it is implemented here because no library
that is still maintained has it. Nothing is ever written in this format.

Source: OpenJDK ``sun.security.provider.JavaKeyStore`` and ``KeyProtector``; RFC 7292 (PKCS12).
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates


import hashlib
import hmac
from dataclasses import dataclass, field

from kafka_sink.common.bounded import Cursor

MAGIC: Final = b"\xfe\xed\xfe\xed"
_DIGEST_BYTES: Final = 20
_SALT_BYTES: Final = 20
_KEY_ENTRY: Final = 1
_CERTIFICATE_ENTRY: Final = 2
#: Its type, a date, and the lengths of its alias and its content.
_LEAST_ENTRY_BYTES: Final = 18
#: The object identifier 1.3.6.1.4.1.42.2.17.1.1 of the key protection.
_PROTECTION: Final = bytes.fromhex("060a2b060104012a02110101")
_SEQUENCE: Final = 0x30


class KeyStoreError(Exception):
    """The store cannot be read; the text gives the cause, without content of the store. *is_about_password*: the
    password may be wrong."""

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
    """The content of the next DER element, which must have this *tag*."""
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


#: The first byte of a DER sequence, as PKCS12 files begin.
_DER_SEQUENCE: Final = b"\x30"
_INTEGER: Final = 0x02
_OCTETS: Final = 0x04
_IDENTIFIER: Final = 0x06
#: keyBag and pkcs8ShroudedKeyBag, 1.2.840.113549.1.12.10.1.1 and .2 (RFC 7292).
_KEY_BAGS: Final = (bytes.fromhex("2a864886f70d010c0a0101"), bytes.fromhex("2a864886f70d010c0a0102"))
_CONSTRUCTED: Final = 0x20
#: Above this value, the byte gives the number of bytes of the length.
_LONG_LENGTH: Final = 0x80
_UNTIL_MARK: Final = 0x80
_MARK: Final = 0x00
#: openssl and keytool use some thousand iterations, cautious users a million.
_MOST_ITERATIONS: Final = 10_000_000
_SCRYPT: Final = bytes.fromhex("2b06010401da47040b")
#: Levels of nested elements; stores have about ten.
_MOST_DEPTH: Final = 50


def trusted_certificates(data: bytes, password: str) -> str:
    """The certificates that a truststore trusts, as PEM: its trusted certificates and, as in Java, the own certificates
    of its private keys.

    :raises KeyStoreError: if the store cannot be read, has none, or its password is wrong; the text contains nothing of
        the store.
    """
    if data.startswith(MAGIC):
        keys, trusted = read_jks(data, password)
        certificates = [*trusted, *(key.chain[0] for key in keys if key.chain)]
        pem = [ssl.DER_cert_to_PEM_cert(certificate) for certificate in certificates]
    else:
        store = _read_pkcs12(data, password)
        own = [] if store.cert is None else [store.cert]
        pem = [_pem(entry.certificate) for entry in [*store.additional_certs, *own]]
    if not pem:
        raise KeyStoreError("it contains no certificate")
    return "".join(pem)


def key_and_chain(data: bytes, password: str, key_password: str) -> str:
    """The only private key of a keystore and its certificates, own certificate first, as PEM without a password.

    :param key_password: of the key, if it is not that of the store.
    :raises KeyStoreError: as :func:`trusted_certificates`, or if there is not exactly one private key.
    """
    if not data.startswith(MAGIC):
        store = _read_pkcs12(data, password)
        # Each private key in a store is encrypted separately, unlike certificates.
        _check_single(sum(tag == _IDENTIFIER and inner in _KEY_BAGS for tag, inner, _ in _elements(data)))
        return _pkcs12_identity(store)
    if not password:
        raise KeyStoreError("the password of the store is required", is_about_password=True)
    keys, _ = read_jks(data, password)
    _check_single(len(keys))
    key = unprotect(keys[0].protected, key_password or password)
    pem_of_key = ssl.DER_cert_to_PEM_cert(key).replace(" CERTIFICATE", " PRIVATE KEY")
    return pem_of_key + "".join(ssl.DER_cert_to_PEM_cert(certificate) for certificate in keys[0].chain)


def _check_single(keys: int) -> None:
    if keys != 1:
        hint = "; export one alias to a store of its own (keytool -importkeystore -srcalias)" if keys else ""
        raise KeyStoreError(f"it contains {keys} private keys, expected one{hint}")


def _read_pkcs12(data: bytes, password: str) -> PKCS12KeyAndCertificates:
    if not data.startswith(_DER_SEQUENCE):
        is_pem = b"-----BEGIN " in data
        raise KeyStoreError("it is PEM; set its type to PEM" if is_pem else "it is neither JKS nor PKCS12")
    if "\0" in password:
        raise KeyStoreError(
            "the password of the store has a character that no password has (NUL)", is_about_password=True
        )
    if _most_iterations(data) > _MOST_ITERATIONS or _SCRYPT in data:
        raise KeyStoreError(
            f"its password is hashed more than {_MOST_ITERATIONS} times or with scrypt, which is slow; write it again"
        )
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise KeyStoreError(
            "PKCS12 needs the package cryptography, which pip install 'kafkalite[keystores]' installs"
        ) from None
    try:
        return pkcs12.load_pkcs12(data, password.encode())
    except ValueError:
        what = "the password of the store is wrong" if password else "the password of the store is required"
        raise KeyStoreError(f"{what}, or the file is damaged", is_about_password=True) from None
    except UnsupportedAlgorithm:
        raise KeyStoreError(
            "it is encrypted in a way that is not supported; write it again with the keytool of Java 17"
        ) from None


def _most_iterations(data: bytes) -> int:
    """The largest iteration count in DER, which follows a salt: an INTEGER after an OCTET STRING.

    Source: RFC 7292 (MacData), RFC 8018 (PBKDF2-params, PBEParameter).
    """
    return max(
        (int.from_bytes(inner) for tag, inner, before in _elements(data) if tag == _INTEGER and before == _OCTETS),
        default=0,
    )


def _elements(data: bytes, depth: int = 0) -> Iterator[tuple[int, bytes, int | None]]:
    """(tag, content, tag of the preceding element) of each element of DER or BER, including elements within an OCTET
    STRING, but not within the pieces of a string, which have a *depth* above 0.

    BER, which some programs write, may divide a string into pieces and end an element by a mark instead of a length. A
    string has one tag here, and the element after a marked element follows the tag of that element.

    Source: X.690, 8.1.3 and 8.7.

    :raises KeyStoreError: if elements are nested more than :data:`_MOST_DEPTH` levels deep.
    """
    waiting = [(data, depth)]
    while waiting:
        part, level = waiting.pop()
        at, before = 0, None
        # Those that a mark will end, with the pieces of a string so far.
        unended: list[tuple[int, list[bytes]]] = []
        while at + 2 <= len(part):
            tag, size, at = part[at], part[at + 1], at + 2
            if level + len(unended) > _MOST_DEPTH:
                raise KeyStoreError(f"it is damaged: its elements are more than {_MOST_DEPTH} levels deep")
            if size == _UNTIL_MARK:
                unended.append((tag, []))
                before = None
                continue
            if size > _LONG_LENGTH:
                count = size - _LONG_LENGTH
                size, at = int.from_bytes(part[at : at + count]), at + count
            inner = part[at : at + size]
            at += size
            is_ended = tag == _MARK and not inner and bool(unended)
            if is_ended:
                tag, pieces = unended.pop()
                inner = b"".join(pieces)
            elif tag == _OCTETS | _CONSTRUCTED:
                inner = b"".join(piece for kind, piece, _ in _elements(inner, level + 1) if kind == _OCTETS)
            tag = _OCTETS if tag == _OCTETS | _CONSTRUCTED else tag
            if tag == _OCTETS and unended:
                unended[-1][1].append(inner)
            yield tag, inner, before
            holds_elements = (tag & _CONSTRUCTED and not is_ended) or (tag == _OCTETS and inner[:1] == _DER_SEQUENCE)
            if holds_elements and not depth:
                waiting.append((inner, level + 1))
            before = tag


def _pkcs12_identity(store: PKCS12KeyAndCertificates) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if store.key is None or store.cert is None:
        raise KeyStoreError("it contains no private key with its certificate")
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    last = store.cert.certificate
    chain, others = [last], [cert.certificate for cert in store.additional_certs]
    while issuers := [other for other in others if other.subject == last.issuer and other not in chain]:
        last = issuers[0]
        chain.append(last)
    return key + "".join(map(_pem, chain))


def _pem(certificate: object) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509 import Certificate

    assert isinstance(certificate, Certificate)
    return certificate.public_bytes(Encoding.PEM).decode()
