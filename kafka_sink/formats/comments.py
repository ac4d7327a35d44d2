"""Comments in schemas: ``//…`` and ``/*…*/``, which proto files have, and which Java's parser of Avro accepts."""

from __future__ import annotations

import re
from typing import Final

#: A text with its quotes, or a comment; what does not end goes to the end.
_TEXT_OR_COMMENT: Final = re.compile(
    r""""[^"\\]*(?:\\.[^"\\]*)*(?:"|\Z)|'[^'\\]*(?:\\.[^'\\]*)*(?:'|\Z)|//[^\n]*|/\*.*?(?:\*/|\Z)""", re.DOTALL
)
_VISIBLE: Final = re.compile(r"\S")


def without_comments(text: str) -> str:
    """*text* with blanks instead of its comments; everything else stays where it was."""
    if "//" not in text and "/*" not in text:
        return text
    return _TEXT_OR_COMMENT.sub(lambda found: found[0] if found[0][0] in "\"'" else _VISIBLE.sub(" ", found[0]), text)
