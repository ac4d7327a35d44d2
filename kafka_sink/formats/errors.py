"""The error of columns that a format cannot write. Raised on the driver, before any row is read."""

from __future__ import annotations

from kafka_sink.common.errors import ConfigError


class FormatError(ConfigError):
    """A schema is invalid, or a column has no counterpart in it; the text names the column by its path."""
