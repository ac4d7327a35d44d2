"""For tests of other projects: a Kafka cluster and topics as pytest fixtures, and a schema registry in memory.

pytest loads the fixtures automatically, so nothing is imported here before it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka_sink.testing.clusters import ClusterSecurity
    from kafka_sink.testing.registry.embedded_registry import EmbeddedRegistry

__all__ = ["ClusterSecurity", "EmbeddedRegistry"]


def __getattr__(name: str) -> Any:
    if name == "ClusterSecurity":
        from kafka_sink.testing.clusters import ClusterSecurity

        return ClusterSecurity
    if name == "EmbeddedRegistry":
        from kafka_sink.testing.registry.embedded_registry import EmbeddedRegistry

        return EmbeddedRegistry
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
