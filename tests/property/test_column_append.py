"""Columns produce exactly the batches that single records would, whatever happens in between."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_sink.client.metadata.cluster import Cluster
from kafka_sink.common.model import NO_TIMESTAMP
from kafka_sink.producer.batching import buffer_pool, column_append
from kafka_sink.producer.batching.producer_batch import Compression, ProducerBatch
from kafka_sink.producer.futures import Delivery
from kafka_sink.records.compression import CompressionType
from kafka_sink.records.reader import Record
from kafka_sink.records.vectorized import encode_records
from tests.fakes.batches import on_the_wire, read_wire
from tests.fakes.chunks import Row
from tests.fakes.clock import FakeClock
from tests.fakes.producing import NODES, MadeAccumulator, append, append_columns, make_accumulator, make_cluster
from tests.support.amounts import examples

_MEMORY = 10**8

_small = st.binary(max_size=6)
_bytes = st.one_of(st.none(), _small, st.integers(0, 400).map(lambda size: b"x" * size))
_headers = st.lists(st.tuples(st.text(max_size=3), st.one_of(st.none(), _small)), max_size=2).map(tuple)
_timestamps = st.one_of(st.integers(999_000, 1_001_000), st.integers(0, 2**45))


class Chunk(NamedTuple):
    rows: list[Row]
    has_timestamps: bool
    #: The sender drains all batches after the rows were planned and encoded, before they are appended.
    is_drained_within: bool


@st.composite
def chunks(draw: Any) -> Chunk:
    partitions = st.integers(0, draw(st.sampled_from([0, 1, 5, 300])))
    keys = _bytes if draw(st.booleans()) else st.none()
    headers = _headers if draw(st.booleans()) else st.just(())
    rows = st.builds(Row, _bytes, keys, headers, _timestamps, partitions)
    return Chunk(draw(st.lists(rows, min_size=1, max_size=40)), draw(st.booleans()), draw(st.booleans()))


#: The events of a producer: a chunk, a few single records, a drain, or time that passes.
events = st.lists(
    st.one_of(
        chunks(),
        chunks(),
        st.builds(Row, _bytes, _bytes, _headers, _timestamps, st.integers(0, 5)),
        st.just("drain"),
        st.integers(1, 100),
    ),
    min_size=1,
    max_size=6,
)


class Producer:
    """An accumulator and all batches that were drained from it."""

    def __init__(self, clock: FakeClock, batch_size: int, codec: CompressionType) -> None:
        self.clock = clock
        self.accumulator: MadeAccumulator = make_accumulator(
            clock, batch_size=batch_size, memory=_MEMORY, compression=Compression(codec, None)
        )
        self.cluster: Cluster = make_cluster([0] * 301)
        self.batches: dict[int, list[ProducerBatch]] = defaultdict(list)
        self.told = 0

    def delivered(self, delivery: Delivery) -> None:
        self.told += delivery.count

    def drain(self) -> None:
        while drained := self.accumulator.sender_side.drain(self.cluster, NODES[:1], 10**9, self.clock.now_ms)[0]:
            for batch in drained:
                self.batches[batch.topic_partition.partition].append(batch)

    def one_by_one(self, chunk: Chunk) -> None:
        for row in chunk.rows:
            timestamp = row.timestamp if chunk.has_timestamps else self.clock.wall_ms()
            self.single(row._replace(timestamp=timestamp))

    def single(self, row: Row) -> None:
        append(
            self.accumulator,
            row.partition,
            row.value,
            key=row.key,
            headers=row.headers,
            timestamp=row.timestamp,
            callback=self.delivered,
        )

    def columns(self, chunk: Chunk) -> None:
        with _after_encoding(self.drain if chunk.is_drained_within else None):
            append_columns(self.accumulator, chunk.rows, has_timestamps=chunk.has_timestamps, callback=self.delivered)

    @property
    def wires(self) -> dict[int, list[bytes]]:
        return {partition: [on_the_wire(batch.wire) for batch in found] for partition, found in self.batches.items()}

    def records(self) -> dict[int, list[Record]]:
        return {
            partition: [record for batch in found for record in read_wire(batch.wire)[1]]
            for partition, found in self.batches.items()
        }

    def finish(self) -> None:
        for found in self.batches.values():
            for batch in found:
                batch.done(0, NO_TIMESTAMP, None)
                self.accumulator.incomplete.deallocate(batch)


@contextmanager
def _after_encoding(action: Callable[[], None] | None) -> Iterator[None]:
    """Run *action* once, when the rows have been planned and encoded."""
    left = [] if action is None else [action]
    encode = encode_records

    def encode_then_act(*arguments: Any) -> Any:
        encoded = encode(*arguments)
        while left:
            left.pop()()
        return encoded

    with mock.patch.object(column_append, "encode_records", encode_then_act):
        yield


@settings(max_examples=examples(250), deadline=None)
@given(
    events,
    st.sampled_from([1, 66, 70, 100, 300, 1000, 16384]),
    st.sampled_from([CompressionType.NONE, CompressionType.NONE, CompressionType.LZ4]),
    st.sampled_from([16384, 64]),
)
def test_columns_make_the_batches_that_single_records_make(
    happenings: list[Any], batch_size: int, codec: CompressionType, least_capacity: int
) -> None:
    with mock.patch.object(buffer_pool, "LEAST_CAPACITY_BYTES", least_capacity):
        compare(happenings, batch_size, codec)


def compare(happenings: list[Any], batch_size: int, codec: CompressionType) -> None:
    clock = FakeClock()
    columns, singles = Producer(clock, batch_size, codec), Producer(clock, batch_size, codec)
    expected: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for event in happenings:
        if isinstance(event, Chunk):
            columns.columns(event)
            if event.is_drained_within:
                singles.drain()
            singles.one_by_one(event)
            for row in event.rows:
                timestamp = row.timestamp if event.has_timestamps else clock.wall_ms()
                expected[row.partition].append((timestamp, row.key, row.value, row.headers))
        elif isinstance(event, Row):
            columns.single(event)
            singles.single(event)
            expected[event.partition].append((event.timestamp, event.key, event.value, event.headers))
        elif event == "drain":
            columns.drain()
            singles.drain()
        else:
            clock.advance(event)
    columns.drain()
    singles.drain()
    assert columns.wires == singles.wires
    found = columns.records()
    assert {p: [(r.timestamp, r.key, r.value, r.headers) for r in records] for p, records in found.items()} == expected
    for batches in columns.batches.values():
        assert all(batch.size_bytes <= batch_size or batch.record_count == 1 for batch in batches)
    for producer in (columns, singles):
        producer.finish()
        assert producer.told == sum(map(len, expected.values()))
        assert producer.accumulator.pool.available_memory == _MEMORY
        assert not producer.accumulator.has_incomplete
