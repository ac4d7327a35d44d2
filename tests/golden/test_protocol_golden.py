"""This project's codec against the bytes of other encoders, for every message and version, in both directions."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_sink.protocol.codec import decode, encode
from tests.fakes.protocol_values import encoded_by, golden, golden_message, message_kinds, message_versions, versions_of
from tests.support.cases import with_each

pytestmark = pytest.mark.behaviour(
    "Protocol", "Messages have the bytes that Kafka's Java client and kafka-python write"
)

MAKERS = ("kafka_python.json", "kafka_clients.json")


@pytest.mark.parametrize("maker", MAKERS)
def test_golden_bytes_cover_every_version(maker: str) -> None:
    kinds = [kind for kind in message_kinds() if encoded_by(maker, kind)]
    covered = {kind: [int(version) for version in versions] for kind, versions in golden(maker).items()}
    assert covered == {kind.__name__: list(versions_of(kind)) for kind in kinds}


@with_each("variant", ["full", "sparse"])
@with_each("maker", MAKERS)
def test_our_bytes_are_theirs_and_theirs_read_as_our_values(maker: str, variant: str) -> None:
    for kind, version in message_versions():
        if not encoded_by(maker, kind):
            continue
        theirs = bytes.fromhex(golden(maker)[kind.__name__][str(version)][variant])
        message: Any = golden_message(kind, version, variant)

        assert b"".join(encode(message, version)).hex() == theirs.hex(), (kind, version)
        assert decode(kind, theirs, version) == message, (kind, version)
