"""Writes the option tables into a page: ``python -m scripts.option_table docs/options.md``.

Run manually when an option changes; a test checks that the page is up to date. It only reads the option tables.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kafka_sink.common import config as c
from kafka_sink.common.files import between_marks
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.registry.config import RegistryConfig
from kafka_sink.spark.options import REFUSED, SINK_DEFAULTS, SINK_MEANINGS, SinkOptions
from kafka_sink.spark.prepared_write import KAFKA_PREFIX

BEGIN = "<!-- options: begin -->"
END = "<!-- options: end -->"


def option_tables() -> str:
    """The tables in Markdown: the sink's own options, a schema registry's, and ``kafka.*`` with what they are for
    the sink."""
    own = c.markdown_table(SinkOptions)
    kafka = c.markdown_table(
        ProducerConfig, prefix=KAFKA_PREFIX, defaults=SINK_DEFAULTS, meanings=SINK_MEANINGS, without=REFUSED
    )
    registry = c.markdown_table(RegistryConfig)
    return f"{own}\n\n{registry}\n\n{kafka}\n"


def update(page: Path) -> None:
    """Replace the text between the markers of *page* by the tables."""
    page.write_text(between_marks(page.read_text(encoding="utf-8"), BEGIN, END, option_tables()), encoding="utf-8")


if __name__ == "__main__":
    update(Path(sys.argv[1]))
