"""How a column becomes payloads: decided on the driver, and pickled to the tasks. It holds plain values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from kafka_sink.formats.schema_text import SchemaText

if TYPE_CHECKING:
    import pyarrow as pa

AVRO: Final = "avro"
JSON: Final = "json"
PROTOBUF: Final = "protobuf"

#: The names of all formats, as the options ``key.format`` and ``value.format`` have them.
FORMATS: Final = (AVRO, JSON, PROTOBUF)


@dataclass(frozen=True, slots=True)
class ColumnFormat:
    """The rows of *column* in the format *name* by *schema*, each payload after *prefix*.

    The schema of JSON is empty if neither a registry nor a reader gets one. *messages* are those that the schema of
    Protobuf declares (:class:`~kafka_sink.formats.protobuf.schema.Schema`). *source* is what *schema* was linked from,
    if it refers to others; tasks do not need it.
    """

    column: str
    name: str
    schema: str
    prefix: bytes = b""
    messages: object = None
    source: SchemaText | None = field(default=None, compare=False)


class ColumnEncoder(Protocol):
    """Encodes the rows of one column to payloads, in a task."""

    def encode(self, rows: pa.Array, prefix: bytes = b"") -> pa.LargeBinaryArray:
        """The payloads of *rows*, each after *prefix*; a null row has a null payload.

        :raises RowSerializationError: if values do not fit the schema. It is about all rows that have the first problem
            that was found (``rows``), and names the path of the column (``column``) and the value of each row. A caller
            that goes on without these rows encodes the others again, so there are as many calls as problems.
        """
