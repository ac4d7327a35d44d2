"""The table of types in docs/formats.md is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import types

from kafka_sink.formats.errors import FormatError
from kafka_sink.spark.driver.column_formats import arrow_type
from scripts.format_table import type_table
from scripts.pages import printed

PAGE = Path(__file__).parents[3] / "docs" / "formats.md"


@pytest.mark.behaviour("Avro", "The documented table of types is what columns are derived to and matched with")
def test_page_shows_the_types_as_they_are() -> None:
    shown = printed(PAGE, "types")
    assert shown.strip() == type_table().strip(), "run: python -m scripts.format_table docs/formats.md"
    assert "| `bigint` | `long` | `float`, `double` | `int64` | " in shown


def test_the_table_has_all_types_that_columns_may_have() -> None:
    shown = re.findall(r"^\| `([\w ]+)", printed(PAGE, "types"), re.MULTILINE)
    for kind in vars(types).values():
        # Others need arguments, or are the base of others.
        if not isinstance(kind, type) or not issubclass(kind, types.AtomicType | types.NullType):
            continue
        try:
            made = kind()
            arrow_type(made, "value")
        except (TypeError, FormatError, NotImplementedError):
            continue
        if kind is not types.AtomicType:
            assert re.match(r"[\w ]+", made.simpleString())[0] in shown  # type: ignore[index]
