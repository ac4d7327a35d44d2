"""The columnar JSON encoder: the text of each type, and refused values."""

from __future__ import annotations

import datetime as dt
import json
import math
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kafka_sink.common.errors import RowSerializationError
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.json.column import JsonEncoder
from tests.support.cases import with_each

ZONE = "America/New_York"
NOON = dt.datetime(2026, 7, 1, 12, tzinfo=dt.UTC)


def encoded(kind: pa.DataType, *rows: Any, prefix: bytes = b"") -> list[str | None]:
    found = JsonEncoder(kind, "value").encode(pa.array(rows, kind), prefix)
    found.validate(full=True)
    return [None if each is None else each.decode() for each in found.to_pylist()]


@with_each(
    ("kind", "value", "text"),
    [
        (pa.bool_(), True, "true"),
        (pa.bool_(), False, "false"),
        (pa.int64(), -(2**63), "-9223372036854775808"),
        (pa.float64(), 100.0, "100.0"),
        (pa.float64(), -0.0, "-0.0"),
        (pa.float64(), 1e7, "1.0E7"),
        (pa.float64(), 9999999.5, "9999999.5"),
        (pa.float64(), 123456789.125, "1.23456789125E8"),
        (pa.float64(), 0.001, "0.001"),
        (pa.float64(), 0.00012, "1.2E-4"),
        (pa.float64(), 1e300, "1.0E300"),
        (pa.float64(), 5e-324, "4.9E-324"),
        (pa.float32(), 0.1, "0.1"),
        (pa.float32(), struct.unpack("<f", b"\1\0\0\0")[0], "1.4E-45"),
        (pa.float64(), math.nan, '"NaN"'),
        (pa.float64(), -math.inf, '"-Infinity"'),
        (pa.decimal128(10, 2), Decimal("-1.50"), "-1.50"),
        (pa.decimal128(10, 8), Decimal("1E-8"), "1E-8"),
        (pa.string(), 'a"b\\c/\n\x01\x7fü☃', '"a\\"b\\\\c/\\n\\u0001\x7fü☃"'),
        (pa.large_string(), "x" * 20, '"' + "x" * 20 + '"'),
        (pa.binary(), b"", '""'),
        (pa.binary(), b"\xff\xfe\xfd\x01", '"//79AQ=="'),
        (pa.date32(), dt.date(1969, 12, 31), '"1969-12-31"'),
        (pa.date32(), -1_000_000, '"-0768-02-04"'),
        (pa.date32(), 3_000_000, '"+10183-09-21"'),
        (pa.timestamp("us", ZONE), NOON, '"2026-07-01T08:00:00.000-04:00"'),
        (pa.timestamp("us", ZONE), dt.datetime(1850, 1, 1, tzinfo=dt.UTC), '"1849-12-31T19:03:58.000-04:56:02"'),
        (pa.timestamp("us", ZONE), 253_402_300_800_000_000 + 180 * 86_400_000_000, '"+10000-06-28T20:00:00.000-04:00"'),
        (pa.timestamp("us", "+05:30"), NOON, '"2026-07-01T17:30:00.000+05:30"'),
        (pa.timestamp("us", "UTC"), -1, '"1969-12-31T23:59:59.999Z"'),
        (pa.timestamp("us"), 1_999_999, '"1970-01-01T00:00:01.999"'),
        (pa.list_(pa.int32()), [1, None, 3], "[1,null,3]"),
        (pa.list_(pa.list_(pa.int32())), [[], None, [1, 2]], "[[],null,[1,2]]"),
        (pa.map_(pa.string(), pa.float64()), [('k"', 1.0), ("n", None)], '{"k\\"":1.0,"n":null}'),
        (pa.map_(pa.int32(), pa.bool_()), [(-1, True)], '{"-1":true}'),
        (pa.struct([("a", pa.int32()), ("b", pa.null())]), {"a": None}, "{}"),
    ],
)
@pytest.mark.behaviour("JSON", "Each type is written as to_json writes it, also where no type of Python has the value")
def test_value_is_written_as_to_json_writes_it(kind: pa.DataType, value: Any, text: str) -> None:
    # A second row with another value, a null and one more: the result does not depend on a column of equal rows.
    assert encoded(kind, value, None, value) == [text, None, text]


