"""Properties of the codec over every message and version: round trips, and the handling of damaged bytes."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_sink.common.errors import ProtocolError, UnsupportedVersionError
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.codec import decode, encode
from kafka_sink.protocol.header import decode_request_body, decode_request_header, decode_response
from kafka_sink.protocol.registry import APIS
from kafka_sink.protocol.schema import Struct
from tests.fakes.protocol_values import (
    golden_message,
    golden_seeds,
    message_kinds,
    message_versions,
    messages,
    versions_of,
)
from tests.support import amounts
from tests.support.cases import with_each

SEEDS = list(golden_seeds())
#: The number of bytes between two places that are damaged or cut; versions alternate over the places.
APART = amounts.DAMAGE_APART
quick = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))


def test_what_is_written_is_read_back() -> None:
    for kind, version in message_versions():
        round_trips(kind, version)


def round_trips(kind: type[Struct], version: int) -> None:
    @settings(quick, max_examples=amounts.MESSAGE_EXAMPLES)
    @given(messages(kind, version))
    def round_trip(message: Any) -> None:
        written = b"".join(encode(message, version))
        read = decode(kind, written, version)
        assert read == message, (kind, version)
        assert b"".join(encode(read, version)) == written, (kind, version)

    round_trip()


@with_each("kind", message_kinds())
def test_a_value_is_carried_or_refused_or_ignorable(kind: type[Struct]) -> None:
    """No version drops a value silently, except where Kafka marks the field as ignorable."""
    for field in kind.SCHEMA.fields:
        at = min(version for version in versions_of(kind) if version in field.versions)
        value = getattr(golden_message(kind, at, "full"), field.name)
        for version in versions_of(kind):
            if version in field.versions:
                continue
            message = kind(**{field.name: value})
            if field.ignorable:
                assert b"".join(encode(message, version)) == b"".join(encode(kind(), version))
            else:
                with pytest.raises(UnsupportedVersionError, match=field.name):
                    encode(message, version)


def test_every_truncation_is_a_protocol_error() -> None:
    for kind, version, data in SEEDS:
        for end in range(version % APART, len(data), APART):
            try:
                decode(kind, memoryview(data)[:end], version)
            except ProtocolError:
                continue
            pytest.fail(f"{kind.__name__} {version} was read from {end} of {len(data)} bytes")


@with_each("damage", ["ff", "ffff", "fffe", "8000", "7fffffff", "80000000", "ffffffff", "ffffffff0f", "808080808080"])
def test_damaged_bytes_are_read_or_refused(damage: str) -> None:
    """An extreme number at any position raises nothing but ProtocolError."""
    patch = bytes.fromhex(damage)
    for kind, version, data in SEEDS:
        for at in range(version % APART, len(data), APART):
            read_or_refuse(kind, version, data[:at] + patch + data[at + len(patch) :])


@settings(quick, max_examples=amounts.examples(1600))
@given(st.sampled_from(message_versions()), st.binary(max_size=80))
def test_random_bytes_are_read_or_refused(message_version: tuple[type[Struct], int], data: bytes) -> None:
    read_or_refuse(*message_version, data)


@settings(quick, max_examples=amounts.examples(1600))
@given(st.sampled_from(SEEDS), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_are_read_or_refused(
    seed: tuple[type[Struct], int, bytes], changes: list[tuple[int, int]]
) -> None:
    kind, version, data = seed
    changed = bytearray(data)
    for at, value in changes:
        if changed:
            changed[at % len(changed)] = value
    read_or_refuse(kind, version, changed)


@settings(quick, max_examples=amounts.examples(1200))
@given(st.sampled_from(list(APIS)), st.integers(-1, 20), st.binary(max_size=60))
def test_random_frames_are_read_or_refused(key: ApiKey, version: int, rest: bytes) -> None:
    frame = int(key).to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + rest
    with contextlib.suppress(ProtocolError, UnsupportedVersionError):
        header, offset = decode_request_header(frame)
        decode_request_body(header, frame, offset)
    with contextlib.suppress(ProtocolError, UnsupportedVersionError):
        decode_response(key, version, rest)


def read_or_refuse(kind: type[Struct], version: int, data: bytes | bytearray) -> None:
    try:
        read = decode(kind, data, version)
    except ProtocolError:
        return
    # An accepted message can be encoded and decoded again.
    again = decode(kind, b"".join(encode(read, version)), version)
    # NaN is not equal to itself, but its repr is the same.
    assert again == read or repr(again) == repr(read)
