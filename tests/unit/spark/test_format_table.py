"""The table of types in docs/formats.md is what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.format_table import type_table
from scripts.pages import printed

PAGE = Path(__file__).parents[3] / "docs" / "formats.md"


@pytest.mark.behaviour("Avro", "The documented table of types is what columns are derived to and matched with")
def test_page_shows_the_types_as_they_are() -> None:
    shown = printed(PAGE, "types")
    assert shown.strip() == type_table().strip(), "run: python -m scripts.format_table docs/formats.md"
    assert "| `bigint` | `long` | `float`, `double` | `int64` | " in shown
