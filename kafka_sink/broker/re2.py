"""Regular expressions that clients send: RE2's syntax, as in Kafka, whose RE2/J is a translation of RE2.

RE2 itself matches them (inside Arrow), because some patterns take exponential time in Python's ``re``, which also
accepts what RE2 refuses (look-around, references back) and refuses what RE2 accepts (``\\z``, ``\\pL``,
``[[:alpha:]]``).
"""

from __future__ import annotations

from collections.abc import Iterable


def check_pattern(pattern: str) -> None:
    """:raises ValueError: if *pattern* is not valid."""
    # Imported here, because nothing else in the broker needs Arrow and its import would delay the start.
    import pyarrow as pa
    import pyarrow.compute as pc

    pc.match_substring_regex(pa.array([""]), pattern=pattern)


def full_matches(pattern: str, texts: Iterable[str]) -> list[str]:
    """Those of *texts* that *pattern* matches from their beginning to their end.

    :raises ValueError: if the pattern is not valid.
    """
    # Validated without the added brackets, with which an invalid pattern such as "a)|(b" would be valid.
    check_pattern(pattern)
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = list(texts)
    matches = pc.match_substring_regex(pa.array(texts, pa.string()), pattern=rf"\A(?:{pattern})\z").to_pylist()
    return [text for text, is_match in zip(texts, matches, strict=True) if is_match]