@with_each("missing", [(), ("a",), ("b",), ("c",), ("a", "b"), ("b", "c"), ("a", "b", "c")])
def test_null_fields_are_left_out_with_their_commas(missing: tuple[str, ...]) -> None:
    kind = pa.struct([("a", pa.int32()), ("b", pa.string()), ("c", pa.bool_())])
    full = {"a": 1, "b": "x", "c": True}
    row = {name: None if name in missing else value for name, value in full.items()}
    expected = json.dumps({name: value for name, value in row.items() if value is not None}, separators=(",", ":"))
    whole = json.dumps(full, separators=(",", ":"))
    # With an empty row, the comma before each field depends on the row.
    assert encoded(kind, row, full, None, {}, row, prefix=b"0123456789abcdef-") == [
        None if each is None else "0123456789abcdef-" + each for each in (expected, whole, None, "{}", expected)
    ]


def test_slices_are_encoded_like_copies() -> None:
    kind = pa.struct([("l", pa.list_(pa.string())), ("m", pa.map_(pa.string(), pa.binary())), ("b", pa.bool_())])
    rows = pa.array([{"l": ["x" * n, '"'], "m": [(str(n), b"z" * n)], "b": n % 2 == 0} for n in range(20)], kind)
    encoder = JsonEncoder(kind, "value")
    whole = encoder.encode(rows).to_pylist()
    assert encoder.encode(rows[7:15]).to_pylist() == whole[7:15]
    assert encoder.encode(rows[3:3]).to_pylist() == []
    assert json.loads(whole[3]) == {"l": ["xxx", '"'], "m": {"3": "enp6"}, "b": False}


def test_values_under_null_rows_are_not_written() -> None:
    inner = pa.StructArray.from_arrays(
        [pa.array([1, 2]), pa.array(["x", "y"])], names=["a", "b"], mask=pa.array([True, False])
    )
    outer = pa.StructArray.from_arrays([inner], names=["inner"])
    found = JsonEncoder(outer.type, "value").encode(outer).to_pylist()
    assert found == [b"{}", b'{"inner":{"a":2,"b":"y"}}']


@with_each(
    ("kind", "message"),
    [
        (pa.struct([("d", pa.duration("us"))]), r"column 'value\.d' is duration.*, which has no counterpart"),
        (pa.map_(pa.float64(), pa.int32()), r"column 'value\{key\}' has the type double, but the names .* are texts"),
        (pa.struct([("a", pa.int32()), ("a", pa.int32())]), "column 'value' has two fields named 'a'"),
        (pa.list_(pa.timestamp("us", "Mars/Base")), r"column 'value\[\]' has times in .* time zone 'Mars/Base'"),
    ],
)
def test_types_without_counterpart_are_refused(kind: pa.DataType, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        JsonEncoder(kind, "value")


@with_each(
    ("name", "offset"),
    [("PST", b"-08:00"), ("IST", b"+05:30"), ("ACT", b"+09:30"), ("EST", b"-05:00"), ("CST", b"-06:00")],
)
def test_short_names_of_time_zones_are_those_of_java(name: str, offset: bytes) -> None:
    moment = pa.array([0], pa.timestamp("us", name))
    (text,) = JsonEncoder(moment.type, "value").encode(moment).to_pylist()
    assert text.strip(b'"').endswith(offset)


@pytest.mark.behaviour("JSON", "Rows that JSON cannot hold are refused, all of them at once, with the column")
def test_rows_without_counterpart_are_all_refused() -> None:
    kind = pa.struct([("x", pa.list_(pa.float64()))])
    rows = pa.array([{"x": [1.0]}, {"x": [2.0, math.nan]}, {"x": []}, {"x": [math.inf]}], kind)
    with pytest.raises(
        RowSerializationError, match=r"row 1 has nan in column 'value\.x\[\]', which JSON does not have"
    ) as no:
        JsonEncoder(kind, "value", {}).encode(rows)
    assert (list(no.value.rows), no.value.column) == ([1, 3], "value.x[]")
    raw = pa.array([b"fine", b"\xff", None, "ü".encode(), b"\xc3"], pa.binary()).view(pa.string())
    with pytest.raises(
        RowSerializationError, match="row 1 has bytes in column 'value' that are not valid UTF-8"
    ) as bad:
        JsonEncoder(pa.string(), "value").encode(raw)
    assert list(bad.value.rows) == [1, 4]
