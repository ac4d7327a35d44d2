"""For any response of a broker, a client ends with an error of its own, and uses bounded memory."""

from __future__ import annotations

import contextlib
import gc
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from kafka_sink.common.errors import ProtocolError
from kafka_sink.protocol import codec
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import decode_response, encode_response
from kafka_sink.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafka_sink.protocol.registry import APIS, api
from kafka_sink.protocol.schema import Array, Primitive, Struct, StructField
from tests.hostile import answers, servers
from tests.support.amounts import LONG
from tests.support.cases import with_each

pytestmark = pytest.mark.behaviour("NetworkClient", "Whatever a broker answers ends in an error of the client, in time")

PAGE: Final = " ".join((Path(__file__).parents[2] / "SECURITY.md").read_text().split())
MANY: Final = 3_000


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    with servers.OPEN:
        yield


def smallest(kind: type[Struct], version: int) -> Struct:
    """Return the shortest message of *kind*: nulls, empty strings and empty arrays."""
    made = kind()
    for field in kind.SCHEMA.fields:
        if version in field.nullable:
            setattr(made, field.name, None)
        elif isinstance(field.type, Primitive) and field.type.name == "string":
            setattr(made, field.name, "")
    return made


def arrays() -> Iterator[tuple[ApiKey, StructField]]:
    for key in APIS:
        schema = api(key).response.SCHEMA
        assert schema.versions is not None
        for field in schema.fields:
            if isinstance(field.type, Array) and schema.versions.max in field.versions and field.tag is None:
                yield key, field


def answer_of(key: ApiKey, field: StructField, count: int) -> tuple[int, bytes]:
    """Return the version, and a response with *count* of the shortest elements in *field*."""
    assert isinstance(field.type, Array)
    kind, element = api(key).response, field.type.element
    assert kind.SCHEMA.versions is not None
    version = kind.SCHEMA.versions.max
    item: Any = smallest(element, version) if not isinstance(element, Primitive) else "" if not element.format else 0
    body = smallest(kind, version)
    setattr(body, field.name, [item] * count)
    return version, b"".join(map(bytes, encode_response(key, version, 1, body)))


def taken(key: ApiKey, version: int, data: bytes) -> int:
    decode_response(key, version, data)
    gc.collect()
    tracemalloc.start()
    try:
        kept = decode_response(key, version, data)
        return tracemalloc.get_traced_memory()[1] if kept else 0
    finally:
        tracemalloc.stop()


def cases() -> Iterator[tuple[str, tuple[ApiKey, StructField]]]:
    for key, field in arrays():
        with contextlib.suppress(ValueError):
            answer_of(key, field, 1)
            yield f"{key.name} {field.name}", (key, field)


CASES: Final = dict(cases())


@with_each("name", CASES)
def test_an_answer_takes_no_more_than_is_estimated(name: str) -> None:
    key, field = CASES[name]
    version, data = answer_of(key, field, MANY)
    size = taken(key, version, data)
    assert size <= codec.ANSWER_TIMES * len(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "ANSWER_TIMES", 1 << 40)
        patch.setattr(codec, "ANSWER_BYTES", size)
        with pytest.raises(ProtocolError, match="it names so much that it would take more than"):
            decode_response(key, version, data)


@with_each("key", answers.ASKED)
def test_a_lie_is_an_error_of_the_client_in_time(key: ApiKey, caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(f"lies about {key.name}")
    for lie in answers.LIES if LONG else rng.sample(list(answers.LIES), 1):
        said = answers.asked(key, lie, rng)
        assert len(said) < 5_000 and (said == "answered" or lie != "one byte at a time"), (lie, said)
    caplog.clear()


def test_most_arrays_of_answers_are_tried() -> None:
    assert len(CASES) > 40


def test_an_answer_has_the_memory_that_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "1 GiB for the objects that the client decodes from it" in PAGE and codec.ANSWER_BYTES == 1 << 30
    topics = [MetadataResponseTopic(name="t", partitions=[partition(at) for at in range(1_000)])]
    body = MetadataResponse(topics=topics, brokers=[])
    data = b"".join(map(bytes, encode_response(ApiKey.METADATA, 12, 1, body)))
    monkeypatch.setattr(codec, "ANSWER_TIMES", 1 << 40)
    # A million partitions, each with three replicas.
    monkeypatch.setattr(codec, "ANSWER_BYTES", codec.ANSWER_BYTES // 1_000)
    decode_response(ApiKey.METADATA, 12, data)


def partition(number: int) -> MetadataResponsePartition:
    return MetadataResponsePartition(partition_index=number, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3])
