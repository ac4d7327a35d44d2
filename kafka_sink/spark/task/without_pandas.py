"""Keeps pandas out of tasks that do not use it: 40 MB of each Python worker, and a quarter of a second of its first
task.

``pyarrow.array`` imports pandas, if it is installed, to see whether a list belongs to it, and Spark makes an array of
one list, the message of the task, when a writer has returned (``pyspark/sql/worker/write_into_data_source.py``). For
this one call :func:`spare_pandas` puts a function in the place of ``pyarrow.array``; what is given anything else calls
the original, as does everybody later. pyarrow's own memory of whether pandas is there is not touched: Spark gives the
same process to other jobs.
"""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def spare_pandas() -> None:
    """Prepare the next call of ``pyarrow.array`` in this process; changes nothing where pandas is already imported."""
    pyarrow: Any = sys.modules.get("pyarrow")
    if pyarrow is None or "pandas" in sys.modules or getattr(pyarrow.array, "__module__", "") == __name__:
        return
    original = pyarrow.array

    def array(values: Any, *arguments: Any, **named: Any) -> Any:
        pyarrow.array = original
        if arguments or named or type(values) is not list or len(values) != 1 or type(values[0]) is not bytes:
            return original(values, *arguments, **named)
        return array_of_one(pyarrow.binary(), values[0])

    pyarrow.array = array


def array_of_one(kind: pa.DataType, value: bytes) -> pa.Array:
    """The array of *kind*, binary or UTF-8 text, with this one value."""
    import pyarrow

    offsets = pyarrow.py_buffer(struct.pack("=ii", 0, len(value)))
    return pyarrow.Array.from_buffers(kind, 1, [None, offsets, pyarrow.py_buffer(value)])
