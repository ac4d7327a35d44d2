"""The columnar Avro encoder against spark-avro: the derived schema, and the bytes of ``to_avro``."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafka_sink.formats.avro.column import derive_schema
from tests.support.encoders import avro_encoder

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "avro.json").read_text())


@pytest.fixture(scope="module")
def rows() -> pa.Array:
    with pa.ipc.open_stream(base64.b64decode(GOLDEN["rows"])) as stream:
        return stream.read_all().column("value").combine_chunks()


def with_decimals_as_bytes(avro: Any) -> Any:
    """*avro* as kafkalite derives it, with decimals as bytes: spark-avro writes decimals as fixed."""
    if isinstance(avro, list):
        return [with_decimals_as_bytes(each) for each in avro]
    if not isinstance(avro, dict):
        return avro
    if avro.get("logicalType") == "decimal":
        return {"type": "bytes", **{name: avro[name] for name in ("logicalType", "precision", "scale")}}
    return {name: with_decimals_as_bytes(each) for name, each in avro.items()}


@pytest.mark.behaviour("Avro", "By spark-avro's schema the payloads are those of its to_avro, byte by byte")
def test_payloads_are_those_of_to_avro(rows: pa.Array) -> None:
    payloads = avro_encoder(json.dumps(GOLDEN["schema"]), rows.type, "value").encode(rows).to_pylist()
    assert [payload.hex() for payload in payloads] == GOLDEN["payloads"]
    assert len(payloads) == 40


@pytest.mark.behaviour("Avro", "The derived schema has the names, namespaces and unions of spark-avro's to_avro")
def test_derived_schema_is_that_of_to_avro_but_for_decimals(rows: pa.Array) -> None:
    derived = json.loads(derive_schema(rows.type, "value"))
    assert derived == with_decimals_as_bytes(GOLDEN["schema"])
    assert derived != GOLDEN["schema"]
