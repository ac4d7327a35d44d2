"""Our codec against bytes of encoders that are not ours, for every message and version, both ways."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_sink.protocol.codec import decode, encode
from kafka_sink.protocol.schema import Struct
from tests.fakes.protocol_values import encoded_by, golden, golden_message, message_kinds, message_versions, versions_of

pytestmark = pytest.mark.behaviour(
    "Protocol", "Messages have the bytes that Kafka's Java client and kafka-python write"
)

MAKERS = ("kafka_python.json", "kafka_clients.json")


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("kind", message_kinds(), ids=lambda kind: kind.__name__)
def test_golden_bytes_cover_every_version(kind: type[Struct], maker: str) -> None:
    if not encoded_by(maker, kind):
        assert kind.__name__ not in golden(maker)
        return
    assert [int(version) for version in golden(maker)[kind.__name__]] == list(versions_of(kind))


@pytest.mark.parametrize("variant", ["full", "sparse"])
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize(("kind", "version"), message_versions())
def test_our_bytes_are_theirs_and_theirs_read_as_our_values(
    kind: type[Struct], version: int, maker: str, variant: str
) -> None:
    if not encoded_by(maker, kind):
        return
    theirs = bytes.fromhex(golden(maker)[kind.__name__][str(version)][variant])
    message: Any = golden_message(kind, version, variant)

    assert b"".join(encode(message, version)).hex() == theirs.hex()
    assert decode(kind, theirs, version) == message
