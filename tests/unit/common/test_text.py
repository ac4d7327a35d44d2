"""The display of external text."""

from __future__ import annotations

import json

import pytest

from kafka_sink.common.text import json_text, printable, without_controls
from tests.support.cases import with_each

CONTROLS = [*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F)]
CONTROLS += range(0x2066, 0x206A)

pytestmark = pytest.mark.behaviour("Schema registry", "Controls in texts from outside reach no terminal, log or page")


@with_each("code", CONTROLS)
def test_controls_are_escaped(code: int) -> None:
    text = f"a{chr(code)}b"
    assert without_controls(text) == f"a\\u{code:04x}b"
    assert printable(text).isprintable()
    assert json_text(text).isprintable()
    assert json.loads(json_text(text)) == text


def test_lines_and_other_characters_stay() -> None:
    text = "é☃\U0001f600\t\n\u3000"
    assert without_controls(text) == text
