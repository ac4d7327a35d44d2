"""The detection of JSON for the display of records, on every Python."""

from __future__ import annotations

import json

import pytest

from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.formats.schema_text import MOST_DEPTH, check_json
from tests.support.cases import with_each

pytestmark = pytest.mark.behaviour("Package", "Nothing depends on a patch release of Python")

ROW = {"a": [1, -0.5, 1e30, '\u00e9\\ "', {"b": None, "c": [True, False, [], {}]}], "d": "\u2028\U0001f600\x7f"}


@with_each("indent", [None, 1])
@with_each("ascii_only", [False, True])
def test_what_is_json_is_taken(indent: int | None, ascii_only: bool) -> None:
    check_json(json.dumps([ROW] * 50, ensure_ascii=ascii_only, indent=indent))


@with_each(
    "text",
    [
        "1",
        "-0",
        '""',
        "null",
        " [ ] ",
        "{\n}\r\t",
        "9" * 5_000,
        f"0.{'1' * 5_000}",
        "1e999",
        '{"a":1,"a":2}',
        '"\\ud800"',
    ],
)
def test_odd_values_are_json_too(text: str) -> None:
    check_json(text)


@with_each(
    ("text", "problem"),
    [
        ("", "Expecting value: line 1 column 1"),
        ("NaN", "NaN is not a valid value of JSON"),
        ("[-Infinity]", "-Infinity is not a valid value of JSON"),
        ("{'a': 1}", "Expecting property name enclosed in double quotes"),
        ('{"a" 1}', "Expecting ':' delimiter"),
        ('{"a": 1} {}', "Extra data"),
        ("01", "Extra data"),
        ("[1 2]", "Expecting ',' delimiter"),
        ("[1,]", "(char [23])"),
        ('"a\tb"', "Invalid control character"),
        ('"\\x"', "Invalid .*escape"),
        ('"a', "Unterminated string"),
        ("\ufeff1", "BOM"),
    ],
)
def test_what_is_no_json_is_refused_with_the_place(text: str, problem: str) -> None:
    with pytest.raises(CorruptRecordError, match=problem):
        check_json(text)


@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_depth_is_bounded_whatever_the_library_reads(begin: str, end: str) -> None:
    levels = MOST_DEPTH // len(end)
    check_json(begin * levels + "1" + end * levels)
    for more in (levels + 1, 100_000):
        with pytest.raises(CorruptRecordError, match=f"nested more than {MOST_DEPTH} levels deep"):
            check_json(begin * more + "1" + end * more)


def test_a_value_whose_name_comes_again_counts() -> None:
    with pytest.raises(CorruptRecordError, match="nested more than"):
        check_json(f'{{"a": {"[" * 100}{"]" * 100}, "a": 1}}')
