"""How a column becomes payloads: decided on the driver, and pickled to the tasks. It holds plain values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

AVRO: Final = "avro"

#: The names of all formats, as the options ``key.format`` and ``value.format`` have them.
FORMATS: Final = (AVRO,)


@dataclass(frozen=True, slots=True)
class ColumnFormat:
    """The rows of *column* as Avro of *schema* (JSON), each payload after *prefix*."""

    column: str
    schema: str
    prefix: bytes = b""
