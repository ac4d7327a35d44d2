"""Make golden record batches: the same records, written by three other producers with every codec.

    scripts/kafka.sh start --port 19192 --dir .work/kafka/golden
    python tests/golden/make_records_golden.py --broker 127.0.0.1:19192 --data .work/kafka/golden/node-1/data \
        --jars DIRECTORY
    scripts/kafka.sh stop --dir .work/kafka/golden

librdkafka and Apache Kafka's Java client (driven through py4j; DIRECTORY holds the jars of a Kafka distribution) write
``RECORDS`` into one topic per codec: the batches in the topic's first segment on the broker are theirs, with base
offset and leader epoch filled in. kafka-python's encoder (it needs python-snappy) makes batches without a broker. All
go to ``tests/golden/records``.
"""

from __future__ import annotations

import argparse
import base64
import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent / "records"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIME = 1_700_000_000_000

Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

#: (timestamp, key, value, headers): nulls, empties, times that go back, lengths and offsets that take two bytes.
RECORDS: list[Row] = [
    (TIME, b"key", b"value", []),
    (TIME - 5, None, b"no key", []),
    (TIME + 100_000, b"no value", None, []),
    (TIME, None, b"", [("only", b"headers")]),
    (TIME, b"", b"", [("", b""), ("null", None), ("same", b"1"), ("same", b"2")]),
    (TIME + 1, "schlüssel".encode(), "wert €".encode(), [("größe", "ß".encode())]),
    (TIME + 2, bytes(range(256)), bytes(range(255, -1, -1)), []),
    (TIME + 3, b"long", b"0123456789abcdef" * 513, []),
    *((TIME + number, b"%d" % number, b"row %d" % number, []) for number in range(70)),
]


def as_text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def write_with_librdkafka(bootstrap: str, topic: str, codec: str) -> None:
    import confluent_kafka

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 500, "partitioner": "murmur2_random"}
    )
    for timestamp, key, value, headers in RECORDS:
        producer.produce(topic, value, key, partition=0, timestamp=timestamp, headers=[*headers])
    assert producer.flush(30) == 0


def kafka_python_batch(codec: str) -> bytes:
    """Use kafka-python's own encoder: its producer refuses some of the records, but its consumer must read them all."""
    from kafka.record.memory_records import MemoryRecordsBuilder

    builder = MemoryRecordsBuilder(magic=2, compression_type=CODECS.index(codec), batch_size=1 << 20)
    for timestamp, key, value, headers in RECORDS:
        assert builder.append(timestamp, key, value, headers) is not None
    builder.close()
    return bytes(builder.buffer())


def java_writer(jars: Path) -> Callable[[str, str, str], None]:
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    classpath = ":".join(str(jar) for jar in sorted(jars.glob("*.jar")))
    port = launch_gateway(classpath=classpath, die_on_exit=True)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    kafka = gateway.jvm.org.apache.kafka

    def write(bootstrap: str, topic: str, codec: str) -> None:
        serializer = "org.apache.kafka.common.serialization.ByteArraySerializer"
        properties = gateway.jvm.java.util.HashMap()
        for name, value in {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": "500",
            "key.serializer": serializer,
            "value.serializer": serializer,
        }.items():
            properties.put(name, value)
        producer = kafka.clients.producer.KafkaProducer(properties)
        for timestamp, key_bytes, value_bytes, headers in RECORDS:
            entries = [kafka.common.header.internals.RecordHeader(name, data) for name, data in headers]
            producer.send(kafka.clients.producer.ProducerRecord(topic, 0, timestamp, key_bytes, value_bytes, entries))
        producer.close()

    return write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", required=True, help="HOST:PORT")
    parser.add_argument("--data", type=Path, required=True, help="the folder where the broker keeps its partitions")
    parser.add_argument("--jars", type=Path, required=True, help="the folder with the jars of Apache Kafka")
    arguments = parser.parse_args()

    import confluent_kafka

    jar = next(arguments.jars.glob("kafka-clients-*.jar"))

    def stored(client: str, write: Callable[[str, str, str], None]) -> Callable[[str], bytes]:
        def batches(codec: str) -> bytes:
            topic = f"{client}-{codec}"
            write(arguments.broker, topic, codec)
            data: Path = arguments.data
            return (data / f"{topic}-0" / "00000000000000000000.log").read_bytes()

        return batches

    clients: dict[str, tuple[str, Callable[[str], bytes]]] = {
        "librdkafka": (f"librdkafka {confluent_kafka.libversion()[0]}", stored("librdkafka", write_with_librdkafka)),
        "kafka_python": (f"kafka-python {importlib.metadata.version('kafka-python')}", kafka_python_batch),
        "kafka_clients": (f"Apache Kafka, {jar.name}", stored("kafka_clients", java_writer(arguments.jars))),
    }
    TARGET.mkdir(exist_ok=True)
    records: list[list[Any]] = [
        [timestamp, as_text(key), as_text(value), [[name, as_text(data)] for name, data in headers]]
        for timestamp, key, value, headers in RECORDS
    ]
    (TARGET / "records.json").write_text(json.dumps(records, indent=None, separators=(",", ":")) + "\n")
    for name, (maker, batches) in clients.items():
        content = {
            "made_by": maker,
            "command": "see tests/golden/make_records_golden.py",
            "batches": {codec: as_text(batches(codec)) for codec in CODECS},
        }
        (TARGET / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
