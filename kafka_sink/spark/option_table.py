"""Prints the README's option tables from the configuration tables: ``python -m kafka_sink.spark.option_table``.

Run by hand or by the test that keeps the README true. It reads nothing but the tables.
"""

from __future__ import annotations

import sys

from kafka_sink.common import config as c
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.spark.options import KAFKA_PREFIX, SINK_DEFAULTS, SinkOptions


def option_tables() -> str:
    """Markdown: the sink's own options, then the ``kafka.*`` ones with the sink's defaults."""
    own = c.markdown_table(SinkOptions)
    kafka = c.markdown_table(ProducerConfig, prefix=KAFKA_PREFIX, defaults=SINK_DEFAULTS)
    return f"{own}\n\n{kafka}\n"


if __name__ == "__main__":
    sys.stdout.write(option_tables())
