"""The options of ``format("kafkalite")``: Spark's own names, read once on the driver.

Called by the data source in Spark's planner process. It keeps plain values only, because what it returns is pickled
to the tasks. It never connects to anything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafka_sink.common import config as c
from kafka_sink.common.errors import ConfigError
from kafka_sink.producer import config as producer_config
from kafka_sink.producer.config import ProducerConfig

KAFKA_PREFIX = "kafka."

#: A Spark task sends whole columns and flushes at its end: batches may be larger and wait longer than by default.
SINK_DEFAULTS: Mapping[str, str] = {"batch.size": "524288", "linger.ms": "100"}

#: Options of the producer that mean nothing here, and why.
REFUSED: Mapping[str, str] = {
    "key.serializer": "keys are written as the bytes of the key column",
    "value.serializer": "values are written as the bytes of the value column",
    "interceptor.classes": "interceptors see single records, and the sink sends columns",
    "transactional.id": "the tasks of a write do not share a transaction",
    "transaction.timeout.ms": "the sink does not write in transactions",
}


@dataclass(frozen=True)
class SinkOptions:
    """What a write was told. ``producer_properties`` are Kafka's names without the ``kafka.`` prefix."""

    topic: str | None = c.key(
        "topic",
        c.STRING,
        None,
        "the topic of every row; wins over a topic column",
        validator=c.Validator("a name", bool),
    )
    include_headers: bool | None = c.key(
        "includeHeaders",
        c.BOOLEAN,
        None,
        "headers are written whenever the headers column exists; true asserts that it does, false that it does not",
    )
    report_path: str | None = c.key(
        "reportPath", c.STRING, None, "file on the driver to which each committed write appends one JSON line"
    )
    producer_properties: Mapping[str, str] = field(default_factory=dict, repr=False)


def parse_options(options: Mapping[str, str]) -> SinkOptions:
    """Read the options of one write. Spark gives every name in lower case.

    :raises ConfigError: naming the option, the value seen, what was expected, and for an unknown name the nearest one.
    """
    own = {name.lower(): name for name in c.keys(SinkOptions)}
    sink_values: dict[str, str] = {}
    kafka_values: dict[str, str] = {}
    for name, value in options.items():
        lowered = name.lower()
        if lowered.startswith(KAFKA_PREFIX):
            kafka_values[lowered.removeprefix(KAFKA_PREFIX)] = value
        elif lowered in own:
            sink_values[own[lowered]] = value
        elif lowered == "path":
            raise ConfigError(
                f"save({value!r}) names a path, but this sink writes to topics; use save() and option('topic', …)"
            )
        else:
            known = [*own.values(), *(KAFKA_PREFIX + known for known in c.keys(ProducerConfig) if known not in REFUSED)]
            raise ConfigError(f"unknown option {name}{c.nearest(name, known)}")
    parsed = c.parse(SinkOptions, sink_values)
    check_producer_properties(kafka_values)
    return SinkOptions(
        topic=parsed.topic,
        include_headers=parsed.include_headers,
        report_path=parsed.report_path,
        producer_properties={**SINK_DEFAULTS, **kafka_values},
    )


def check_producer_properties(values: Mapping[str, str]) -> None:
    """Validate the ``kafka.*`` options on the driver, before any task starts.

    :raises ConfigError: in the words of the user's options.
    """
    for name, reason in REFUSED.items():
        if name in values:
            raise ConfigError(f"option {KAFKA_PREFIX}{name} is not supported: {reason}; remove it")
    config = c.parse(ProducerConfig, {**SINK_DEFAULTS, **values}, prefix=KAFKA_PREFIX)
    if config.acks_code == 0:
        raise ConfigError(
            f"option {KAFKA_PREFIX}acks: '0' is not allowed, expected all or 1; without acknowledgements nobody would "
            "know whether the rows were written"
        )
    producer_config.reconcile(config, frozenset(values), prefix=KAFKA_PREFIX)


def check_report_path(options: SinkOptions) -> None:
    """Refuse a report that could not be written before any row is.

    :raises ConfigError: the folder of reportPath is missing or may not be written to.
    """
    if options.report_path is None:
        return
    folder = Path(options.report_path).resolve().parent
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(
            f"option reportPath: {options.report_path!r} cannot be written on the driver's machine: the folder "
            f"{folder} is missing or read-only; name a file in a folder that is there"
        )
