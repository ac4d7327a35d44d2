"""The rows that a cell writes, and the verdict on the records that confluent-kafka reads afterwards."""

from __future__ import annotations

import collections
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

_POOL_BYTES = 4_000_000
_BLOCK_BYTES = 512
#: Values have from 0 bytes to twice the mean, so that frames and TLS records end anywhere.
_LARGEST_VALUE = 2_000
_MEAN_VALUE = _LARGEST_VALUE // 2
_IDLE_LIMIT_S = 60.0


@dataclass(frozen=True)
class Payload:
    """Numbered rows: the key is the number as text, the value has bytes that codecs compress to about half."""

    values: Sequence[bytes]
    table: pa.Table
    #: The rows in their order, in :data:`FILES` files with equal numbers of rows.
    files: Sequence[Path]

    @property
    def rows(self) -> int:
        return len(self.values)

    @property
    def megabytes(self) -> float:
        return float(self.table.nbytes) / 1e6


FILES = 4


def make_payload(directory: Path, megabytes: int) -> Payload:
    """Return rows with the same bytes in each run."""
    random = np.random.default_rng(20)
    rows = megabytes * 1_000_000 // _MEAN_VALUE
    blocks = random.integers(0, 256, (_POOL_BYTES // _BLOCK_BYTES, _BLOCK_BYTES), np.uint8)
    blocks[::2] = 0
    pool = blocks.tobytes()
    lengths = random.integers(0, _LARGEST_VALUE + 1, rows).tolist()
    starts = random.integers(0, len(pool) - _LARGEST_VALUE, rows).tolist()
    values = [pool[start : start + length] for start, length in zip(starts, lengths, strict=True)]
    keys = [str(number) for number in range(rows)]
    table = pa.table({"key": pa.array(keys, pa.string()), "value": pa.array(values, pa.binary())})
    files = []
    for number in range(FILES):
        first, last = (rows * end // FILES for end in (number, number + 1))
        files.append(directory / f"rows-{number}.parquet")
        pq.write_table(table.slice(first, last - first), files[-1], compression="none")
    return Payload(values, table, files)


@dataclass(frozen=True)
class Verdict:
    """The numbers of wrong records in a topic; *out_of_order* counts records of a partition after a larger number."""

    missing: int
    twice: int
    changed: int
    out_of_order: int


#: Every row is stored once and unchanged, and in every partition in its order.
WHOLE = Verdict(missing=0, twice=0, changed=0, out_of_order=0)


def judge(payload: Payload, properties: Mapping[str, str], topic: str) -> Verdict:
    """Compare every key and value of *topic*, read with librdkafka's *properties*, with those of *payload*."""
    return verdict_on(payload, _read(properties, topic).values())


def verdict_on(payload: Payload, partitions: Iterable[Sequence[tuple[int, bytes | None]]]) -> Verdict:
    """Compare the numbers and values that a client has read from *partitions*, in the order of their offsets."""
    read = list(partitions)
    numbers = [number for partition in read for number, _ in partition]
    found = {number: value for partition in read for number, value in partition}
    falls = 0
    for partition in read:
        order = np.fromiter((number for number, _ in partition), np.int64, len(partition))
        falls += int(np.count_nonzero(np.diff(order) < 0))
    changed = sum(payload.values[number] != value for number, value in found.items())
    return Verdict(payload.rows - len(found), len(numbers) - len(found), changed, falls)


def _read(properties: Mapping[str, str], topic: str) -> dict[int, list[tuple[int, bytes | None]]]:
    """Return partition → numbers and values in the order of their offsets."""
    found: dict[int, list[tuple[int, bytes | None]]] = collections.defaultdict(list)
    for message in read_committed(properties, topic):
        partition, key = message.partition(), message.key()
        assert partition is not None and key is not None
        found[partition].append((int(key), message.value()))
    return found


def read_committed(properties: Mapping[str, str], topic: str) -> Iterator[Message]:
    """Return the committed records of *topic* up to its end, as librdkafka reads them with *properties*."""
    consumer = Consumer(
        {
            **properties,
            "group.id": "matrix",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.message.max.bytes": 4 * 1024 * 1024,
            "queued.max.messages.kbytes": 128 * 1024,
            "check.crcs": True,
        }
    )
    try:
        partitions = list(consumer.list_topics(topic, timeout=20).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        unfinished = set(partitions)
        deadline = time.monotonic() + _IDLE_LIMIT_S
        while unfinished:
            messages = consumer.consume(10_000, timeout=0.05)
            if messages:
                deadline = time.monotonic() + _IDLE_LIMIT_S
            assert time.monotonic() < deadline, f"{topic}: nothing arrived for {_IDLE_LIMIT_S} s"
            for message in messages:
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(message.partition())
                else:
                    raise AssertionError(f"{topic}: {error}")
    finally:
        consumer.close()
