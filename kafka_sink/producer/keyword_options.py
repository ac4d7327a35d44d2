"""The answer to options that are passed as keyword arguments, as kafka-python and aiokafka take them.

Runs on the constructing thread.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec

from kafka_sink.common import config as c
from kafka_sink.producer.config import ProducerConfig

P = ParamSpec("P")


def says_what_options_are(init: Callable[P, None]) -> Callable[P, None]:
    """The constructor *init*; a TypeError for unknown keyword arguments says how options are passed and named."""
    known = inspect.signature(init).parameters

    @functools.wraps(init)
    def checked(*args: P.args, **kwargs: P.kwargs) -> None:
        unknown = [name for name in kwargs if name not in known]
        if unknown:
            raise TypeError(
                "options are passed as one mapping with Kafka's names, as in KafkaProducer({'bootstrap.servers': "
                f"'localhost:9092'}}), and not as keyword arguments: {', '.join(map(_explained, unknown))}"
            )
        init(*args, **kwargs)

    return checked


def _explained(name: str) -> str:
    return f"{name}{c.hint(ProducerConfig, name, '')}"
