"""The partition of a record."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from kafka_sink.client.metadata.cluster import Cluster
from kafka_sink.producer.plugins.built_in_partitioner import BuiltInPartitioner
from kafka_sink.producer.plugins.partitioner import (
    RoundRobinPartitioner,
    check_choice,
    check_choices,
    cut_turns,
    murmur2,
    row_by_row,
)
from kafka_sink.records.layout import HEADER_BYTES
from kafka_sink.records.reference import record_size
from kafka_sink.records.vectorized import content_sizes
from tests.fakes.chunks import Row, make_chunk
from tests.fakes.producing import make_cluster
from tests.support.cases import with_each

if TYPE_CHECKING:
    from _typeshed import SupportsLenAndGetItem

T = TypeVar("T")
TOPIC = "orders"
BATCH = 1000


class InTurn(random.Random):
    """Chooses the next partition each time, so that turns can be distinguished."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._chosen = seed

    def choice(self, seq: SupportsLenAndGetItem[T]) -> T:
        self._chosen += 1
        return seq[self._chosen % len(seq)]


def make_partitioner(seed: int = 1, batch_size: int = BATCH) -> BuiltInPartitioner:
    return BuiltInPartitioner(batch_size, rng=InTurn(seed))


def partition_rows(partitioner: BuiltInPartitioner, rows: list[Row], cluster: Cluster) -> NDArray[np.int32]:
    chunk = make_chunk(rows)
    found = partitioner.partition_rows(TOPIC, chunk, content_sizes(chunk), cluster)
    assert found.dtype == np.int32
    assert len(found) == len(rows)
    return found


def choose(partitioner: BuiltInPartitioner, topic: str, key: bytes | None, cluster: Cluster) -> int:
    chunk = make_chunk([Row(b"value", key)])
    return int(partitioner.partition_rows(topic, chunk, content_sizes(chunk), cluster)[0])


def runs(partitions: NDArray[np.int32]) -> list[tuple[int, int]]:
    """(partition, rows) of each run of rows with the same partition."""
    found: list[tuple[int, int]] = []
    for partition in partitions.tolist():
        if found and found[-1][0] == partition:
            found[-1] = (partition, found[-1][1] + 1)
        else:
            found.append((partition, 1))
    return found


# --- with a key ------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("Partitioner", "A key goes to the partition that Kafka's Java client chooses")
@with_each(
    ("key", "hashed"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"abc", 479470107)],
)
def test_keys_go_where_kafkas_java_client_sends_them(key: bytes, hashed: int) -> None:
    for count in (1, 3, 7, 1000):
        expected = (hashed & 0x7FFFFFFF) % count
        assert choose(make_partitioner(), TOPIC, key, make_cluster([0] * count)) == expected


def test_all_partitions_count_also_those_without_a_leader() -> None:
    cluster = make_cluster([None] * 5)
    key = b"abc"
    assert choose(make_partitioner(), TOPIC, key, cluster) == (murmur2(key) & 0x7FFFFFFF) % 5


def test_rows_without_a_key_among_others_stick_together() -> None:
    partitioner, cluster = make_partitioner(), make_cluster([0] * 50)
    keys = [None, b"a", b"b", None, b"c", None]
    found = partition_rows(partitioner, [Row(key=key) for key in keys], cluster)
    assert {int(found[row]) for row in (0, 3, 5)} == {partitioner.sticky_partition(TOPIC, cluster)}
    assert found[0] != choose(partitioner, TOPIC, b"", cluster), "no key is not the empty one"
    for row in (1, 2, 4):
        assert found[row] == choose(partitioner, TOPIC, keys[row], cluster)


def test_slice_without_nulls_of_a_nullable_key_column_is_hashed() -> None:
    partitioner, cluster = make_partitioner(), make_cluster([0] * 5)
    chunk = make_chunk([Row(key=None), Row(key=b"a"), Row(key=b"b")]).slice(1, 2)
    found = partitioner.partition_rows(TOPIC, chunk, content_sizes(chunk), cluster)
    assert found.tolist() == [choose(partitioner, TOPIC, key, cluster) for key in (b"a", b"b")]


