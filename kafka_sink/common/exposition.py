"""Metrics in Prometheus' formats, which prometheus_client writes.

Imported by the code that answers a scrape, on its thread; the code that records metrics does not need it.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/,
https://prometheus.io/docs/specs/om/open_metrics_spec.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from prometheus_client import Metric as Exposed
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from kafka_sink.common.metrics import Family, Metric

#: The header of a scraper that supports OpenMetrics, and of one with the older text format only, as for files.
OPENMETRICS: Final = "application/openmetrics-text"
TEXT: Final = "text/plain"
#: The last words of names that are units.
_UNITS: Final = frozenset({"ms", "bytes", "seconds"})


def rendered(metrics: Iterable[Metric], accept: str) -> tuple[str, str]:
    """*metrics* in the format that a scraper with the header *accept* prefers, and the format's content type; metrics
    without a value are left out.

    Their names are ``kafka_<group>_<name>``, and for a counter ``…_total``.
    """
    encode, content_type = choose_encoder(accept)
    return encode(_Collected(metrics)).decode(), content_type


def prometheus_name(family: Family) -> str:
    return _word(f"kafka-{family.group}-{family.name}")


class _Collected(Collector):
    """The collector from which prometheus_client gets the families."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Exposed]:
        by_family: dict[Family, Exposed] = {}
        for metric in self._metrics:
            if not math.isnan(metric.value):
                exposed = by_family.get(metric.family)
                if exposed is None:
                    exposed = by_family[metric.family] = _exposed(metric.family)
                exposed.add_sample(
                    prometheus_name(metric.family), {_word(name): value for name, value in metric.tags}, metric.value
                )
        return by_family.values()


def _exposed(family: Family) -> Exposed:
    name = prometheus_name(family).removesuffix("_total")
    unit = name.rpartition("_")[2]
    kind = "counter" if family.is_total else "gauge"
    return Exposed(name, family.meaning, kind, unit if unit in _UNITS else "")


def _word(name: str) -> str:
    return name.replace("-", "_").replace(".", "_")
