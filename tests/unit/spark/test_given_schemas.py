"""Schemas in options: the text of a schema, the path of a file, and the text that is registered."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BinaryType, CharType, DataType, LongType, StructType, VarcharType

from kafka_sink.common.errors import ConfigError
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.protobuf.descriptors import descriptors
from kafka_sink.formats.protobuf.parsing import file_descriptor
from kafka_sink.registry.config import registry_configs
from kafka_sink.spark.driver import column_formats
from kafka_sink.spark.driver.before_write import of_rows
from kafka_sink.spark.driver.column_formats import arrow_type, given_schema, registered_schema, registration_of
from kafka_sink.spark.options import WantedFormat

ORDERS = 'syntax = "proto3"; message Key {} message Order { Key key = 1; }'


def protobuf(given: str | Path, message: str | None = None) -> WantedFormat:
    return WantedFormat("value", "protobuf", str(given), message)


def test_text_of_protobuf_is_registered_as_it_is() -> None:
    assert given_schema(protobuf(ORDERS)).text == registered_schema(protobuf(ORDERS, "Order")).text == ORDERS


def test_file_of_protobuf_is_read_on_the_driver(tmp_path: Path) -> None:
    path = tmp_path / "orders.proto"
    path.write_text(ORDERS)
    assert given_schema(protobuf(path)).text == given_schema(protobuf(f"file:{path}")).text == ORDERS


def test_file_with_the_message_is_registered_of_a_descriptor_set(tmp_path: Path) -> None:
    path = tmp_path / "orders.desc"
    path.write_bytes(descriptors(ORDERS).SerializeToString())
    registered = registered_schema(protobuf(path, "Order"))
    assert registered.text == file_descriptor(ORDERS)


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"option value.schema: the file .*gone.proto cannot be read on the driver"):
        given_schema(protobuf(tmp_path / "gone.proto"))


def nested(levels: int) -> DataType:
    kind: DataType = LongType()
    for _ in range(levels - 1):
        kind = StructType().add("a", kind)
    return kind


def test_types_that_arrow_cannot_read_are_refused() -> None:
    deepest = pa.record_batch([pa.nulls(1, arrow_type(nested(64), "value"))], names=["value"])
    stream = BytesIO()
    with pa.ipc.new_stream(stream, deepest.schema) as writer:
        writer.write_batch(deepest)
    stream.seek(0)
    assert pa.ipc.open_stream(stream).read_all().num_rows == 1
    for levels in (65, 2000):
        with pytest.raises(FormatError, match=r"column 'value\.a.*…' is nested more than 64 levels deep"):
            arrow_type(nested(levels), "value")


def test_text_of_a_fixed_length_is_text_for_functions_on_rows() -> None:
    """Spark does not allow a function to return char or varchar."""
    headers = ArrayType(StructType().add("key", VarcharType(9)).add("value", BinaryType()))
    found = [of_rows(kind).simpleString() for kind in (CharType(5), headers, LongType())]
    assert found == ["string", "array<struct<key:string,value:binary>>", "bigint"]


REGISTRY = {
    "schema.registry.url": "http://127.0.0.1:9",
    "basic.auth.credentials.source": "USER_INFO",
    "basic.auth.user.info": "me:hidden-from-all",
}


def test_registrations_of_the_latest_topics_are_kept() -> None:
    config, tls = registry_configs(REGISTRY)
    first = registration_of(config, tls, "t")
    assert registration_of(*registry_configs(REGISTRY), "t") is first
    others = [registration_of(config, tls, f"t-{number}") for number in range(49)]
    assert registration_of(config, tls, "t") is first
    assert registration_of(config, tls, "t-0") is others[0]
    registration_of(config, tls, "one more")
    assert registration_of(config, tls, "t-0") is others[0]
    assert registration_of(config, tls, "t-1") is not others[1], "nobody had asked for it since"
    assert "hidden-from-all" not in repr(vars(column_formats))


@pytest.mark.parametrize("form", ["avro", "json", "protobuf"])
def test_a_byte_order_mark_before_a_schema_is_left_out(form: str) -> None:
    text = 'syntax = "proto3"; message R { int64 id = 1; }' if form == "protobuf" else '{"type": "object"}'
    assert given_schema(WantedFormat("value", form, f"\ufeff{text}", None)).text == text
