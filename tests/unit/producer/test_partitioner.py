"""Which partition a record goes to."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
from numpy.typing import NDArray

from kafka_sink.client.metadata.cluster import Cluster
from kafka_sink.common.model import TopicPartition
from kafka_sink.producer.plugins.partitioner import DefaultPartitioner, check_choices
from kafka_sink.records.layout import HEADER_BYTES
from kafka_sink.records.murmur2 import murmur2
from kafka_sink.records.reference import record_size
from kafka_sink.records.vectorized import content_sizes
from tests.fakes.chunks import Row, make_chunk
from tests.fakes.producing import make_cluster
from tests.support.cases import with_each

TOPIC = "orders"
BATCH = 1000


def make_partitioner(seed: int = 1, batch_size: int = BATCH) -> DefaultPartitioner:
    return DefaultPartitioner(batch_size, random.Random(seed))


def partition_rows(partitioner: DefaultPartitioner, rows: list[Row], cluster: Cluster) -> NDArray[np.int32]:
    chunk = make_chunk(rows)
    found = partitioner.partition_rows(TOPIC, chunk, content_sizes(chunk), cluster)
    assert found.dtype == np.int32
    assert len(found) == len(rows)
    return found


def choose(partitioner: DefaultPartitioner, topic: str, key: bytes | None, cluster: Cluster) -> int:
    return partitioner.partition(topic, key, key, b"value", b"value", cluster)


def runs(partitions: NDArray[np.int32]) -> list[tuple[int, int]]:
    """(partition, rows) of each stretch of rows that go to the same partition."""
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


def test_rows_go_where_single_records_go() -> None:
    cluster = make_cluster([0] * 7)
    keys = [b"", *(bytes([index % 256]) * (index % 23) for index in range(300))]
    partitioner = make_partitioner()
    expected = [choose(partitioner, TOPIC, key, cluster) for key in keys]
    assert partition_rows(partitioner, [Row(key=key) for key in keys], cluster).tolist() == expected


def test_rows_without_a_key_among_others_stick_together() -> None:
    partitioner, cluster = make_partitioner(), make_cluster([0] * 50)
    keys = [None, b"a", b"b", None, b"c", None]
    found = partition_rows(partitioner, [Row(key=key) for key in keys], cluster)
    assert len({int(found[row]) for row in (0, 3, 5)}) == 1
    for row in (1, 2, 4):
        assert found[row] == choose(partitioner, TOPIC, keys[row], cluster)


def test_slice_without_nulls_of_a_nullable_key_column_is_hashed() -> None:
    partitioner, cluster = make_partitioner(), make_cluster([0] * 5)
    chunk = make_chunk([Row(key=None), Row(key=b"a"), Row(key=b"b")]).slice(1, 2)
    found = partitioner.partition_rows(TOPIC, chunk, content_sizes(chunk), cluster)
    assert found.tolist() == [choose(partitioner, TOPIC, key, cluster) for key in (b"a", b"b")]


# --- without a key ---------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("Partitioner", "Records without a key stick to one partition until its batch is full")
def test_records_without_a_key_stick_to_one_partition() -> None:
    partitioner, cluster = make_partitioner(), make_cluster([0] * 10)
    assert len({choose(partitioner, TOPIC, None, cluster) for _ in range(20)}) == 1


def test_new_batch_moves_records_without_key_elsewhere() -> None:
    partitioner, cluster = make_partitioner(), make_cluster([0] * 3)
    for _ in range(20):
        before = choose(partitioner, TOPIC, None, cluster)
        partitioner.on_new_batch(TOPIC, cluster, before)
        assert choose(partitioner, TOPIC, None, cluster) != before


def test_new_batch_elsewhere_does_not_change_sticky_partition() -> None:
    partitioner, cluster = make_partitioner(), make_cluster([0] * 10)
    current = choose(partitioner, TOPIC, None, cluster)
    partitioner.on_new_batch(TOPIC, cluster, (current + 1) % 10)
    assert choose(partitioner, TOPIC, None, cluster) == current


def test_sticky_partition_is_chosen_after_a_keyed_new_batch() -> None:
    """A batch for a record with a key, before the first one without, neither chooses the partition nor moves it."""
    cluster = make_cluster([None, 0, None, 1, 0, 1, 0, None, 1, 0])
    for seed in range(20):
        partitioner = make_partitioner(seed)
        partitioner.on_new_batch(TOPIC, cluster, 4)
        chosen = [choose(partitioner, TOPIC, None, cluster) for _ in range(3)]
        assert chosen == [choose(make_partitioner(seed), TOPIC, None, cluster)] * 3
        assert cluster.leader_for(TopicPartition(TOPIC, chosen[0])) is not None


def test_the_only_partition_is_kept() -> None:
    partitioner, cluster = make_partitioner(), make_cluster([0])
    assert choose(partitioner, TOPIC, None, cluster) == 0
    partitioner.on_new_batch(TOPIC, cluster, 0)
    assert choose(partitioner, TOPIC, None, cluster) == 0


def test_topics_are_chosen_for_apart() -> None:
    partitioner = make_partitioner()
    one, other = make_cluster([0]), make_cluster([None, None, None, None, 0], "payments")
    assert choose(partitioner, TOPIC, None, one) == 0
    assert choose(partitioner, "payments", None, other) == 4


@pytest.mark.behaviour("Partitioner", "Two threads that leave a partition at once move on together, once")
def test_concurrent_new_batches_move_the_sticky_partition_once() -> None:
    partitioner, cluster = make_partitioner(), make_cluster([0] * 100)
    before = choose(partitioner, TOPIC, None, cluster)
    start = threading.Barrier(8)
    chosen: list[int] = []

    def leave() -> None:
        start.wait(60)
        partitioner.on_new_batch(TOPIC, cluster, before)
        chosen.append(choose(partitioner, TOPIC, None, cluster))

    threads = [threading.Thread(target=leave, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(chosen) == 8
    assert len(set(chosen)) == 1


# --- leaders ---------------------------------------------------------------------------------------------------------


def test_leaderless_partition_is_not_chosen_while_others_lead() -> None:
    cluster = make_cluster([None, 0, None, 1, None])
    for seed in range(20):
        partitioner = make_partitioner(seed)
        partition = choose(partitioner, TOPIC, None, cluster)
        assert partition in (1, 3)
        partitioner.on_new_batch(TOPIC, cluster, partition)
        assert choose(partitioner, TOPIC, None, cluster) == 4 - partition
        assert set(partition_rows(partitioner, [Row(b"x" * 600)] * 9, cluster).tolist()) == {1, 3}


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
    # A turn that overflows its batch leaves a tiny one behind; one that ends early leaves the batch half empty.
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


def test_moving_by_a_single_record_begins_a_new_turn() -> None:
    partitioner, cluster = make_partitioner(), make_cluster([0] * 10)
    first = partition_rows(partitioner, [Row(b"x" * 93)] * 7, cluster)
    partitioner.on_new_batch(TOPIC, cluster, int(first[-1]))
    full = runs(partition_rows(make_partitioner(), [Row(b"x" * 93)] * 100, cluster))[0][1]
    assert runs(partition_rows(partitioner, [Row(b"x" * 93)] * 100, cluster))[0][1] == full


@with_each("batch_size", [0, 1, 61, 100])
def test_a_row_larger_than_a_batch_takes_a_turn_of_its_own(batch_size: int) -> None:
    partitioner = make_partitioner(batch_size=batch_size)
    rows = [Row(b"x" * 500)] * 6
    cluster = make_cluster([0] * 10)
    for _ in range(2):
        assert [count for _, count in runs(partition_rows(partitioner, rows, cluster))] == [1] * 6


def test_consecutive_turns_go_to_different_partitions() -> None:
    found = partition_rows(make_partitioner(), [Row(b"x" * 600)] * 500, make_cluster([0] * 3))
    assert all(left != right for left, right in zip(found[:-1].tolist(), found[1:].tolist(), strict=True))
    assert set(found.tolist()) == {0, 1, 2}


@with_each("chosen", [np.zeros(2, np.int32), np.zeros(4, np.int32), np.zeros(3), [0, 0, 0], None, True])
def test_partitioner_choices_of_wrong_form_are_refused(chosen: object) -> None:
    with pytest.raises(ValueError, match=r"DefaultPartitioner \(partitioner.class\) chose .* for 3 rows of topic"):
        check_choices(make_partitioner(), TOPIC, chosen, 3)
    check_choices(make_partitioner(), TOPIC, np.zeros(3, np.int32), 3)
