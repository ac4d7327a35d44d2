"""Writes the tables of metrics into a page: ``python -m scripts.metric_table docs/metrics.md``.

Run manually when a metric changes; a test checks that the page is up to date. It only reads the metrics' declarations.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from kafka_sink.broker import running_cluster
from kafka_sink.broker.network import request_metrics, socket_server
from kafka_sink.common.exposition import prometheus_name
from kafka_sink.common.metrics import Family
from kafka_sink.producer import metrics as producer_metrics
from kafka_sink.reports import writes
from kafka_sink.ui import cluster_view
from scripts.pages import print_into

#: Heading → the meaning of the labels, and the families.
SECTIONS: Final[Mapping[str, tuple[str, Iterable[Family]]]] = {
    "Streams and versions": (
        "Of a `progress_listener` with its `tags` as labels, and of `kafkalite ui --report` with the file's name as "
        "the label `report`; `ack-seconds` has the label `quantile`, `last-offset` the label `partition`. Totals begin "
        "with the listener, or with the file.",
        writes.FAMILIES.values(),
    ),
    "Cluster": (
        "Of `kafkalite ui`. The labels are `topic`, `partition`, `consumergroup` and `sink`; kafka_exporter uses the "
        "same names.",
        cluster_view.FAMILIES.values(),
    ),
    "Producer": (
        "Of `KafkaProducer.prometheus()`, with the label `client_id`. Rates, averages and maxima cover the last "
        "`metrics.num.samples` × `metrics.sample.window.ms`.",
        producer_metrics.FAMILIES.values(),
    ),
    "Producer, each node": ("With the label `node_id` too.", producer_metrics.NODE_FAMILIES.values()),
    "Producer, each topic": ("With the label `topic` too.", producer_metrics.TOPIC_FAMILIES.values()),
    "Embedded broker": (
        "Of `kafkalite broker --metrics-port` and `--metrics-file`, with the label `node`. Those of requests have the "
        "labels `request` (the API) and `attribute` (`Count`, `OneMinuteRate`, `Mean`, `Max`, `50thPercentile`, "
        "`99thPercentile`) and cover the 512 newest requests of each API and network thread.",
        (
            *request_metrics.FAMILIES.values(),
            *socket_server.FAMILIES,
            running_cluster.HANDLERS_IDLE,
            running_cluster.WAITING_FETCHES,
        ),
    ),
}


def metric_tables() -> str:
    """All sections in Markdown."""
    return "\n".join(_section(heading, labels, families) for heading, (labels, families) in SECTIONS.items())


def _section(heading: str, labels: str, families: Iterable[Family]) -> str:
    rows = "".join(f"| `{prometheus_name(family)}` | {family.meaning} |\n" for family in families)
    shown = textwrap.fill(labels, 120, break_on_hyphens=False)
    return f"## {heading}\n\n{shown}\n\n| metric | meaning and remedy |\n| --- | --- |\n{rows}"


if __name__ == "__main__":
    print_into(Path(sys.argv[1]), "metrics", metric_tables())
