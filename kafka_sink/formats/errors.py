"""The error of columns that a format cannot write, and the texts of their fields and types in it. Raised on the driver,
before any row is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kafka_sink.common.config import nearest
from kafka_sink.common.errors import ConfigError, KafkaError

if TYPE_CHECKING:
    import pyarrow as pa

#: The maximum length of a library's message in an error.
_SHOWN: Final = 200


class FormatError(ConfigError):
    """A schema is invalid, or a column has no counterpart in it; the text names the column by its path."""

    remedy = "the text names the column, both types and what to change"


@contextmanager
def schema_boundary(what: str) -> Iterator[None]:
    """Convert every error of the libraries that read *what*, an untrusted schema, to a FormatError; except MemoryError
    and interrupts, which concern the process.

    :raises FormatError: instead of an error of a library.
    """
    try:
        yield
    except (KafkaError, MemoryError):
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise FormatError(f"the {what} cannot be used ({reason[:_SHOWN]}); correct it") from error


def shown(value: object) -> str:
    """*value* as an error shows it, in at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def shown_type(kind: pa.DataType) -> str:
    """The type as an error names it: a decimal as Spark's, without the number of bits that Arrow stores it in."""
    return str(kind).replace("decimal128(", "decimal(")


def mismatch(described: object, kind: pa.DataType, path: str, remedy: str) -> FormatError:
    """The error of column *path*, whose rows have the type *kind*, for the type *described* of the schema."""
    return FormatError(
        f"column '{path}' is {shown_type(kind)}, which cannot be written as the schema's {described}; {remedy}"
    )


def check_unique(names: Sequence[str], path: str) -> None:
    """:raises FormatError: if two of the columns *names* of the struct *path* have the same name."""
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise FormatError(f"column '{path}' has two fields named '{twice}'; rename one of them")


def check_names(names: Sequence[str], fields: Sequence[str], described: object, path: str) -> None:
    """Check that each of the columns *names* of the struct *path* has a field: *fields* are those of the schema's type
    *described*.

    :raises FormatError: if two columns have the same name, or a column has no field.
    """
    check_unique(names, path)
    for name in names:
        if name not in fields:
            meant = next((f" (did you mean {field}?)" for field in fields if field.lower() == name.lower()), None)
            raise FormatError(
                f"column '{path}.{name}' has no field in the schema's {described}{meant or nearest(name, fields)}; "
                "rename or drop it, or add it to the schema"
            )
