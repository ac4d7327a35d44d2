from __future__ import annotations

import uuid

import pytest

from kafka_sink.protocol.messages.metadata import LeaderIdAndEpoch
from kafka_sink.protocol.messages.produce import PartitionProduceResponse
from kafka_sink.protocol.schema import (
    BOOL,
    BYTES,
    INT32,
    RECORDS,
    STRING,
    UUID,
    Array,
    Struct,
    VersionRange,
    field,
)
from tests.support.cases import with_each


@with_each(
    ("text", "inside", "outside"),
    [("3+", (3, 4, 32767), (2, -1)), ("0-2", (0, 1, 2), (3, -1)), ("5", (5,), (4, 6)), ("none", (), (0, 1, -1))],
)
def test_version_ranges(text: str, inside: tuple[int, ...], outside: tuple[int, ...]) -> None:
    versions = VersionRange.parse(text)
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)


def test_defaults_are_kafkas() -> None:
    class Inner(Struct):
        number: int = field(INT32, "0+", default=-1)

    class Outer(Struct):
        flag: bool = field(BOOL, "0+")
        text: str | None = field(STRING, "0+", nullable="0+")
        null_text: str | None = field(STRING, "0+", nullable="0+", default=None)
        raw: bytes = field(BYTES, "0+")
        batches: bytes | None = field(RECORDS, "0+", nullable="0+")
        id: uuid.UUID = field(UUID, "0+")
        numbers: list[int] = field(Array(INT32), "0+")
        inner: Inner = field(Inner, "0+")

    made = Outer()
    assert made == Outer(False, "", None, b"", None, uuid.UUID(int=0), [], Inner(-1))
    # Two messages share no mutable value.
    assert made.numbers is not Outer().numbers
    assert made.inner is not Outer().inner


def test_messages_know_their_versions_inner_structs_have_none() -> None:
    class Whole(Struct, versions="1-4", flexible="2+"):
        number: int = field(INT32, "0+")

    assert Whole.SCHEMA.versions == VersionRange(1, 4)
    assert 2 in Whole.SCHEMA.flexible
    assert 1 not in Whole.SCHEMA.flexible
    assert PartitionProduceResponse.SCHEMA.versions is None


def test_structs_have_slots_equality_and_a_telling_repr() -> None:
    leader = LeaderIdAndEpoch(leader_id=1)
    assert leader == LeaderIdAndEpoch(1, -1)
    assert repr(leader) == "LeaderIdAndEpoch(leader_id=1, leader_epoch=-1)"
    with pytest.raises(AttributeError):
        leader.leader = 2  # type: ignore[attr-defined]