# --- without a key ---------------------------------------------------------------------------------------------------


def test_topics_are_chosen_for_apart() -> None:
    partitioner = make_partitioner()
    one, other = make_cluster([0]), make_cluster([None, None, None, None, 0], "payments")
    assert choose(partitioner, TOPIC, None, one) == 0
    assert choose(partitioner, "payments", None, other) == 4


# --- leaders ---------------------------------------------------------------------------------------------------------


def test_leaderless_partition_is_not_chosen_while_others_lead() -> None:
    cluster = make_cluster([None, 0, None, 1, None])
    for seed in range(20):
        partitioner = make_partitioner(seed)
        assert set(partition_rows(partitioner, [Row(b"x" * 600)] * 30, cluster).tolist()) == {1, 3}


def test_a_partition_that_loses_its_leader_is_left() -> None:
    partitioner = make_partitioner()
    before = choose(partitioner, TOPIC, None, make_cluster([0] * 3))
    without = make_cluster([None if partition == before else 0 for partition in range(3)])
    assert choose(partitioner, TOPIC, None, without) != before
    assert before not in partition_rows(partitioner, [Row(b"x" * 600)] * 9, without)


def test_a_partition_that_is_gone_is_left() -> None:
    partitioner = make_partitioner()
    choose(partitioner, TOPIC, None, make_cluster([None] * 9 + [0]))
    assert choose(partitioner, TOPIC, None, make_cluster([0, 0])) in (0, 1)


def test_without_any_leader_any_partition_will_do() -> None:
    cluster = make_cluster([None] * 4)
    assert {choose(make_partitioner(seed), TOPIC, None, cluster) for seed in range(50)} == {0, 1, 2, 3}


def test_a_topic_that_is_not_known_is_a_defect() -> None:
    with pytest.raises(RuntimeError, match="partitions of topic orders must be known"):
        choose(make_partitioner(), TOPIC, b"key", Cluster())


# --- turns of rows ---------------------------------------------------------------------------------------------------


def batch_bytes(rows: int, value: bytes) -> int:
    return HEADER_BYTES + sum(record_size(offset, 0, None, value) for offset in range(rows))


@with_each("size", [0, 10, 40, 93, 300, 460])
def test_rows_without_a_key_fill_a_batch_and_move_on(size: int) -> None:
    value = b"x" * size
    found = runs(partition_rows(make_partitioner(), [Row(value)] * 2000, make_cluster([0] * 10)))
    # A turn that overflows its batch leaves a tiny batch; one that ends early leaves the batch half empty.
    for _, rows in found[:-1]:
        assert batch_bytes(rows, value) <= BATCH
        assert batch_bytes(rows + 1, value) > BATCH * 0.5
    if size in (93, 300, 460):
        for _, rows in found[:-1]:
            assert batch_bytes(rows + 1, value) > BATCH - 30


def test_sticky_turn_continues_in_the_next_chunk() -> None:
    partitioner, cluster = make_partitioner(), make_cluster([0] * 10)
    found = np.concatenate([partition_rows(partitioner, [Row(b"x" * 93)] * 2, cluster) for _ in range(50)])
    once = partition_rows(make_partitioner(), [Row(b"x" * 93)] * 100, cluster)
    assert found.tolist() == once.tolist()


@with_each("batch_size", [0, 1, 61, 100])
def test_a_row_larger_than_a_batch_takes_a_turn_of_its_own(batch_size: int) -> None:
    partitioner = make_partitioner(batch_size=batch_size)
    rows = [Row(b"x" * 500)] * 6
    cluster = make_cluster([0] * 10)
    for _ in range(2):
        assert [count for _, count in runs(partition_rows(partitioner, rows, cluster))] == [1] * 6


def turns_one_by_one(sizes: list[int], turn_bytes: int, filled: int) -> tuple[list[int], int]:
    lengths = [0]
    for size in sizes:
        if filled + size + 7 > turn_bytes and filled:
            lengths.append(0)
            filled = 0
        lengths[-1] += 1
        filled += size + 7
    return lengths, filled


