"""Uniform sticky partitioning: turns of the size of a batch, equal chances, and fewer turns for slow brokers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pytest

from kafka_sink.client.metadata.cluster import Cluster
from kafka_sink.common.model import TopicPartition
from kafka_sink.producer.plugins.built_in_partitioner import BuiltInPartitioner, PartitionLoads
from kafka_sink.producer.plugins.partitioner import murmur2, positive_murmur2
from kafka_sink.records.layout import HEADER_BYTES
from kafka_sink.records.vectorized import content_sizes
from tests.fakes.chunks import Row, make_chunk
from tests.fakes.clock import FakeClock
from tests.fakes.producing import TOPIC, append, make_accumulator, make_cluster, queue_of
from tests.support.cases import with_each

if TYPE_CHECKING:
    from _typeshed import SupportsLenAndGetItem

T = TypeVar("T")

BATCH = 1061
ROOM = 1000


def make(seed: int = 1, *, ignore_keys: bool = False) -> BuiltInPartitioner:
    return BuiltInPartitioner(BATCH, ignore_keys=ignore_keys, rng=random.Random(seed))


@with_each("key", [b"", b"a", b"21", b"foobar", b"x" * 67, b"y" * 200])
def test_keys_go_where_the_hash_says(key: bytes) -> None:
    cluster = make_cluster([0] * 7)
    chunk = make_chunk([Row(b"v", key)])
    assert make().partition_rows(TOPIC, chunk, content_sizes(chunk), cluster) == (murmur2(key) & 0x7FFF_FFFF) % 7
    assert positive_murmur2(key) == murmur2(key) & 0x7FFF_FFFF


def test_turn_ends_at_a_new_batch_after_a_batch_was_filled() -> None:
    partitioner, cluster = make(), make_cluster([0] * 1000)
    first = partitioner.sticky_partition(TOPIC, cluster)
    partitioner.needs_new_batch(TOPIC, first, 100, cluster)
    assert partitioner.sticky_partition(TOPIC, cluster) == first
    partitioner.appended(TOPIC, first, ROOM - 100, cluster)
    partitioner.needs_new_batch(TOPIC, first, 100, cluster)
    assert partitioner.sticky_partition(TOPIC, cluster) == first
    partitioner.needs_new_batch(TOPIC, first, 101, cluster)
    second = partitioner.sticky_partition(TOPIC, cluster)
    assert second != first
    # A late call with the partition of the last turn has no effect.
    partitioner.needs_new_batch(TOPIC, first, ROOM, cluster)
    partitioner.appended(TOPIC, first, 5 * ROOM, cluster)
    assert partitioner.sticky_partition(TOPIC, cluster) == second
    partitioner.appended(TOPIC, second, 500, cluster)
    partitioner.needs_new_batch(TOPIC, first, ROOM, cluster)
    assert partitioner.sticky_partition(TOPIC, cluster) == second


def test_a_large_record_does_not_end_a_turn_without_bytes() -> None:
    partitioner, cluster = make(), make_cluster([0] * 1000)
    first = partitioner.sticky_partition(TOPIC, cluster)
    partitioner.needs_new_batch(TOPIC, first, 5 * ROOM, cluster)
    assert partitioner.sticky_partition(TOPIC, cluster) == first


@with_each("batch_size", [0, HEADER_BYTES, HEADER_BYTES + 1])
def test_a_turn_has_at_least_one_byte(batch_size: int) -> None:
    partitioner, cluster = BuiltInPartitioner(batch_size, rng=random.Random(1)), make_cluster([0] * 1000)
    first = partitioner.sticky_partition(TOPIC, cluster)
    partitioner.appended(TOPIC, first, 1, cluster)
    assert partitioner.sticky_partition(TOPIC, cluster) == first
    partitioner.appended(TOPIC, first, 1, cluster)
    assert partitioner.sticky_partition(TOPIC, cluster) != first


def test_without_dice_of_the_caller_it_has_its_own() -> None:
    assert BuiltInPartitioner(BATCH).sticky_partition(TOPIC, make_cluster([None, 0])) == 1


def test_a_turn_that_another_thread_has_begun_is_taken() -> None:
    partitioner, cluster = make(), make_cluster([0] * 1000)
    first = partitioner.sticky_partition(TOPIC, cluster)
    theirs: list[int] = []

    class Interrupted(Cluster):
        def leader_for(self, topic_partition: TopicPartition) -> None:
            partitioner.appended(TOPIC, first, 2 * ROOM, cluster)
            theirs.append(partitioner.sticky_partition(TOPIC, cluster))

    assert partitioner.sticky_partition(TOPIC, Interrupted()) == theirs[0] != first


def test_two_batches_worth_end_a_turn_in_any_case() -> None:
    partitioner, cluster = make(), make_cluster([0] * 1000)
    first = partitioner.sticky_partition(TOPIC, cluster)
    partitioner.appended(TOPIC, first, 2 * ROOM - 1, cluster)
    assert partitioner.sticky_partition(TOPIC, cluster) == first
    partitioner.appended(TOPIC, first, 1, cluster)
    assert partitioner.sticky_partition(TOPIC, cluster) != first


def test_rows_and_records_share_their_turns() -> None:
    partitioner, cluster = make(), make_cluster([0] * 1000)
    current = partitioner.sticky_partition(TOPIC, cluster)
    partitioner.appended(TOPIC, current, 500, cluster)
    chunk = make_chunk([Row(b"x" * 88)] * 40)
    rows = partitioner.partition_rows(TOPIC, chunk, content_sizes(chunk), cluster)
    # A row takes 98 bytes: five rows complete the turn of the record before, ten make a turn.
    assert [len(list(run)) for run in np.split(rows, np.flatnonzero(np.diff(rows)) + 1)] == [5, 10, 10, 10, 5]
    assert rows[0] == current
    assert partitioner.sticky_partition(TOPIC, cluster) == rows[-1]


def test_ignored_keys_stick_like_none() -> None:
    partitioner, cluster = make(ignore_keys=True), make_cluster([0] * 100)
    chunk = make_chunk([Row(b"v", b"%d" % number) for number in range(20)])
    rows = partitioner.partition_rows(TOPIC, chunk, content_sizes(chunk), cluster)
    assert set(rows.tolist()) == {partitioner.sticky_partition(TOPIC, cluster)}


def drawn(partitioner: BuiltInPartitioner, leaders: list[int | None], turns: int = 6000) -> Counter[int]:
    cluster = make_cluster(leaders)
    found: Counter[int] = Counter()
    for _ in range(turns):
        current = partitioner.sticky_partition(TOPIC, cluster)
        found[current] += 1
        partitioner.appended(TOPIC, current, 2 * ROOM, cluster)
    return found


def test_every_partition_with_a_leader_has_the_same_chance() -> None:
    found = drawn(make(), [0, None, 1, 0])
    assert set(found) == {0, 2, 3}
    assert max(found.values()) - min(found.values()) < 300


@pytest.mark.behaviour("Partitioner", "The adaptive partitioner prefers short queues, in proportion")
def test_shorter_queues_are_preferred_in_proportion() -> None:
    partitioner = make()
    drawn(partitioner, [0] * 3, 1)
    partitioner.update_loads(TOPIC, [0, 1, 2], [0, 3, 1], 3)
    found = drawn(partitioner, [0] * 3)
    # 4 : 1 : 3; the longest queue still gets some rows.
    assert [round(found[partition] / 6000 * 8) for partition in range(3)] == [4, 1, 3]
    partitioner.update_loads(TOPIC, [0, 1, 2], [2, 2, 2], 3)
    found = drawn(partitioner, [0] * 3)
    assert max(found.values()) - min(found.values()) < 300
    assert set(drawn(partitioner, [0, None, 0], 100)) == {0, 2}, "equal queues say nothing of leaders"


@pytest.mark.behaviour("Partitioner", "Partitions without a leader are left out")
def test_unavailable_partition_is_left_out_with_equal_queues() -> None:
    partitioner = make()
    partitioner.update_loads(TOPIC, [0, 2], [1, 1], 3)
    assert set(drawn(partitioner, [0] * 3)) == {0, 2}


def test_a_turn_ends_when_its_partition_loses_its_leader() -> None:
    partitioner = make()
    first = partitioner.sticky_partition(TOPIC, make_cluster([0] * 3))
    assert partitioner.sticky_partition(TOPIC, make_cluster([0] * 3)) == first
    without = make_cluster([None if partition == first else 0 for partition in range(3)])
    assert partitioner.sticky_partition(TOPIC, without) != first


class Dice(random.Random):
    """Returns :attr:`number`, and notes the number of sides."""

    number = 0
    sides = 0

    def randrange(self, stop: int) -> int:  # type: ignore[override]
        self.sides = stop
        return self.number

    def choice(self, seq: SupportsLenAndGetItem[T]) -> T:
        self.sides = 0
        return seq[0]


def shares(partitioner: BuiltInPartitioner, dice: Dice, leaders: Sequence[int]) -> list[int]:
    """The partition for every number of the dice; empty if all partitions have the same share."""
    cluster = make_cluster(leaders)

    def draw() -> int:
        partitioner.appended(TOPIC, partitioner.sticky_partition(TOPIC, cluster), 2 * ROOM, cluster)
        return partitioner.sticky_partition(TOPIC, cluster)

    dice.number, dice.sides = 0, 1
    found: list[int] = []
    while len(found) < dice.sides:
        dice.number = len(found)
        found.append(draw())
    return found if dice.sides else []


def test_queue_loads_are_reported_once_each_partition_was_used() -> None:
    dice, clock = Dice(), FakeClock()
    partitioner = BuiltInPartitioner(BATCH, rng=dice)
    accumulator = make_accumulator(clock, batch_size=100)
    loads = PartitionLoads(accumulator.queues, partitioner, availability_timeout_ms=50)
    leaders = [0, 0, 1]
    cluster = make_cluster(leaders)
    partitioner.sticky_partition(TOPIC, cluster)
    for partition in (0, 1):
        queue_of(accumulator, partition)
    for _ in range(3):
        append(accumulator, 0, b"x" * 60)
    loads.report(cluster, 9)
    assert shares(partitioner, dice, leaders) == []
    queue_of(accumulator, 2)
    loads.report(cluster, 19)
    assert shares(partitioner, dice, leaders) == [0, 1, 1, 1, 1, 2, 2, 2, 2]
    # Node 1 has had batches for longer than the timeout, and has accepted none.
    loads.note_node(1, 1000, can_take=False)
    loads.note_node(1, 1050, can_take=False)
    loads.report(cluster, 29)
    assert set(shares(partitioner, dice, leaders)) == {0, 1, 2}
    loads.note_node(1, 1051, can_take=False)
    loads.report(cluster, 39)
    assert set(shares(partitioner, dice, leaders)) == {0, 1}
    loads.note_node(1, 1052, can_take=True)
    loads.report(cluster, 49)
    assert set(shares(partitioner, dice, leaders)) == {0, 1, 2}


def test_queues_are_looked_at_now_and_then_only() -> None:
    dice = Dice()
    partitioner = BuiltInPartitioner(BATCH, rng=dice)
    accumulator = make_accumulator(FakeClock())
    loads = PartitionLoads(accumulator.queues, partitioner, availability_timeout_ms=0)
    cluster = make_cluster([0, 0])
    partitioner.sticky_partition(TOPIC, cluster)
    loads.report(cluster, 100)
    for partition in (0, 1):
        queue_of(accumulator, partition)
    append(accumulator, 0, b"x")
    loads.report(cluster, 109)
    assert shares(partitioner, dice, [0, 0]) == []
    loads.report(cluster, 110)
    assert shares(partitioner, dice, [0, 0]) == [0, 1, 1]


def loads_of(leaders: Sequence[int], dice: Dice, timeout_ms: int) -> tuple[BuiltInPartitioner, PartitionLoads]:
    """Loads of queues among which that of partition 0 has one batch more."""
    partitioner = BuiltInPartitioner(BATCH, rng=dice)
    accumulator = make_accumulator(FakeClock())
    partitioner.sticky_partition(TOPIC, make_cluster(leaders))
    for partition in range(len(leaders)):
        queue_of(accumulator, partition)
    append(accumulator, 0, b"x")
    return partitioner, PartitionLoads(accumulator.queues, partitioner, timeout_ms)


@with_each("timeout_ms", [0, 50])
def test_loads_leave_out_partitions_without_a_leader(timeout_ms: int) -> None:
    dice, leaders = Dice(), [0, 0, 1]
    partitioner, loads = loads_of(leaders, dice, timeout_ms)
    loads.report(make_cluster([0, None, 1]), 0)
    assert shares(partitioner, dice, leaders) == [0, 2, 2]


def test_no_node_is_left_out_without_a_time_out() -> None:
    dice, leaders = Dice(), [0, 0, 1]
    partitioner, loads = loads_of(leaders, dice, 0)
    loads.note_node(1, 1000, can_take=False)
    loads.note_node(1, 9000, can_take=False)
    loads.report(make_cluster(leaders), 9000)
    assert shares(partitioner, dice, leaders) == [0, 1, 1, 2, 2]


def test_loads_of_a_topic_that_is_gone_are_forgotten() -> None:
    dice, leaders = Dice(), [0, 0]
    partitioner, loads = loads_of(leaders, dice, 0)
    loads.report(make_cluster(leaders), 0)
    assert shares(partitioner, dice, leaders) == [0, 1, 1]
    loads.report(Cluster(), 10)
    assert shares(partitioner, dice, leaders) == []
