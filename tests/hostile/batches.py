"""Batches with damaged records, of every kind that a broker accepts: each affects no other record."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Sequence
from typing import Final

from kafka_sink.columns.varint import encode_varint
from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.common.model import TopicPartition
from kafka_sink.consumer.fetched_partition import ConsumedRecord, FetchedPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import decode_response
from kafka_sink.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kafka_sink.records.batch import write_header
from kafka_sink.records.compression import CompressionType, compress
from kafka_sink.records.layout import HEADER_BYTES
from kafka_sink.records.reader import Looking
from tests.support.good_client import frame, read_frame

PLACE: Final = TopicPartition("t", 0)
BASE_MS: Final = 1_000


def record_of(
    offset: int, value: bytes = b"v", *, key: bytes = b"\1", headers: bytes = b"\0", timestamp: bytes = b"\0"
) -> bytes:
    """Return a record with its length; *key*, *headers* and *timestamp* are in encoded form."""
    body = b"\0" + timestamp + encode_varint(offset) + key + encode_varint(len(value)) + value + headers
    return encode_varint(len(body)) + body


def batch_of(
    records: Sequence[bytes], codec: CompressionType = CompressionType.NONE, *, base: int = 0, most_ms: int = BASE_MS
) -> bytes:
    """Return a batch with the offsets from *base* on, whose header is valid for any *records*."""
    packed = bytes(compress(codec, b"".join(records)))
    header = bytearray(HEADER_BYTES)
    write_header(
        header,
        [packed],
        compression=codec,
        base_offset=base,
        last_offset_delta=len(records) - 1,
        base_timestamp=BASE_MS,
        max_timestamp=most_ms,
        record_count=len(records),
    )
    return bytes(header) + packed


def store(bootstrap_servers: str, topic: str, data: bytes) -> int:
    """Produce the batch *data* unchanged, and return the broker's error code."""
    body = ProduceRequest(None, 1, 10_000, [TopicProduceData(topic, partition_data=[PartitionProduceData(0, data)])])
    host, _, port = bootstrap_servers.split(",")[0].rpartition(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(frame(ApiKey.PRODUCE, 9, body))
        _, answer = decode_response(ApiKey.PRODUCE, 9, read_frame(sock))
    assert isinstance(answer, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


#: By the problem that is reported: a function from the expected offset to a damaged record.
DAMAGED: Final[dict[str, Callable[[int], bytes]]] = {
    "a header key is not UTF-8": lambda at: record_of(at, headers=b"\2\4\xff\xfe\2v"),
    "a header has no key": lambda at: record_of(at, headers=b"\2\1\2v"),
    "headers in": lambda at: record_of(at, headers=b"\x7e\0"),
    "field has a length of -2": lambda at: record_of(at, key=b"\3"),
    "does not fit": lambda at: record_of(at, key=b"\x7e"),
    "its length says": lambda at: record_of(at, headers=b"\0junk"),
    "its offset is": lambda at: record_of(at + 2**31 - 1 if at % 2 else -5),
    "beyond 64 bits": lambda at: record_of(at, timestamp=encode_varint(2**63 - 1)),
    "longer than 10 bytes": lambda at: record_of(at, timestamp=b"\xff" * 11),
}


def record_batches(rng: random.Random) -> None:
    """A display shows every record, damaged ones with their problem; other readers get an error for the first one."""
    codec = rng.choice(list(CompressionType))
    count, said = rng.randrange(1, 30), dict[int, str]()
    records = []
    for number in range(count):
        if rng.random() < 0.2:
            said[number] = rng.choice(list(DAMAGED))
        make = DAMAGED[said[number]] if number in said else lambda at: record_of(at, b"%d" % at)
        records.append(make(number))
    data = batch_of(records, codec) + batch_of([record_of(0, b"last")], base=count)
    start = rng.randrange(count)
    found = list(FetchedPartition(PLACE, data, start, looking=Looking()))
    assert [record.offset for record in found] == [*range(start, count + 1)]
    for record in found[:-1]:
        assert said.get(record.offset, "") in record.problem and bool(record.problem) == (record.offset in said)
        assert record.value == (records[record.offset][1:] if record.problem else b"%d" % record.offset)
    assert found[-1].value == b"last"
    _strict(data, min(said, default=count))


def _strict(data: bytes, first: int) -> None:
    found = list[ConsumedRecord]()
    try:
        found.extend(FetchedPartition(PLACE, data, 0))
    except CorruptRecordError as error:
        assert f"offset {first}: " in str(error)
        return
    assert first == len(found) - 1
