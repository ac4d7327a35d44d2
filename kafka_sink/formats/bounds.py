"""How much of a schema or of a record is read, whatever it asks for.

Schemas and records come from others: a registry, a file, whoever may write to a topic. Everything here is far beyond
what people write.
"""

from __future__ import annotations

from typing import Final

from kafka_sink.formats.errors import FormatError

#: As registries have it (Confluent Cloud: 1 MB).
MOST_SCHEMA_CHARACTERS: Final = 1 << 20
#: Of types within one another in a schema, and of values in a record. Protobuf's libraries have it too.
MOST_DEPTH: Final = 100


def check_size(text: str, what: str) -> None:
    """:raises FormatError: if the schema *text*, called *what*, is larger than any, or no text in UTF-8."""
    if len(text) > MOST_SCHEMA_CHARACTERS:
        raise FormatError(
            f"the {what} has {len(text)} characters, more than {MOST_SCHEMA_CHARACTERS}; divide it, or correct it"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise FormatError(f"the {what} is no text in UTF-8: {error.reason} at character {error.start}") from None
