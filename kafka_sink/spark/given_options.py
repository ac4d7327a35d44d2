"""The options that users pass as a mapping, as Spark's own writer would pass them on.

Called by every function that takes options, on the driver. Spark does the same for ``df.write.options(…)``.

Source: apache/spark ``python/pyspark/sql/utils.py`` (``to_str``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from numbers import Number
from typing import Any, TypeAlias

from kafka_sink.common.config import without_none
from kafka_sink.common.errors import ConfigError

#: What an option may be; None is an option that is not set.
OptionValue: TypeAlias = str | bool | int | float | os.PathLike[str] | None


def as_texts(options: Mapping[str, OptionValue]) -> dict[str, str]:
    """*options* as texts: ``5`` as ``"5"``, ``True`` as ``"true"``, a path as its name. None is left out.

    :raises ConfigError: if *options* is not a mapping of names, or a value is of another type; the text names option
        and type, and does not show the value.
    """
    return {name: _text(name, value) for name, value in without_none(options).items()}


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Number):
        return str(value)
    path = os.fspath(value) if isinstance(value, os.PathLike) else None
    if isinstance(path, str):
        return path
    remedy = "join its parts with commas" if isinstance(value, list | tuple | set) else "convert it to text"
    raise ConfigError(
        f"option {name}: a value of the type {type(value).__name__} is not taken, expected text, a number, True or "
        f"False; {remedy}"
    )
