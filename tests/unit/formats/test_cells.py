"""Cells in every supported pyarrow: ``to_pylist`` before version 20 has no argument, and returns maps as pairs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kafka_sink.common.errors import SerializationError
from kafka_sink.formats.fields import cell_of

_MAP = pa.map_(pa.string(), pa.int64())


def test_maps_are_objects_without_help_of_pyarrow() -> None:
    kind = pa.struct([("of", pa.list_(_MAP)), ("name", pa.string())])
    rows: list[Any] = [{"of": [[("b", 2), ("a", None)], [], None], "name": "x"}, None]
    cells = [cell_of(cell, kind) for cell in pa.array(rows, kind).to_pylist()]
    assert cells == [{"of": [{"b": 2, "a": None}, {}, None], "name": "x"}, None]


def test_a_key_twice_is_an_error() -> None:
    (cell,) = pa.array([[("a", 1), ("a", 2)]], _MAP).to_pylist()
    with pytest.raises(SerializationError, match="key twice"):
        cell_of(cell, _MAP)


def test_cells_of_other_types_stay_as_they_are() -> None:
    column = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])
    assert [cell_of(cell, column.type) for cell in column.to_pylist()] == [1, "b"]
