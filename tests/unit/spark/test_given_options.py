"""Options as users pass them: None is no value, numbers and booleans are texts, and others are refused by name."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pyspark.sql.types import StructType

from kafka_sink import KafkaProducer, check, foreach_batch, peek, write
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.client.blocking.group_admin import GroupAdmin
from kafka_sink.common.errors import ConfigError
from kafka_sink.consumer.log_reader import LogReader
from kafka_sink.spark.data_source import KafkaliteDataSource
from kafka_sink.spark.dataframe_writer import parse_arguments
from kafka_sink.spark.errors import SchemaError
from kafka_sink.spark.options import as_texts
from tests.support.cases import with_each

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9"}
ROWS = StructType().add("value", "string")
NO_SPARK: Any = None
FRAME: Any = SimpleNamespace(schema=ROWS, sparkSession=SimpleNamespace())


class Topic(enum.StrEnum):
    """A text as programs keep it."""

    ORDERS = "orders"


@pytest.mark.behaviour("Sink options and commit messages", "An option that is None is not set, in every way to write")
def test_an_option_that_is_none_is_left_out() -> None:
    nothing = dict.fromkeys(["deadLetterTopic", "reportPath", "txnAppId", "txnVersion", "kafka.client.id"])
    parsed = parse_arguments({**SERVERS, "topic": "t", **nothing}, {"txnAppId": None})
    assert parsed == parse_arguments({**SERVERS, "topic": "t"}, {})
    with pytest.raises(SchemaError, match="no topic: set option"):
        write(FRAME, {**SERVERS, "topic": None}, progress=False)
    with pytest.raises(ConfigError, match="peek needs a topic"):
        peek(NO_SPARK, {**SERVERS, "topic": None})
    assert callable(foreach_batch({**SERVERS, "topic": "t", "reportPath": None}, app_id="a"))
    with pytest.raises(ConfigError, match=r"option kafka\.bootstrap\.servers is required"):
        foreach_batch({"kafka.bootstrap.servers": None, "topic": "t"}, app_id="a")
    assert "kafka.bootstrap.servers is required" in repr(check(NO_SPARK, {"kafka.bootstrap.servers": None}))


def test_an_argument_takes_the_place_of_an_option_that_is_none() -> None:
    assert parse_arguments({**SERVERS, "topic": None}, {"topic": "t"}).topic == "t"


@pytest.mark.behaviour("KafkaProducer", "A property that is None is not set, for every client")
def test_a_property_that_is_none_is_not_set() -> None:
    properties = {"bootstrap.servers": "127.0.0.1:9", "client.id": None, "request.timeout.ms": None}
    with KafkaProducer({**properties, "acks": None, "interceptor.classes": None}) as producer:
        assert producer.client_id.startswith("producer-")
    LogReader({**properties, "fetch.max.bytes": None}).close()
    for client in (AdminClient, GroupAdmin):
        client("127.0.0.1:9", properties).close()


@with_each(
    ("value", "text"),
    [
        (5, "5"),
        (0.5, "0.5"),
        (Decimal("1.50"), "1.50"),
        (np.int64(7), "7"),
        (True, "true"),
        (False, "false"),
        (Path("/tmp/report"), "/tmp/report"),
        (Topic.ORDERS, "orders"),
        ("", ""),
    ],
)
def test_values_become_texts_as_sparks_writer_makes_them(value: Any, text: str) -> None:
    assert as_texts({"a": value}) == {"a": text}
    assert type(as_texts({"a": value})["a"]) is str


def test_numbers_and_booleans_are_taken() -> None:
    parsed = parse_arguments({**SERVERS, "topic": "t", "topicPartitions": 2, "kafka.enable.idempotence": True}, {})
    assert parsed.topic_partitions == 2
    assert parsed.producer_properties["enable.idempotence"] == "true"


ENTRANCES: Mapping[str, Callable[[Any], object]] = {
    "write": lambda options: write(FRAME, options),
    "foreach_batch": lambda options: foreach_batch(options, app_id="a"),
    "peek": lambda options: peek(NO_SPARK, options),
    "format": lambda options: KafkaliteDataSource(options).writer(ROWS, False),
}


@pytest.mark.behaviour(
    "Sink options and commit messages", "Other types of values, and keys that are no text, are refused by name"
)
@with_each("entrance", ENTRANCES.values())
def test_other_types_are_refused_by_name(entrance: Callable[[Any], object]) -> None:
    for wrong, text in (
        ({"topic": ["s3cr3t"]}, "option topic: a value of the type list is not taken, .*; join its parts with commas"),
        ({"topic": b"s3cr3t"}, "option topic: a value of the type bytes is not taken, expected text, a number, True"),
        ({5: "s3cr3t"}, r"the name of an option must be str, got int \(5\)"),
    ):
        with pytest.raises(ConfigError, match=text) as caught:
            entrance({**SERVERS, **wrong})
        assert "s3cr3t" not in str(caught.value)
    with pytest.raises(ConfigError, match="the options must be a mapping of names to values, got NoneType"):
        entrance(None)


def test_a_check_finds_other_types() -> None:
    (found,) = check(NO_SPARK, {"topic": ["t"]}).findings  # type: ignore[dict-item]
    assert (found.step, "option topic: a value of the type list is not taken" in found.found) == ("options", True)
