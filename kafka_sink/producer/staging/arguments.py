"""Validation of the arguments of the producer's methods, before anything is staged, and the answer to options that are
passed as keyword arguments.

:class:`KafkaProducer` calls it on the calling threads, once per call and in constant time. It uses no metadata: whether
a partition exists is checked later.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np
import pyarrow as pa

from kafka_sink.columns.record_columns import ColumnChunk
from kafka_sink.common import config as c
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.producer_record import ProducerRecord

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


def check_send(record: object, on_delivery: object) -> None:
    """:raises ValueError: if *record* is not a ProducerRecord, or *on_delivery* is not callable."""
    if not isinstance(record, ProducerRecord):
        raise ValueError(
            f"send takes a ProducerRecord, got {type(record).__name__} ({record!r:.50}); "
            "write ProducerRecord(topic, value, key)"
        )
    check_callback(on_delivery)


def check_rows(rows: object, partitions: Any, on_delivery: object) -> None:
    """:raises ValueError: if an argument of ``send_columns`` has the wrong type or length."""
    if not isinstance(rows, pa.RecordBatch | pa.Table | ColumnChunk):
        raise ValueError(
            f"the rows must be a pyarrow Table or RecordBatch, got {type(rows).__name__}; "
            "pyarrow.table({'value': …}) makes one, and pyarrow.Table.from_pandas"
        )
    if partitions is not None:
        _check_partitions(partitions, rows.num_rows)
    check_callback(on_delivery)


def _check_partitions(partitions: Any, rows: int) -> None:
    if not isinstance(partitions, np.ndarray) or partitions.dtype.kind not in "iu" or partitions.ndim != 1:
        seen = f"{partitions.dtype}{list(partitions.shape)}" if isinstance(partitions, np.ndarray) else ""
        raise ValueError(
            f"the partitions must be a numpy array of integers, one for each row, got {type(partitions).__name__} "
            f"{seen}; write numpy.array(…, dtype=numpy.int32)"
        )
    if len(partitions) != rows:
        raise ValueError(
            f"got {len(partitions)} partitions for {rows} rows; give one for each row, and ANY_PARTITION where the "
            "partitioner is to choose"
        )


def check_callback(on_delivery: object) -> None:
    """:raises ValueError: if *on_delivery* is not callable."""
    if on_delivery is not None and not callable(on_delivery):
        raise ValueError(f"on_delivery must be a function of a Delivery, got {type(on_delivery).__name__}")
