"""The error of columns that a format cannot write, and how it names their types. Raised on the driver, before any row
is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_sink.common.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa


class FormatError(ConfigError):
    """A schema is invalid, or a column has no counterpart in it; the text names the column by its path."""


def shown_type(kind: pa.DataType) -> str:
    """The type as an error names it: a decimal as Spark's, without the number of bits that Arrow stores it in."""
    return str(kind).replace("decimal128(", "decimal(")
