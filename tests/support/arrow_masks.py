"""Rows that are null and have values all the same, as Arrow allows it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def with_hidden(structs: pa.StructArray, hidden: Sequence[bool]) -> pa.StructArray:
    """*structs* with the rows of *hidden* null; their fields keep their values."""
    fields = [structs.field(index) for index in range(structs.type.num_fields)]
    return pa.StructArray.from_arrays(fields, fields=list(structs.type), mask=pa.array(hidden))
