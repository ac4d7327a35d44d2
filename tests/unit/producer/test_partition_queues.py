"""The order of the batches of a partition, and the lookup of queues."""

from __future__ import annotations

import pytest

from kafka_sink.producer.batching.partition_queues import PartitionQueue, PartitionQueues
from kafka_sink.producer.batching.producer_batch import ProducerBatch
from tests.fakes.batches import make_batch
from tests.fakes.producing import TOPIC, tp
from tests.support.cases import with_each


def aged(created_ms: int, attempts: int) -> ProducerBatch:
    batch = make_batch(tp=tp(0), created_ms=created_ms)
    batch.attempts = attempts
    return batch


def numbered(sequence: int | None) -> ProducerBatch:
    batch = make_batch(tp=tp(0))
    if sequence is not None:
        batch.set_producer_state(9, 0, sequence)
    return batch


def place_of(returned: ProducerBatch, others: list[ProducerBatch]) -> int:
    """The position of *returned* after it is put back into a queue of *others*, which keep their order."""
    queue = PartitionQueue(tp(0))
    queue.batches.extend(others)
    queue.put_back(returned)
    place = queue.batches.index(returned)
    assert list(queue.batches) == [*others[:place], returned, *others[place:]]
    return place


@with_each(
    ("others", "place"),
    [
        ([], 0),
        ([(10, 1), (10, 1)], 2),
        ([(10, 1), (10, 0)], 1),
        ([(10, 0), (10, 0)], 0),
        ([(9, 0), (10, 0)], 1),
        ([(9, 1), (9, 0), (11, 1)], 2),
        ([(11, 1), (12, 0)], 0),
    ],
)
def test_batches_without_sequences_stand_by_age_sent_ones_first(others: list[tuple[int, int]], place: int) -> None:
    """*others* lists (created, attempts) of each batch."""
    assert place_of(aged(10, 1), [aged(*other) for other in others]) == place


@with_each(
    ("sequence", "others", "place"),
    [
        (5, [4, 6, None], 1),
        (5, [None, None], 0),
        (5, [3, 4], 2),
        (5, [2**31 - 1, 6], 1),
        (2**31 - 1, [2**31 - 5, 0, None], 1),
    ],
)
def test_batches_with_sequences_stand_in_their_order(sequence: int, others: list[int | None], place: int) -> None:
    assert place_of(numbered(sequence), [numbered(other) for other in others]) == place


@pytest.mark.parametrize("number", range(2))
def test_a_partition_has_one_queue(number: int) -> None:
    queues = PartitionQueues()
    assert queues.find(tp(number)) is None
    queue = queues.of(tp(number))
    assert queues.of(tp(number)) is queues.find(tp(number)) is queues.by_topic[TOPIC][number] is queue
    queue.batches.append(make_batch(tp=tp(number)))
    other = queues.of(tp(7))
    assert queues.all() == (queue, other)
    assert queues.lengths(TOPIC) == {number: 1, 7: 0}
    assert queues.lengths("payments") == {}
