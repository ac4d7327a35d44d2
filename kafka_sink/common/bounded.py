"""Reads untrusted bytes and numbers within bounds; and keeps a bounded number of values.

All small readers of untrusted data use it: of members' subscriptions and assignments, of the metadata of offsets, of
key stores, of settings of topics, of claims of tokens. Each number has a range, each length is at most the number of
remaining bytes, each collection has at most as many items as these bytes can hold, and each step advances. So the time
of a reader is proportional to the size of its input, whatever the content.

Pure functions and values, called on any thread. They must never read beyond their input, or raise another error than
the one that they were given.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
#: Leading zeros are accepted, because the names of files have them.
_MOST_DIGITS: Final = 40
#: Python's ``int`` also accepts ``1_000``, other digits than ASCII's, and blanks around them.
_WHOLE_NUMBER: Final = re.compile(r"-?[0-9]+")
#: The maximum length of a number of 64 bits.
_MOST_VARINT_BYTES: Final = 10


class Cursor:
    """A position in *data* that only advances.

    :param error: creates the error of the reader that uses it, from a sentence without its final period.
    """

    __slots__ = ("_at", "_data", "_error")

    def __init__(self, data: bytes | bytearray | memoryview, error: Callable[[str], Exception]) -> None:
        self._data = memoryview(data)
        self._error = error
        self._at = 0

    @property
    def left(self) -> int:
        """The number of bytes after the position."""
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        """The next *size* bytes.

        :raises Exception: the reader's own error, if fewer are left, or if *size* is negative.
        """
        if not 0 <= size <= self.left:
            raise self._error(f"{size} bytes are announced where {self.left} are left")
        taken = bytes(self._data[self._at : self._at + size])
        self._at += size
        return taken

    def uint16(self) -> int:
        """The next unsigned number of two bytes."""
        return int.from_bytes(self.take(2))

    def int16(self, low: int = 0, high: int = INT16_MAX) -> int:
        """The next number of two bytes, from *low* to *high*."""
        return self._number(_INT16, low, high)

    def int32(self, low: int = 0, high: int = INT32_MAX) -> int:
        """The next number of four bytes, from *low* to *high*."""
        return self._number(_INT32, low, high)

    def int64(self, low: int = 0, high: int = INT64_MAX) -> int:
        """The next number of eight bytes, from *low* to *high*."""
        return self._number(_INT64, low, high)

    def count(self, smallest_item_bytes: int) -> int:
        """The next number of four bytes, as the count of items that take at least *smallest_item_bytes* each."""
        value = self.int32()
        return self._within(value, 0, self.left // smallest_item_bytes)

    def zigzag(self, low: int = 0, high: int = INT64_MAX) -> int:
        """The next variable-length number with a sign, as in records, from *low* to *high*."""
        value = shift = 0
        for at in range(self._at, min(self._at + _MOST_VARINT_BYTES, len(self._data))):
            byte = self._data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self._at = at + 1
                return self._within((value >> 1) ^ -(value & 1), low, high)
            shift += 7
        raise self._error("a variable-length number does not end")

    def text(self, most_bytes: int = INT16_MAX) -> str:
        """The next string of Kafka's protocol: its length in two bytes, at most *most_bytes*, and UTF-8.

        Source: Kafka's protocol guide, type STRING.
        """
        try:
            return self.take(self.int16(0, most_bytes)).decode()
        except UnicodeDecodeError:
            raise self._error("a string is not UTF-8") from None

    def _number(self, layout: struct.Struct, low: int, high: int) -> int:
        (value,) = layout.unpack(self.take(layout.size))
        return self._within(value, low, high)

    def _within(self, value: int, low: int, high: int) -> int:
        if not low <= value <= high:
            raise self._error(f"the number {value} is not between {low} and {high}")
        return value


def whole_number(text: str, low: int = 0, high: int = INT64_MAX) -> int:
    """The number in *text*, in ASCII digits, with ``-`` before them if it is negative.

    :raises ValueError: if it is no number, or not from *low* to *high*. The message shows at most 40 characters of it.
    """
    if len(text) > _MOST_DIGITS or _WHOLE_NUMBER.fullmatch(text) is None:
        raise ValueError(f"{text!r:.40} is not a whole number between {low} and {high}")
    value = int(text)
    if not low <= value <= high:
        raise ValueError(f"{value} is not between {low} and {high}")
    return value


def known_number(text: str | None, low: int = 0, high: int = INT64_MAX) -> int | None:
    """As :func:`whole_number`, but None if *text* is no such number, or None."""
    try:
        return None if text is None else whole_number(text, low, high)
    except ValueError:
        return None


def parsed_json(text: str | bytes | bytearray) -> Any:
    """The value of the JSON *text*. :raises ValueError: if it is no JSON, or nested too deeply for the parser."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def json_number(value: Any, low: int = -INT64_MAX - 1, high: int = INT64_MAX) -> int:
    """*value* of a JSON text as a whole number. :raises ValueError: if it is no number, or not from *low* to *high*."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{value!r:.40} is not a number between {low} and {high}")
    return int(value)


_K = TypeVar("_K")
_V = TypeVar("_V")


class Latest(Generic[_K, _V]):
    """The values of the *most* keys that were used last; older ones are dropped. Threads may share it."""

    def __init__(self, most: int) -> None:
        self._most = most
        #: The latest last.
        self._values: dict[_K, _V] = {}

    def get(self, key: _K) -> _V | None:
        """The value of *key*, which is now the latest; None if there is none."""
        value = self._values.get(key)
        return None if value is None else self.put(key, value)

    def put(self, key: _K, value: _V) -> _V:
        """Keep *value*, which is not None, and return it."""
        self._values.pop(key, None)
        self._values[key] = value
        for oldest in list(self._values)[: -self._most]:
            self._values.pop(oldest, None)
        return value
