"""Puts the option tables into a page: ``python -m kafka_sink.spark.option_table README.md``.

Run by hand when an option changes; a test holds the README to it. It reads nothing but the tables.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kafka_sink.common import config as c
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.spark.options import KAFKA_PREFIX, REFUSED, SINK_DEFAULTS, SinkOptions

BEGIN = "<!-- options: begin -->"
END = "<!-- options: end -->"


def option_tables() -> str:
    """Markdown: the sink's own options, then the ``kafka.*`` ones with the sink's defaults."""
    own = c.markdown_table(SinkOptions)
    kafka = c.markdown_table(ProducerConfig, prefix=KAFKA_PREFIX, defaults=SINK_DEFAULTS, without=REFUSED)
    return f"{own}\n\n{kafka}\n"


def update(page: Path) -> None:
    """Put the tables between the markers of *page*."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{option_tables()}{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    update(Path(sys.argv[1]))
