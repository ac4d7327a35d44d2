"""Converts PEM text from the forms in which users paste it to the form that OpenSSL reads. Text only; any thread.

A secret that was copied into one line has blanks instead of line ends, one in YAML is indented, and files of other
systems end their lines with CR. Java finds blocks in all of them; OpenSSL requires the lines of RFC 7468. Java also
reads private keys that older programs have encrypted, with algorithms that OpenSSL 3 refuses.

Source: apache/kafka ``DefaultSslEngineFactory.PemParser``; RFC 7468; RFC 1421 for the headers of old encrypted keys;
RFC 8018 (PBES1, PBES2), RFC 7292 appendix C, for the object identifiers.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kafka_sink.trust.key_stores import KeyStoreError

_ENCRYPTED: Final = "-----BEGIN ENCRYPTED PRIVATE KEY-----"
_END_OF_ENCRYPTED: Final = "-----END ENCRYPTED PRIVATE KEY-----"
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
#: The algorithm and its parameters, which precede the encrypted content.
_HEAD_BYTES: Final = 128
_AGAIN: Final = "write it again: openssl pkcs8 -topk8 -v2 aes-256-cbc -provider legacy -provider default"
#: The boundaries of blocks. A pattern of whole blocks would search for an end after each beginning: quadratic time.
_BOUNDARY: Final = re.compile(r"-(?P<word>BEGIN|END) (?P<label>[A-Z0-9 ]+?)(?=-)")
_BEGIN: Final = "-BEGIN "
_LAST_DASHES: Final = re.compile("-{1,5}")
_HEADER: Final = re.compile(r"\s*(?P<name>[A-Z][A-Za-z-]*):[ \t]*(?P<value>\S+)")
#: Line ends, and their escapes and continuations in a text that was escaped more often than it was unescaped.
_NOTHING: Final = re.compile(r"\s|\\[nr]|\\")
_LINE: Final = re.compile(".{1,64}")


def decrypted(pem: str, password: str) -> str:
    """*pem* with its private key decrypted by the package ``cryptography``, where OpenSSL could not.

    :raises KeyStoreError: if the password is wrong, or the algorithm is not supported; the text names the algorithm.
    """
    begins = pem.find(_ENCRYPTED)
    ends = -1 if begins < 0 else pem.find(_END_OF_ENCRYPTED, begins)
    algorithm = "" if ends < 0 else _algorithm(pem[begins + len(_ENCRYPTED) : ends])
    if not algorithm:
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
    block = pem[begins : ends + len(_END_OF_ENCRYPTED)]
    try:
        key = load_pem_private_key(block.encode(), password.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        if isinstance(error, UnsupportedAlgorithm) or str(error).startswith("Unknown"):
            raise KeyStoreError(
                f"the private key is encrypted with {algorithm}, which is not supported; {_AGAIN}"
            ) from None
        raise KeyStoreError("it is not the password of the private key", is_about_password=True) from None
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return pem.replace(block, plain.rstrip("\n"))


def _algorithm(block: str) -> str:
    """The legacy algorithm with which *block* is encrypted; empty if it is another one."""
    try:
        head = base64.b64decode(block)[:_HEAD_BYTES]
    except binascii.Error:
        raise KeyStoreError("its private key is damaged") from None
    return next((name for identifier, name in _LEGACY.items() if identifier in head), "")


def rebuilt(text: str) -> str:
    """The blocks of *text*, with the lines of RFC 7468 and without text between them; empty if there are none.

    A damaged block is left unchanged, so that OpenSSL reports its error.

    :raises ValueError: if the end of a block does not match its beginning; OpenSSL would ignore such a block.
    """
    # Comments, as keytool writes them, may have any encoding.
    text = text.encode("ascii", errors="ignore").decode()
    blocks = list(_blocks(text))
    if len(blocks) != text.count(_BEGIN):
        raise ValueError("a block of its PEM does not end as it begins")
    return "".join(map(_rebuilt_block, blocks))


class _Block(NamedTuple):
    text: str
    label: str
    body: str


def _blocks(text: str) -> Iterator[_Block]:
    """The blocks of *text* that end as they begin, none within another."""
    begin: re.Match[str] | None = None
    for boundary in _BOUNDARY.finditer(text):
        if boundary["word"] == "BEGIN":
            begin = boundary
        elif begin is not None and boundary["label"] == begin["label"] and begin.end() < boundary.start():
            dashes = _LAST_DASHES.match(text, boundary.end())
            assert dashes is not None, "a boundary is followed by one"
            body = text[begin.end() : boundary.start()].strip("-")
            yield _Block(f"----{text[begin.start() : dashes.end()]}", begin["label"], body)
            begin = None


def _rebuilt_block(block: _Block) -> str:
    headers, position = [], 0
    while header := _HEADER.match(block.body, position):
        headers.append(f"{header['name']}: {header['value']}\n")
        position = header.end()
    data = _NOTHING.sub("", block.body[position:]).rstrip("=")
    try:
        base64.b64decode(data + "=" * (-len(data) % 4), validate=True)
    except binascii.Error:
        return f"{block.text}\n"
    lines = "\n".join(_LINE.findall(data + "=" * (-len(data) % 4)))
    headed = f"{''.join(headers)}\n" if headers else ""
    return f"-----BEGIN {block.label}-----\n{headed}{lines}\n-----END {block.label}-----\n"
