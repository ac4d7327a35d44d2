"""Delivery callbacks of librdkafka."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaError


def noting(failures: list[KafkaError]) -> Callable[[KafkaError | None, object], None]:
    """A callback that adds the errors to *failures*."""

    def note(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failures.append(error)

    return note
