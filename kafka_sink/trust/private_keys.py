"""Private keys that are encrypted as older programs did, which OpenSSL 3 refuses and Java reads. Text only; any thread.

Source: RFC 8018 (PBES1, PBES2), RFC 7292 appendix C, for the object identifiers.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Final

from kafka_sink.trust.jks import KeyStoreError

_ENCRYPTED: Final = re.compile("-----BEGIN ENCRYPTED PRIVATE KEY-----(.*?)-----END ENCRYPTED PRIVATE KEY-----\n?", re.S)
#: Object identifier (DER) → its algorithm, for all that OpenSSL 3 calls legacy.
_LEGACY: Final[Mapping[bytes, str]] = {
    bytes.fromhex(f"06{len(identifier) // 2:02x}{identifier}"): name
    for identifier, name in {
        "2a864886f70d010503": "PBE-MD5-DES",
        "2a864886f70d010506": "PBE-MD5-RC2",
        "2a864886f70d01050a": "PBE-SHA1-DES",
        "2a864886f70d01050b": "PBE-SHA1-RC2",
        "2a864886f70d010c0101": "PBE-SHA1-RC4-128",
        "2a864886f70d010c0102": "PBE-SHA1-RC4-40",
        "2a864886f70d010c0105": "PBE-SHA1-RC2-128",
        "2a864886f70d010c0106": "PBE-SHA1-RC2-40",
        "2a864886f70d0302": "RC2-CBC",
        "2b0e030207": "DES-CBC",
    }.items()
}
#: The algorithm and its parameters, which precede what is encrypted.
_HEAD_BYTES: Final = 128
_AGAIN: Final = "write it again: openssl pkcs8 -topk8 -v2 aes-256-cbc -provider legacy -provider default"


def decrypted(pem: str, password: str) -> str:
    """*pem* with its private key decrypted by the package ``cryptography``, where OpenSSL could not.

    :raises KeyStoreError: if it is not the password, or the algorithm is not supported; the text names the algorithm.
    """
    block = _ENCRYPTED.search(pem)
    algorithm = "" if block is None else _algorithm(block[1])
    if block is None or not algorithm:
        raise KeyStoreError("it is not the password of the private key", is_about_password=True)
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            load_pem_private_key,
        )
    except ImportError:
        raise KeyStoreError(
            f"the private key is encrypted with {algorithm}, which needs the package cryptography: "
            f"pip install 'kafkalite[keystores]', or {_AGAIN}"
        ) from None
    try:
        key = load_pem_private_key(block[0].encode(), password.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        if isinstance(error, UnsupportedAlgorithm) or str(error).startswith("Unknown"):
            raise KeyStoreError(
                f"the private key is encrypted with {algorithm}, which is not supported; {_AGAIN}"
            ) from None
        raise KeyStoreError("it is not the password of the private key", is_about_password=True) from None
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return pem.replace(block[0], plain)


def _algorithm(block: str) -> str:
    """The algorithm that only older programs use; empty if it is another one."""
    try:
        head = base64.b64decode(block)[:_HEAD_BYTES]
    except binascii.Error:
        raise KeyStoreError("its private key is damaged") from None
    return next((name for identifier, name in _LEGACY.items() if identifier in head), "")
