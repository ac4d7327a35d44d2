"""The subject of a certificate as Java writes it, which is the principal of a client of Kafka's that has one.

Bytes only. OpenSSL has read the certificate before, so its structure is right.

Source: RFC 2253, ITU-T X.690; the JDK's ``X500Principal.getName()``, as Kafka's ``DefaultKafkaPrincipalBuilder`` calls
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kafka_sink.common.bounded import Cursor

#: The types that have a name in RFC 2253, by the bytes of their object identifiers.
_KEYWORDS: Final[Mapping[bytes, str]] = {
    b"\x55\x04\x03": "CN",
    b"\x55\x04\x06": "C",
    b"\x55\x04\x07": "L",
    b"\x55\x04\x08": "ST",
    b"\x55\x04\x09": "STREET",
    b"\x55\x04\x0a": "O",
    b"\x55\x04\x0b": "OU",
    b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x19": "DC",
    b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x01": "UID",
}
#: The tags of texts. Java 17 reads all of them as UTF-8, also those of BMPString, which has two bytes a character.
_TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
_VERSION: Final = 0xA0
#: Those of certificates have about ten.
_MOST_IDENTIFIER_BYTES: Final = 200


class _Element(NamedTuple):
    """A value in DER: its tag, its content, and all its bytes."""

    tag: int
    content: bytes
    whole: bytes


def subject_of(certificate: bytes) -> str:
    """The subject of a *certificate* in DER, the most specific part first; empty if it has none.

    :raises ValueError: if it is no certificate.
    """
    (whole, *_) = _elements(certificate)
    (signed, *_) = _elements(whole.content)
    # Serial number, algorithm, issuer and validity come before it.
    _, _, _, _, subject, *_ = [each for each in _elements(signed.content) if each.tag != _VERSION]
    names = ["+".join(map(_shown, _elements(part.content))) for part in _elements(subject.content)]
    return ",".join(reversed(names))


def _elements(data: bytes) -> Iterator[_Element]:
    cursor = Cursor(data, _damaged)
    while cursor.left:
        start = len(data) - cursor.left
        tag, size = cursor.take(2)
        if size & 0x80:
            size = int.from_bytes(cursor.take(size & 0x7F))
        content = cursor.take(size)
        yield _Element(tag, content, data[start : len(data) - cursor.left])


def _damaged(problem: str) -> ValueError:
    return ValueError(f"the certificate is damaged: {problem}")


def _shown(pair: _Element) -> str:
    kind, value = _elements(pair.content)
    keyword = _KEYWORDS.get(kind.content)
    if keyword is None or value.tag not in _TEXTS:
        return f"{keyword or _dotted(kind.content)}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.content.decode(errors='replace'))}"


def _dotted(identifier: bytes) -> str:
    if not 0 < len(identifier) <= _MOST_IDENTIFIER_BYTES:
        raise _damaged(f"it has an object identifier of {len(identifier)} bytes")
    numbers, number = [], 0
    for byte in identifier:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise _damaged("an object identifier does not end")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _escaped(text: str) -> str:
    inside = text.strip(" \r")
    lead = len(text) - len(text.lstrip(" \r")) if inside else len(text)
    trail = len(text) - lead - len(inside)
    escaped = "".join(f"\\{each}" if each in ',=+<>#;"\\' else "\\00" if each == "\0" else each for each in inside)
    edges = ["".join(f"\\{each}" for each in part) for part in (text[:lead], text[len(text) - trail :])]
    return f"{edges[0]}{escaped}{edges[1]}"
