"""PEM text in the shapes in which it is pasted, as OpenSSL reads it. Text only; any thread.

A secret that was copied into one line has blanks where its lines ended, one in YAML is indented, and files of other
systems end their lines with CR. Java finds blocks in all of them; OpenSSL wants each line where RFC 7468 has it.

Source: apache/kafka ``DefaultSslEngineFactory.PemParser``; RFC 7468; RFC 1421 for the headers of old encrypted keys.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

_BLOCK: Final = re.compile(r"-+BEGIN (?P<label>[A-Z0-9 ]+?)-+(?P<body>.*?)-+END (?P=label)-{1,5}", re.S)
_BEGIN: Final = re.compile("-BEGIN ")
_HEADER: Final = re.compile(r"\s*(?P<name>[A-Z][A-Za-z-]*):[ \t]*(?P<value>\S+)")
#: What ends a line, or says that the text goes on, where the text was escaped once more than it was read.
_NOTHING: Final = re.compile(r"\s|\\[nr]|\\")
_LINE: Final = re.compile(".{1,64}")


def rebuilt(text: str) -> str:
    """The blocks of *text*, each line where it belongs, without what is between them; empty if there are none.

    A block that is damaged stays as it is, so that OpenSSL says what is wrong with it.

    :raises ValueError: if one does not end as it begins, which OpenSSL would pass over.
    """
    # Comments, as keytool writes them, may have any encoding.
    text = text.encode("ascii", errors="ignore").decode()
    blocks = list(_BLOCK.finditer(text))
    if len(blocks) != len(_BEGIN.findall(text)):
        raise ValueError("a block of its PEM does not end as it begins")
    return "".join(map(_rebuilt_block, blocks))


def _rebuilt_block(block: re.Match[str]) -> str:
    body, headers = block["body"], []
    while header := _HEADER.match(body):
        headers.append(f"{header['name']}: {header['value']}\n")
        body = body[header.end() :]
    data = _NOTHING.sub("", body).rstrip("=")
    try:
        base64.b64decode(data + "=" * (-len(data) % 4), validate=True)
    except binascii.Error:
        return f"{block[0]}\n"
    lines = "\n".join(_LINE.findall(data + "=" * (-len(data) % 4)))
    headed = f"{''.join(headers)}\n" if headers else ""
    return f"-----BEGIN {block['label']}-----\n{headed}{lines}\n-----END {block['label']}-----\n"
