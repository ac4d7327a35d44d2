"""Texts of floating-point numbers as Java has them, a whole column at once. Called on the task's thread.

The digits are the fewest that stand for the number. From 0.001 to 10,000,000 it is written out (``100.0``), and
otherwise with an exponent (``1.5E-7``).

Source: ``Double.toString`` of Java 19 and later. Earlier ones have some more digits in rare cases (JDK-4511638).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kafka_sink.columns.binary_column import Bools
from kafka_sink.formats.fields import numbers

#: As Jackson writes them.
_NOT_FINITE: Final = ('"NaN"', '"Infinity"', '"-Infinity"')

_LEAST_PLAIN: Final = 1e-3
_LEAST_WITH_EXPONENT: Final = 1e7
#: Arrow's texts: with an exponent, below 1, and of whole numbers with many digits.
_SCIENTIFIC: Final = r"^(?P<first>-?\d)(?:\.(?P<rest>\d+))?e\+?(?P<exponent>-?\d+)$"
_SMALL: Final = r"^(?P<sign>-?)0\.(?P<zeros>0+)(?P<first>[1-9])(?P<rest>\d*)$"
_LARGE: Final = r"^(?P<first>-?[1-9])(?P<whole>\d+)(?:\.(?P<rest>\d+))?$"


# A signalling NaN is treated as every other NaN.
@np.errstate(invalid="ignore")
def float_texts(array: pa.Array) -> tuple[pa.Array, Bools, Bools | None]:
    """The texts of *array*, without the ``.0`` of whole numbers; where this is to follow; and where the row has a
    number, None if all do.

    A null row has any text.
    """
    double = pa.types.is_float64(array.type)
    values = numbers(array, np.float64 if double else np.float32)
    texts = pa.array(values).cast(pa.string())
    magnitude = np.abs(values).astype(np.float64, copy=False)
    is_number = np.isfinite(values)
    is_plain = (magnitude >= _LEAST_PLAIN) & (magnitude < _LEAST_WITH_EXPONENT) | (values == 0)
    is_whole = is_plain & (values == np.trunc(values))
    others = np.flatnonzero(is_number & ~is_plain)
    if len(others):
        texts = _replaced(texts, others, _with_exponent(texts.take(pa.array(others)), values[others]))
    if is_number.all():
        return texts, is_whole, None
    strange = np.flatnonzero(~is_number)
    which = np.where(np.isnan(values[strange]), 0, np.where(values[strange] > 0, 1, 2))
    return _replaced(texts, strange, pa.array(_NOT_FINITE).take(pa.array(which))), is_whole, is_number


def _replaced(texts: pa.Array, rows: NDArray[np.intp], by: pa.Array) -> pa.Array:
    mask = np.zeros(len(texts), dtype=np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(texts, pa.array(mask), by)


def _with_exponent(texts: pa.Array, values: NDArray[Any]) -> pa.Array:
    """*texts* as d.dddE±e."""
    scientific = pc.extract_regex(texts, _SCIENTIFIC)
    small = pc.extract_regex(texts, _SMALL)
    large = pc.extract_regex(texts, _LARGE)
    first = pc.coalesce(
        pc.struct_field(scientific, "first"),
        pc.binary_join_element_wise(pc.struct_field(small, "sign"), pc.struct_field(small, "first"), ""),
        pc.struct_field(large, "first"),
    )
    rest = pc.coalesce(
        pc.struct_field(scientific, "rest"),
        pc.struct_field(small, "rest"),
        pc.binary_join_element_wise(pc.struct_field(large, "whole"), pc.struct_field(large, "rest"), ""),
    )
    exponent = pc.coalesce(
        pc.struct_field(scientific, "exponent"),
        pc.negate(pc.add(pc.binary_length(pc.struct_field(small, "zeros")), 1)).cast(pa.string()),
        pc.binary_length(pc.struct_field(large, "whole")).cast(pa.string()),
    )
    digits = pc.utf8_rtrim(rest, "0")
    fraction = pc.if_else(pc.equal(digits, ""), "0", digits)
    formatted = pc.binary_join_element_wise(first, ".", fraction, "E", exponent, "")
    tiny = np.flatnonzero((np.abs(values) < _few_digits(values)) & pc.equal(digits, "").to_numpy(zero_copy_only=False))
    return _replaced(formatted, tiny, _two_digits(values[tiny])) if len(tiny) else formatted


def _few_digits(values: NDArray[Any]) -> float:
    """Below this, numbers are so far apart that one digit may stand for one; Java then shows two."""
    return float(np.finfo(values.dtype).smallest_subnormal) * 200


def _two_digits(values: NDArray[Any]) -> pa.Array:
    """There are few numbers of this size."""
    distinct, where = np.unique(values, return_inverse=True)
    shown = [f"{value:.1e}".replace("e", "E").replace("E-0", "E-") for value in distinct.astype(np.float64).tolist()]
    return pa.array(shown, pa.string()).take(pa.array(where))