def test_rows_are_cut_into_turns_as_if_one_by_one() -> None:
    rng = random.Random(3)
    for _ in range(500):
        sizes = [rng.randrange(40) for _ in range(rng.randrange(1, 12))]
        turn_bytes = rng.randrange(1, 120)
        filled = rng.choice([0, rng.randrange(turn_bytes + 20)])
        assert cut_turns(np.array(sizes), turn_bytes, filled) == turns_one_by_one(sizes, turn_bytes, filled)


@with_each("chosen", [np.zeros(2, np.int32), np.zeros(4, np.int32), np.zeros(3), [0, 0, 0], None, True])
def test_partitioner_choices_of_wrong_form_are_refused(chosen: object) -> None:
    with pytest.raises(ValueError, match=r"RoundRobinPartitioner \(partitioner.class\) chose .* for 3 rows of topic"):
        check_choices(RoundRobinPartitioner(), TOPIC, chosen, 3)
    check_choices(RoundRobinPartitioner(), TOPIC, np.zeros(3, np.int32), 3)


@with_each("choice", [-1, 3, True, "1", 1.0, None])
def test_what_is_no_partition_is_refused(choice: object) -> None:
    with pytest.raises(ValueError, match=r"RoundRobinPartitioner \(partitioner.class\) chose"):
        check_choice(RoundRobinPartitioner(), TOPIC, choice, make_cluster([0] * 3))


def test_what_was_chosen_wrongly_is_named() -> None:
    with pytest.raises(ValueError, match=r"chose int32\[2, 3\] for 3 rows"):
        check_choices(RoundRobinPartitioner(), TOPIC, np.zeros((2, 3), np.int32), 3)
    with pytest.raises(ValueError, match=r"chose \[0, 0, 0\] for 3 rows"):
        check_choices(RoundRobinPartitioner(), TOPIC, [0, 0, 0], 3)
    with pytest.raises(ValueError, match="chose partition 0 of topic orders, which has 0 partitions"):
        check_choice(RoundRobinPartitioner(), TOPIC, 0, Cluster())


def test_partitions_of_the_topic_are_accepted() -> None:
    for choice in (0, 2, np.int32(1)):
        check_choice(RoundRobinPartitioner(), TOPIC, choice, make_cluster([0] * 3))


class OfKey(RoundRobinPartitioner):
    """The first byte of the key is the partition."""

    def partition(
        self, topic: str, key: bytes | None, key_bytes: object, value: object, value_bytes: object, cluster: Cluster
    ) -> int:
        assert (key, value) == (key_bytes, value_bytes)
        return 0 if key is None else key[0]


def test_rows_are_asked_for_one_by_one() -> None:
    cluster = make_cluster([0] * 3)
    found = row_by_row(OfKey(), TOPIC, make_chunk([Row(b"a", b"\x02"), Row(b"b", None), Row(b"c", b"\x01")]), cluster)
    assert found.tolist() == [2, 0, 1]
    assert row_by_row(OfKey(), TOPIC, make_chunk([Row(b"a"), Row(b"b")]), cluster).tolist() == [0, 0]


def test_round_robin_resumes_and_skips_leaderless_partitions() -> None:
    partitioner, cluster = RoundRobinPartitioner(), make_cluster([0, None, 0])
    chunk = make_chunk([Row(b"v")] * 3)
    assert partitioner.partition_rows(TOPIC, chunk, content_sizes(chunk), cluster).tolist() == [0, 2, 0]
    assert partitioner.partition(TOPIC, None, None, b"v", b"v", cluster) == 2
    assert partitioner.partition(TOPIC, None, None, b"v", b"v", cluster) == 0
    four = make_cluster([0, None, 0, 0])
    other = RoundRobinPartitioner()
    assert [
        other.partition_rows(TOPIC, chunk, content_sizes(chunk), four).tolist() for chunk in [chunk.slice(0, 2)] * 2
    ] == [
        [0, 2],
        [3, 0],
    ]
    assert [other.partition(TOPIC, None, None, b"v", b"v", four) for _ in range(3)] == [2, 3, 0]
    without = make_cluster([None] * 2)
    assert partitioner.partition(TOPIC, None, None, b"v", b"v", without) in (0, 1)
