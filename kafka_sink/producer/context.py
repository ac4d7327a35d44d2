"""ProducerContext: what the parts of one producer have in common.

Created once, when the producer is wired. Any thread reads it.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka_sink.common.clock import Clock
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.metrics import ProducerMetrics


@dataclass(frozen=True, slots=True)
class ProducerContext:
    """The configuration, the clock, the metrics and the log of a producer. Its parts share them, and none owns them."""

    config: ProducerConfig
    clock: Clock
    metrics: ProducerMetrics
    log: ContextLogger
