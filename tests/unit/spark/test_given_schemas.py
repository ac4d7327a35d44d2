"""Schemas that options give: what is a schema itself, what is a file, and what a registry gets."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from kafka_sink.common.errors import ConfigError
from kafka_sink.formats.protobuf.descriptors import descriptors
from kafka_sink.spark.driver.column_formats import registered_schema, schema_text
from kafka_sink.spark.options import WantedFormat

ORDERS = 'syntax = "proto3"; message Key {} message Order { Key key = 1; }'


def protobuf(given: str | Path, message: str | None = None) -> WantedFormat:
    return WantedFormat("value", "protobuf", str(given), message)


def test_text_of_protobuf_is_registered_as_it_is() -> None:
    assert schema_text(protobuf(ORDERS)) == registered_schema(protobuf(ORDERS, "Order")) == ORDERS


def test_file_of_protobuf_is_read_on_the_driver(tmp_path: Path) -> None:
    path = tmp_path / "orders.proto"
    path.write_text(ORDERS)
    assert schema_text(protobuf(path)) == schema_text(protobuf(f"file:{path}")) == ORDERS


def test_file_with_the_message_is_registered_of_a_descriptor_set(tmp_path: Path) -> None:
    path = tmp_path / "orders.desc"
    path.write_bytes(descriptors(ORDERS).SerializeToString())
    registered = registered_schema(protobuf(path, "Order"))
    assert base64.b64decode(registered) == descriptors(ORDERS).file[0].SerializeToString()


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"option value.schema: the file .*gone.proto cannot be read on the driver"):
        schema_text(protobuf(tmp_path / "gone.proto"))
