"""The tables in which a notebook shows what a write has done.

Pure; called in the user's process when a notebook displays a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from kafka_sink.common.text import html_table

if TYPE_CHECKING:
    from kafka_sink.reports.writes import PartitionRange

_PARTITIONS: Final = "partitions"
#: A topic may have 100,000 partitions.
_MOST_ROWS: Final = 50


def figures_table(result: Any) -> str:
    """The fields of the dataclass *result*, without its partitions."""
    names = [item.name for item in fields(result) if item.name != _PARTITIONS]
    return html_table((), [(name, _shown(getattr(result, name))) for name in names], caption=type(result).__name__)


def partitions_table(partitions: Mapping[str, PartitionRange]) -> str:
    """Rows and offsets of each partition, of the first ones if there are many; empty if there are none."""
    if not partitions:
        return ""
    shown = sorted(partitions.items())[:_MOST_ROWS]
    rows: list[tuple[object, ...]] = [
        (name, _shown(part.rows), part.first_offset, part.last_offset) for name, part in shown
    ]
    if len(shown) < len(partitions):
        rows.append((f"and {len(partitions) - len(shown)} more", "", "", ""))
    return html_table(("partition", "rows", "first offset", "last offset"), rows)


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else "" if value is None else str(value)
