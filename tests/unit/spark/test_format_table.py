"""The table of types in docs/formats.md matches the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import types

from kafka_sink.spark.driver.column_formats import arrow_type
from scripts.format_table import type_table
from scripts.pages import printed

PAGE = Path(__file__).parents[3] / "docs" / "formats.md"


@pytest.mark.behaviour("Avro", "The documented table of types is what columns are derived to and matched with")
def test_page_shows_the_types_as_they_are() -> None:
    shown = printed(PAGE, "types")
    assert shown.strip() == type_table().strip(), "run: python -m scripts.format_table docs/formats.md"
    assert "| `bigint` | `long` | `float`, `double` | `int64` | " in shown


def test_the_table_has_all_types_of_spark() -> None:
    shown = re.findall(r"^\| `([\w ]+)", printed(PAGE, "types"), re.MULTILINE)
    needed = {"ArrayType": "array", "MapType": "map", "StructType": "struct", "GeographyType": "geography"}
    names = [
        name for name in types.__all__ if name.endswith("Type") and name not in ("DataType", "CharType", "VarcharType")
    ]
    for name in names:
        made = needed.get(name) or ("geometry" if name == "GeometryType" else vars(types)[name]().simpleString())
        assert re.match(r"[\w ]+", made)[0] in shown, name  # type: ignore[index]
    assert len(names) > 20


class Point(types.UserDefinedType):
    @classmethod
    def sqlType(cls) -> types.DataType:
        return types.ArrayType(types.DoubleType())


def test_user_defined_types_are_those_that_they_are_stored_as() -> None:
    """As Spark passes them to Python, and as ``to_json`` writes them."""
    assert arrow_type(types.StructType().add("at", Point()), "value") == arrow_type(
        types.StructType().add("at", Point.sqlType()), "value"
    )
