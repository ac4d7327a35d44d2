"""The key and the value of a header are identified by their names, not by their positions."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kafka_sink.columns.record_columns import HeadersColumn
from kafka_sink.common.errors import SerializationError


@pytest.mark.parametrize("names", [("value", "key"), ("content", "name"), ("Key", "Value")])
def test_headers_with_other_names_or_another_order_are_refused(names: tuple[str, str]) -> None:
    kind = pa.list_(pa.struct([(name, pa.string()) for name in names]))
    headers = pa.array([[dict(zip(names, ("1", "2"), strict=True))]], kind)
    with pytest.raises(SerializationError, match="headers must be list<struct<key: string, value: binary>>, got"):
        HeadersColumn.from_arrow(headers)
