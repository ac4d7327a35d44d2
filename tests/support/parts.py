"""A real producer whose parts a test looks at: its network starts its thread, and keeps what the thread was given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kafka_sink.common.threads import Loop, Thread, start_loop
from kafka_sink.producer.kafka_producer import KafkaProducer
from kafka_sink.producer.pipeline import Pipeline, make_network
from tests.fakes.sender_world import config_of


def producer_with_parts(properties: Mapping[str, Any], **options: Any) -> tuple[KafkaProducer, Pipeline]:
    """A producer with *properties* and the *options* of its constructor, and its parts."""
    found: list[Pipeline] = []

    def start_thread(name: str, loop: Loop) -> Thread:
        assert isinstance(loop, Pipeline)
        found.append(loop)
        return start_loop(name, loop)

    config = config_of(properties)
    network = replace(make_network(config, config.client_id), start_thread=start_thread)
    return KafkaProducer(properties, network=network, **options), found[0]
