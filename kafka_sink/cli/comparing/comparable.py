"""Keys and values as bytes that are the same if they mean the same, whatever wrote them.

Without a format the bytes themselves; with a format their JSON, so that the ids of schemas, the order of fields, and
payloads and columns of files make no difference. Runs on the main thread.
"""

from __future__ import annotations

import base64
import json
import math
import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final

from kafka_sink.cli.values.json_records import bytes_from_json
from kafka_sink.cli.values.typed_values import shown
from kafka_sink.common.errors import SerializationError
from kafka_sink.formats.column_format import JSON
from kafka_sink.registry.client import RegistryClient

_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)?")
#: Every whole number up to this one is a double.
_EXACT: Final = 1 << 53


class Comparable:
    """The keys or values, called *column*, of a topic and of files, in the format *form*; None: bytes as they are.

    :raises ConfigError: if the format needs a registry and there is none, or if its package is not installed.
    """

    def __init__(self, form: str | None, column: str, registry: RegistryClient | None) -> None:
        self.form = form
        self._column = column
        self._shown = shown(form, column, registry)

    def of_payload(self, payload: bytes | None) -> bytes | None:
        """*payload* of a record.

        :raises SerializationError: if it is not in the format, or has a whole number of more than 4,300 digits.
        """
        if payload is None or self.form is None:
            return payload
        text = self._shown(payload)
        try:
            value = json.loads(text)
        except ValueError as error:
            raise SerializationError(f"the {self._column} cannot be compared: {error}") from None
        return canonical(value)

    def of_cell(self, cell: Any) -> bytes | None:
        """*cell* of a file: a payload as bytes (JSON also as text), or the value itself.

        :raises SerializationError: if a payload is not in the format, or, without a format, if the cell is not text, a
            whole number or bytes (base64 in JSON).
        """
        if cell is None:
            return None
        if isinstance(cell, bytes):
            return self.of_payload(cell)
        if self.form is None:
            is_number = isinstance(cell, int) and not isinstance(cell, bool)
            return bytes_from_json(str(cell) if is_number else cell, self._column)
        if self.form == JSON and isinstance(cell, str):
            return self.of_payload(cell.encode("utf-8"))
        return canonical(_to_json(cell))


def _to_json(value: Any) -> Any:
    """*value*, as Python's libraries read it, as JSON's types."""
    if isinstance(value, dict):
        return {name: _to_json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_to_json(each) for each in value]
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value if isinstance(value, str | int | float | None) else str(value)


def canonical(value: Any) -> bytes:
    """The JSON *value* as text that is the same for equal values: fields are sorted, and without those that are null;
    whole numbers have no fraction; times are those of UTC, without zeros at their end.

    :raises SerializationError: if it is nested too deeply.
    """
    try:
        return json.dumps(_plain(value), sort_keys=True, separators=(",", ":")).encode("ascii")
    except RecursionError:
        raise SerializationError("the value is nested too deeply to be compared") from None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    if isinstance(value, str) and (moment := _TIME.fullmatch(value)):
        try:
            return _in_utc(*moment.groups())
        except (ValueError, OverflowError):
            # There is no such day or hour: it is a text.
            return value
    return value


def _in_utc(seconds: str, fraction: str | None, offset: str | None) -> str:
    if offset not in (None, "Z"):
        seconds = datetime.fromisoformat(f"{seconds}{offset}").astimezone(UTC).replace(tzinfo=None).isoformat()
    return f"{seconds}{(fraction or '').rstrip('0').rstrip('.')}"
