"""Whether a text is JSON. For people who look at records: any thread, one record at a time.

Source: https://datatracker.ietf.org/doc/html/rfc8259.
"""

from __future__ import annotations

import json
from typing import Any

from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.formats.bounds import MOST_DEPTH, is_too_deep


def check_json(text: str) -> None:
    """:raises CorruptRecordError: if *text* is not one value of JSON, or one of more than MOST_DEPTH levels."""
    if is_too_deep(text, MOST_DEPTH):
        raise CorruptRecordError(f"it is nested more than {MOST_DEPTH} levels deep")
    try:
        # Numbers of any length are JSON; the library would refuse to make an integer of more than 4,300 digits.
        json.loads(text, parse_constant=_refuse, parse_int=_nothing, parse_float=_nothing, object_pairs_hook=_nothing)
    except json.JSONDecodeError as error:
        raise CorruptRecordError(str(error)) from None


def _nothing(part: Any) -> None:
    """Instead of a number or an object: what it is, nobody asks."""


def _refuse(constant: str) -> None:
    """NaN, Infinity and -Infinity, which Python's library reads."""
    raise CorruptRecordError(f"{constant} is not a valid value of JSON")
