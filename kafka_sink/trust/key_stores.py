"""Java's key stores as PEM text: JKS, and PKCS12 with the package ``cryptography``. Bytes only; any thread.

As in Java, a store is recognised by its content, so both types read both formats.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafka_sink.trust.jks import MAGIC, KeyStoreError, read_jks, unprotect

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

#: The first byte of a DER sequence, as PKCS12 files begin.
_DER_SEQUENCE: Final = b"\x30"
_INTEGER: Final = 0x02
_OCTETS: Final = 0x04
_IDENTIFIER: Final = 0x06
#: keyBag and pkcs8ShroudedKeyBag, 1.2.840.113549.1.12.10.1.1 and .2 (RFC 7292).
_KEY_BAGS: Final = (bytes.fromhex("2a864886f70d010c0a0101"), bytes.fromhex("2a864886f70d010c0a0102"))
_CONSTRUCTED: Final = 0x20
#: From here on, the length is that of the length.
_LONG_LENGTH: Final = 0x80
_UNTIL_MARK: Final = 0x80
_MARK: Final = 0x00
#: openssl and keytool take some thousand, careful people a million.
_MOST_ITERATIONS: Final = 10_000_000
#: Elements within one another; stores have about ten.
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
        pem = [_pem(each.certificate) for each in [*store.additional_certs, *own]]
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
        _check_single(_private_keys(data))
        return _pkcs12_identity(store)
    if not password:
        raise KeyStoreError("the password of the store is required", is_about_password=True)
    keys, _ = read_jks(data, password)
    _check_single(len(keys))
    key = unprotect(keys[0].protected, key_password or password)
    return _pem_of_key(key) + "".join(ssl.DER_cert_to_PEM_cert(each) for each in keys[0].chain)


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
    if _most_iterations(data) > _MOST_ITERATIONS:
        raise KeyStoreError(
            f"its password is hashed more than {_MOST_ITERATIONS} times, which takes minutes; write it again"
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
    """The largest number that stands behind a salt in DER: an INTEGER after an OCTET STRING.

    Source: RFC 7292 (MacData), RFC 8018 (PBKDF2-params, PBEParameter).
    """
    return max(
        (int.from_bytes(inner) for tag, inner, before in _elements(data) if tag == _INTEGER and before == _OCTETS),
        default=0,
    )


def _private_keys(data: bytes) -> int:
    """The number of private keys in a store, each of which is encrypted by itself, unlike certificates."""
    return sum(tag == _IDENTIFIER and inner in _KEY_BAGS for tag, inner, _ in _elements(data))


def _elements(data: bytes, depth: int = 0) -> Iterator[tuple[int, bytes, int | None]]:
    """(tag, content, tag of the one before) of each element of DER or BER; what an OCTET STRING holds is seen, too, but
    for the pieces of a string, which stand at a *depth* above 0.

    BER, which some programs write, divides a string into pieces and ends an element by a mark instead of a length. A
    string has one tag here, and what stands behind a marked element stands behind its tag.

    Source: X.690, 8.1.3 and 8.7.

    :raises KeyStoreError: if elements are nested more deeply than any store has them.
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


def _pem_of_key(pkcs8: bytes) -> str:
    return ssl.DER_cert_to_PEM_cert(pkcs8).replace(" CERTIFICATE", " PRIVATE KEY")
