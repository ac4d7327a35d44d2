"""For tests of other projects: a Kafka cluster and topics as pytest fixtures, and a schema registry in memory; also
the clock of a cluster (``EmbeddedCluster(clock=…)``).

pytest loads the fixtures automatically, so modules are imported here on demand only.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka_sink.common.clock import Clock, SystemClock
    from kafka_sink.testing.clusters import ClusterSecurity
    from kafka_sink.testing.registry.embedded_registry import EmbeddedRegistry

__all__ = ["Clock", "ClusterSecurity", "EmbeddedRegistry", "SystemClock"]

_HOMES = {
    "Clock": "kafka_sink.common.clock",
    "ClusterSecurity": "kafka_sink.testing.clusters",
    "EmbeddedRegistry": "kafka_sink.testing.registry.embedded_registry",
    "SystemClock": "kafka_sink.common.clock",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
