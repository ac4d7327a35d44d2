"""Whether a text is JSON. For people who look at records: any thread, one record at a time.

Source: https://datatracker.ietf.org/doc/html/rfc8259.
"""

from __future__ import annotations

import json
from typing import Any

from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.formats.bounds import MOST_DEPTH


def check_json(text: str) -> None:
    """:raises CorruptRecordError: if *text* is not one value of JSON, or one of more than MOST_DEPTH levels."""
    try:
        # Numbers of any length are JSON; the library would refuse to make an integer of more than 4,300 digits.
        value = json.loads(
            text, parse_constant=_refuse, parse_int=_number, parse_float=_number, object_pairs_hook=_values
        )
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        raise CorruptRecordError(str(error)) from None
    level = [[value]]
    for _ in range(MOST_DEPTH + 1):
        level = [part for each in level for part in each if isinstance(part, list)]
    if level:
        raise _too_deep()


def _values(pairs: list[tuple[str, Any]]) -> list[Any]:
    """Of an object, also those whose names come again later in it."""
    return [value for _, value in pairs]


def _number(digits: str) -> None:
    """Nothing: what a number is, nobody asks."""


def _refuse(constant: str) -> None:
    """NaN, Infinity and -Infinity, which Python's library reads."""
    raise CorruptRecordError(f"{constant} is no value of JSON")


def _too_deep() -> CorruptRecordError:
    return CorruptRecordError(f"it is nested more than {MOST_DEPTH} levels deep")
