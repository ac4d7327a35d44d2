"""Writes the table of exactly once into a page: ``python -m scripts.move_table docs/internals/exactly-once.md``.

Run manually when a rule changes; a test checks that the page is up to date. It only reads the table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path

from kafka_sink.exactly_once.situation import TABLE, Batch, End, Fence, Rule
from scripts.pages import print_into


def move_table() -> str:
    """Return the rules, and the meanings of the words that they use, in Markdown."""
    lines = [
        "| | fence | last transaction of the driver (end) | decided batch | and | move | why it is safe |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(f"| {number} | {' | '.join(_cells(rule))} |" for number, rule in enumerate(TABLE, 1)),
        "",
        "| word | meaning |",
        "| --- | --- |",
        *(f"| {kind.__name__.lower()} `{each.name}` | {each.value} |" for kind in (Fence, End, Batch) for each in kind),
    ]
    return "\n".join(lines) + "\n"


def _cells(rule: Rule) -> Iterator[str]:
    for names in (rule.fences, rule.ends, rule.batches):
        yield _names(names)
    yield "; ".join(condition.text for condition in rule.also)
    yield f"**{rule.move.name}**: {rule.move.value}"
    yield rule.reason


def _names(values: Sequence[Enum]) -> str:
    return ", ".join(f"`{each.name}`" for each in values)


if __name__ == "__main__":
    print_into(Path(sys.argv[1]), "moves", move_table())
