"""Make the golden message sets: record formats 0 and 1 with every codec that they support, followed by a record batch.

    python tests/golden/make_message_sets.py --jars DIRECTORY

DIRECTORY holds the jars of Apache Kafka 3.9, the last release that writes these formats: its ``MemoryRecords.builder``,
driven through py4j, writes the segment, and its ``MemoryRecords`` reads the records as a consumer would. Both go to
``tests/golden/records/message_sets.json``.
"""

from __future__ import annotations

import argparse
import base64
import json
from pathlib import Path
from typing import Any, NamedTuple

TARGET = Path(__file__).parent / "records" / "message_sets.json"
TIME = 1_500_000_000_000
APPENDED = 1_600_000_000_000


class Part(NamedTuple):
    """Records of one call: *step* between their offsets (as after a compaction), *size* of their values."""

    magic: int
    codec: str = "none"
    size: int = 10
    by_broker: bool = False
    step: int = 1
    records: int = 5


PARTS = [
    *(Part(0, codec, size) for codec, size in (("none", 10), ("gzip", 100), ("snappy", 2_000), ("lz4", 2_000))),
    *(Part(1, codec, size) for codec, size in (("none", 10), ("gzip", 100), ("snappy", 40_000))),
    Part(1, "lz4", 40_000, by_broker=True),
    Part(1, by_broker=True),
    Part(1, "gzip", step=3),
    Part(0, "gzip", step=3),
    Part(2, records=3),
]


def segment(jvm: Any) -> tuple[bytes, int]:
    """The segment, and its next offset."""
    record = jvm.org.apache.kafka.common.record
    written, offset = b"", 0
    for part in PARTS:
        buffer = jvm.java.nio.ByteBuffer.allocate(1 << 20)
        time = record.TimestampType.LOG_APPEND_TIME if part.by_broker else record.TimestampType.CREATE_TIME
        if part.magic == 0:
            time = record.TimestampType.NO_TIMESTAMP_TYPE
        codec = jvm.org.apache.kafka.common.compress.Compression.of(part.codec).build()
        builder = record.MemoryRecords.builder(
            buffer, part.magic, codec, time, offset, APPENDED if part.by_broker else -1
        )
        for number in range(part.records):
            at = offset + number * part.step
            key = None if number % 3 == 2 else f"k{at}".encode()
            value = None if number % 4 == 3 else f"v{at}".encode() + b"x" * part.size
            timestamp = -1 if part.magic == 0 else TIME + at * 1000 - number % 2 * 5000
            builder.appendWithOffset(at, timestamp, key, value)
        data = builder.build().buffer()
        array = jvm.org.apache.kafka.common.utils.Utils.toArray(data)
        written += bytes(array)
        offset += part.records * part.step
    return written, offset


def rows(jvm: Any, data: bytes) -> list[list[object]]:
    """Offset, timestamp, key, the beginning of the value, and the value's length, of each record that Java reads."""
    utils = jvm.org.apache.kafka.common.utils.Utils
    found: list[list[object]] = []
    records = jvm.org.apache.kafka.common.record.MemoryRecords.readableRecords(jvm.java.nio.ByteBuffer.wrap(data))
    iterator = records.records().iterator()
    while iterator.hasNext():
        each = iterator.next()
        key = utils.toNullableArray(each.key())
        value = utils.toNullableArray(each.value())
        shown = None if value is None else bytes(value)[:8].decode()
        found.append(
            [
                each.offset(),
                each.timestamp(),
                None if key is None else bytes(key).decode(),
                shown,
                -1 if value is None else len(bytes(value)),
            ]
        )
    return found


def main() -> None:
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jars", type=Path, required=True, help="the folder with the jars of Apache Kafka 3.9")
    jars = parser.parse_args().jars
    (jar,) = jars.glob("kafka-clients-3.9*.jar")
    port = launch_gateway(classpath=":".join(map(str, sorted(jars.glob("*.jar")))), die_on_exit=True)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    data, end = segment(gateway.jvm)
    lines = ",\n  ".join(json.dumps(row) for row in rows(gateway.jvm, data))
    text = base64.b64encode(data).decode()
    TARGET.write_text(
        f'{{"maker": "{jar.stem}", "end": {end},\n "segment": "{text}",\n "records": [\n  {lines}\n]}}\n', "utf-8"
    )


if __name__ == "__main__":
    main()
