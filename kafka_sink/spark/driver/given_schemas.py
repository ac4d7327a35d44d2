"""Reads the schemas that options give: a schema itself, a file, several files, or a folder.

Called on the driver, before any task, in Spark's planner process or in the user's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from kafka_sink.common.errors import ConfigError
from kafka_sink.formats.column_format import PROTOBUF
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.schema_text import Reference, SchemaText
from kafka_sink.registry.errors import UnusableSchemaError
from kafka_sink.registry.references import places_of
from kafka_sink.spark.options import WantedFormat

#: What a schema in an option begins with, besides comments; anything else but a primitive type's name names files.
_BEGINNINGS: Final = ("{", "[", '"', "//", "/*")


def given_schema(wanted: WantedFormat) -> SchemaText:
    """The schema that the options are, or that the files hold that they name, with what it refers to. What the registry
    has of it is not asked for: its texts are empty.

    :raises ConfigError: if a file cannot be read, or the references are none.
    """
    value, column = wanted.schema or "", wanted.column
    schema = SchemaText(value) if _is_itself(value, wanted.name) else _of_files(value, wanted)
    if wanted.references is None:
        return schema
    option = f"{column}.refs"
    try:
        places = places_of(json.loads(wanted.references), f"option {option}")
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"option {option} is not valid JSON ({error}), expected a list such as "
            '[{"name": "shop.Address", "subject": "address", "version": 1}]'
        ) from None
    except UnusableSchemaError as error:
        raise ConfigError(str(error)) from None
    known = tuple(Reference(name, SchemaText(""), place.subject, place.version) for name, place in places)
    return SchemaText(schema.text, (*schema.references, *known))


def registered_schema(wanted: WantedFormat) -> SchemaText:
    """The schema that the options are, as a registry gets it.

    :raises ConfigError: as :func:`given_schema` does, and if it is none.
    """
    schema = given_schema(wanted)
    if wanted.name != PROTOBUF or schema.references:
        return schema
    from kafka_sink.formats.protobuf.parsing import registered_text

    return registered_text(schema.text, wanted.message)


def _is_itself(value: str, form: str) -> bool:
    """Whether *value* is a schema, and not the name of a file: text of Protobuf has braces, and names have none."""
    from kafka_sink.formats.avro.schema import PRIMITIVES

    return "{" in value if form == PROTOBUF else value.lstrip().startswith(_BEGINNINGS) or value in PRIMITIVES


def _of_files(value: str, wanted: WantedFormat) -> SchemaText:
    # Only writes by files load what reads them.
    from kafka_sink.formats.files import read_schema

    whole = Path(value.removeprefix("file:"))
    names = [value] if whole.exists() else [each.strip() for each in value.split(",") if each.strip()]
    try:
        return read_schema(wanted.name, [Path(each.removeprefix("file:")) for each in names], wanted.message)
    except FormatError as error:
        raise FormatError(f"option {wanted.column}.schema: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        name = value if not isinstance(error, OSError) or error.filename is None else error.filename
        itself = "the schema itself" if wanted.name == PROTOBUF else "the schema itself as JSON"
        raise ConfigError(
            f"option {wanted.column}.schema: the file {name} cannot be read on the driver ({reason}); name the file "
            f"of a schema, a folder, or several files with commas between, or give {itself}"
        ) from None
