"""Whether a text is JSON, in memory that does not depend on the text.

For people who look at records: any thread, one record at a time. The library would build millions of objects of a
record of one megabyte, only to throw them away.

Source: https://datatracker.ietf.org/doc/html/rfc8259.
"""

from __future__ import annotations

import re
from typing import Final

from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.formats.bounds import MOST_DEPTH

# All quantifiers are possessive: a text is read once, and nothing is kept to go back to.
_SPACE: Final = r"[ \t\n\r]*+"
_STRING: Final = r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"'
_NUMBER: Final = r"-?+(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+"
_ATOM: Final = f"(?>{_STRING}|{_NUMBER}|true|false|null)"
_NAME: Final = f"{_STRING}{_SPACE}:{_SPACE}"

_BLANK: Final = re.compile(_SPACE)
_VALUE: Final = re.compile(_ATOM)
_FIELD: Final = re.compile(_NAME)
#: What has no parts is read in one step, all that follow one another.
_ITEMS: Final = re.compile(f"(?:{_ATOM}{_SPACE},{_SPACE})*+")
_FIELDS: Final = re.compile(f"(?:{_NAME}{_ATOM}{_SPACE},{_SPACE})*+")
_CLOSES: Final = {"[": "]", "{": "}"}


def check_json(text: str) -> None:
    """:raises CorruptRecordError: if *text* is not one value of JSON, or one that is nested too deeply."""
    at, is_open, waiting = _skip(text, 0), True, ""
    while is_open or waiting:
        if is_open:
            at, is_open, waiting = _value(text, at, waiting)
        elif text.startswith(_CLOSES[waiting[-1]], at):
            at, waiting = _skip(text, at + 1), waiting[:-1]
        elif text.startswith(",", at):
            at, is_open = _begun(text, _skip(text, at + 1), waiting[-1]), True
        else:
            raise _problem(text, at)
    if at < len(text):
        raise _problem(text, at)


def _value(text: str, at: int, waiting: str) -> tuple[int, bool, str]:
    """Read a value at *at* within the brackets *waiting*; where it ends, whether another one has to follow, and the
    brackets that are open then."""
    bracket = text[at : at + 1]
    if bracket not in ("[", "{"):
        found = _VALUE.match(text, at)
        if found is None:
            raise _problem(text, at)
        return _skip(text, found.end()), False, waiting
    if len(waiting) == MOST_DEPTH:
        raise CorruptRecordError(f"it is nested more than {MOST_DEPTH} levels deep")
    at = _skip(text, at + 1)
    if text.startswith(_CLOSES[bracket], at):
        return _skip(text, at + 1), False, waiting
    return _begun(text, at, bracket), True, waiting + bracket


def _begun(text: str, at: int, bracket: str) -> int:
    """The place of the next value within *bracket* that has parts, or is the last one."""
    if bracket == "[":
        found = _ITEMS.match(text, at)
        return at if found is None else found.end()
    fields = _FIELDS.match(text, at)
    name = _FIELD.match(text, at if fields is None else fields.end())
    if name is None:
        raise _problem(text, at if fields is None else fields.end())
    return name.end()


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return at if found is None else found.end()


def _problem(text: str, at: int) -> CorruptRecordError:
    what = "it ends too early" if at >= len(text) else f"unexpected {text[at : at + 1]!r} at character {at}"
    return CorruptRecordError(what)
