"""Serializers, interceptors and partitioners as users write them, to be named by their dotted paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_sink.client.metadata.cluster import Cluster
from kafka_sink.common.model import Header, RecordMetadata
from kafka_sink.producer.producer_record import ProducerRecord


class UpperSerializer:
    """Upper-case text; notes in a header what it did."""

    def __init__(self) -> None:
        self.configured: list[tuple[Mapping[str, Any], bool]] = []
        self.closed = 0

    def configure(self, configs: Mapping[str, Any], is_key: bool) -> None:
        self.configured.append((configs, is_key))

    def serialize(self, topic: str, headers: list[Header], data: Any) -> bytes | None:
        if data is None:
            return None
        headers.append(("upper", topic.encode()))
        return bytes(data.upper(), "utf-8")

    def close(self) -> None:
        self.closed += 1


class Recorder:
    """Adds its name to every value, and notes all it is told."""

    def __init__(self, name: str = "recorder") -> None:
        self.name = name
        self.configs: Mapping[str, Any] = {}
        self.acknowledged: list[tuple[RecordMetadata, Exception | None]] = []
        self.closed = 0

    def configure(self, configs: Mapping[str, Any]) -> None:
        self.configs = configs

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(value=record.value + b"+" + self.name.encode())

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        self.acknowledged.append((metadata, error))

    def close(self) -> None:
        self.closed += 1


class Failing:
    """Raises whatever it is asked."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise RuntimeError("on_send")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        raise RuntimeError("on_acknowledgement")

    def close(self) -> None:
        raise RuntimeError("close")


class LengthPartitioner:
    """The partition is the length of the value."""

    def partition(
        self, topic: str, key: Any, key_bytes: bytes | None, value: Any, value_bytes: bytes | None, cluster: Cluster
    ) -> int:
        return len(value_bytes or b"")


class NeedsArguments:
    """Cannot be made from its name."""

    def __init__(self, required: int) -> None:
        self.required = required
