"""The conversion of a column to payloads: chosen on the driver, and pickled to the tasks as plain values; and the
formats by their names.

Each format is one object, ``FORMAT`` in the module ``column`` of its package. The driver checks a column by creating
its encoder, and so do the tasks. Only formats in use are loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol

from kafka_sink.formats.schema_text import SchemaText

if TYPE_CHECKING:
    import pyarrow as pa

AVRO: Final = "avro"
JSON: Final = "json"
PROTOBUF: Final = "protobuf"

#: The names of all formats, the values of the options ``key.format`` and ``value.format``.
FORMATS: Final = (AVRO, JSON, PROTOBUF)

#: The name of the outermost record, object or message, by which a registry may name its subject.
TOP_LEVEL: Final = "topLevelRecord"


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """The settings of Spark's session that change the output of ``to_json`` and ``to_avro``, with Spark 4's defaults.

    *ignores_null_fields* is ``spark.sql.jsonGenerator.ignoreNullFields``, *keeps_null_of_defaults*
    ``spark.sql.jsonGenerator.writeNullIfWithDefaultValue``, *time_parser* ``spark.sql.legacy.timeParserPolicy``, and
    *rebase* ``spark.sql.avro.datetimeRebaseModeInWrite``.
    """

    ignores_null_fields: bool = True
    keeps_null_of_defaults: bool = True
    time_parser: str = "CORRECTED"
    rebase: str = "CORRECTED"


#: The settings of a session that sets none of them.
DEFAULT_SETTINGS: Final = SessionSettings()


@dataclass(frozen=True, slots=True)
class ColumnFormat:
    """The rows of *column* in the format *name* by *schema*, each payload after *prefix*.

    The schema of JSON is empty if neither a registry nor a reader gets one. *messages* are the messages of a Protobuf
    schema (:class:`~kafka_sink.formats.protobuf.schema.ProtobufSchema`). *source* is the schema with references from
    which *schema* was linked, if it has any; tasks do not need it. *defaulted* are the paths of fields that are columns
    of a table with a default. *settings* are those of the task's session.
    """

    column: str
    name: str
    schema: str
    prefix: bytes = b""
    messages: object = None
    source: SchemaText | None = field(default=None, compare=False)
    defaulted: frozenset[str] = frozenset()
    settings: SessionSettings = DEFAULT_SETTINGS


class ColumnEncoder(Protocol):
    """Encodes the rows of one column to payloads, in a task."""

    def encode(self, rows: pa.Array, prefix: bytes = b"") -> pa.LargeBinaryArray:
        """The payloads of *rows*, each after *prefix*; a null row has a null payload.

        :raises RowSerializationError: if values do not fit the schema. It is about all rows that have the first problem
            that was found (``rows``), and names the path of the column (``column``) and the value of each row. A caller
            that continues without these rows encodes the others again, so there are as many calls as problems.
        """


class Format(Protocol):
    """A format of columns. A new one needs a package with such an object, and its name in
    :data:`~kafka_sink.formats.column_format.FORMATS`."""

    def encoder(self, form: ColumnFormat, kind: pa.DataType) -> ColumnEncoder:
        """The encoder of rows of the type *kind*.

        :raises FormatError: if the schema is invalid, or the column does not fit it; the text names the column.
        """

    def derived(self, kind: pa.DataType, column: str) -> ColumnFormat:
        """The format of *column* by the schema for rows of the type *kind*.

        :raises FormatError: if a type has no counterpart; the text names the column.
        """

    def registrable(self, kind: pa.DataType, column: str) -> Sequence[ColumnFormat]:
        """The format of *column* by the schema that is registered for rows of the type *kind*, and by the schemas that
        earlier versions of this package registered, by which topics may be written.

        :raises FormatError: if a type has no counterpart; the text names the column.
        """
        return (self.derived(kind, column),)

    def given(self, schema: SchemaText, kind: pa.DataType, column: str, message: str | None = None) -> ColumnFormat:
        """The format of *column* by *schema*, which was not derived from its type *kind*; in Protobuf, as *message*.

        :raises FormatError: if *schema* is invalid, or lacks the message. The type of the rows is checked here only for
            JSON, and by the encoder for all formats.
        """

    def linked(self, schema: SchemaText) -> str:
        """One text of *schema* and all schemas that it refers to, as this package reads it.

        :raises FormatError: if one of the texts is invalid.
        """

    def record_name(self, form: ColumnFormat) -> str | None:
        """The full name of the record that the schema describes; None if it describes none."""

    def registered_schema(self, form: ColumnFormat) -> SchemaText:
        """The schema as it is registered, with the schemas that it refers to."""
        return form.source or SchemaText(form.schema)


def format_of(name: str) -> Format:
    """The format *name*, one of :data:`~kafka_sink.formats.column_format.FORMATS`."""
    form: Format = import_module(f"kafka_sink.formats.{name}.column").FORMAT
    return form
