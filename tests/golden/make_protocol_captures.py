"""Capture the requests and responses that real clients and a real broker exchange, as golden frames.

    scripts/kafka.sh start --port 19192 --dir .work/kafka/captures advertised.listeners=PLAINTEXT://127.0.0.1:19191
    python tests/golden/make_protocol_captures.py --broker 127.0.0.1:19192 --listen 19191 --jars DIRECTORY
    scripts/kafka.sh stop --dir .work/kafka/captures

A proxy between the clients (librdkafka, kafka-python, Apache Kafka's Java client) and the broker, while each client
creates a topic, writes to it, reads it and deletes it. The first request and response of every client, API and version
that this project declares is written to ``tests/golden/protocol/captured.json``.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import kafka
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from kafka_sink.protocol.registry import APIS

TARGET = Path(__file__).parent / "protocol" / "captured.json"
TOPIC = "captured"


class Proxy:
    """Forwards frames and pairs each response with its request."""

    def __init__(self, listen: int, broker: tuple[str, int]) -> None:
        self.client = ""
        self.frames: dict[tuple[str, int, int], dict[str, Any]] = {}
        self._broker = broker
        self._listener = socket.create_server(("127.0.0.1", listen))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            far = socket.create_connection(self._broker)
            sent: dict[int, bytes] = {}
            threading.Thread(target=self._pass_on, args=(near, far, self._keep_request(sent)), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(far, near, self._keep_response(sent)), daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket, keep: Callable[[bytes], None]) -> None:
        stream = source.makefile("rb")
        # Either side may close the connection while the other one still has bytes to send.
        with contextlib.suppress(OSError), target:
            while len(size := stream.read(4)) == 4:
                payload = stream.read(*struct.unpack(">i", size))
                keep(payload)
                target.sendall(size + payload)

    @staticmethod
    def _keep_request(sent: dict[int, bytes]) -> Callable[[bytes], None]:
        def keep(payload: bytes) -> None:
            sent[struct.unpack_from(">i", payload, 4)[0]] = payload

        return keep

    def _keep_response(self, sent: dict[int, bytes]) -> Callable[[bytes], None]:
        client = self.client

        def keep(payload: bytes) -> None:
            request = sent.pop(struct.unpack_from(">i", payload)[0])
            key, version = struct.unpack_from(">hh", request)
            if key in APIS:
                frames = {"api_key": key, "version": version, "request": request.hex(), "response": payload.hex()}
                self.frames.setdefault((client, key, version), {"client": client, **frames})

        return keep


def run_client_of_the_future(bootstrap: str) -> None:
    """Send ApiVersions 99 with a flexible header: every client must be able to read the answer (KIP-511)."""
    host, _, port = bootstrap.partition(":")
    with socket.create_connection((host, int(port))) as connection:
        request = struct.pack(">hhih", 18, 99, 7, -1) + b"\0" + b"\2a\2b\0"
        connection.sendall(struct.pack(">i", len(request)) + request)
        connection.recv(4096)


def run_librdkafka(bootstrap: str) -> None:
    common: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap}
    admin = confluent_kafka.admin.AdminClient(common)
    admin.create_topics([confluent_kafka.admin.NewTopic(TOPIC, 2, 1)])[TOPIC].result()
    producer = confluent_kafka.Producer({**common, "enable.idempotence": True})
    producer.produce(TOPIC, b"value", b"key", partition=0, headers={"header": b"x"})
    producer.flush()
    consumer = confluent_kafka.Consumer({**common, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, confluent_kafka.OFFSET_BEGINNING)])
    assert consumer.poll(20) is not None
    consumer.offsets_for_times([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    consumer.close()
    admin.delete_topics([TOPIC])[TOPIC].result()


def run_kafka_python(bootstrap: str) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics({TOPIC: {"num_partitions": 2, "replication_factor": 1}})
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    producer.send(TOPIC, b"value", b"key", partition=0).get(20)
    producer.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=20_000)
    partition = kafka.TopicPartition(TOPIC, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    next(consumer)
    consumer.close()
    admin.delete_topics([TOPIC])
    admin.close()


def run_java(bootstrap: str, jars: Path) -> None:
    classpath = ":".join(str(jar) for jar in sorted(jars.glob("*.jar")))
    port = launch_gateway(classpath=classpath, die_on_exit=True)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    clients = gateway.jvm.org.apache.kafka.clients
    codec = "org.apache.kafka.common.serialization.String"
    common = {"bootstrap.servers": bootstrap}
    admin = clients.admin.Admin.create(_java_map(gateway, common))
    optional = gateway.jvm.java.util.Optional
    admin.createTopics([clients.admin.NewTopic(TOPIC, optional.of(2), optional.empty())]).all().get()
    serializers = {"key.serializer": f"{codec}Serializer", "value.serializer": f"{codec}Serializer"}
    producer = clients.producer.KafkaProducer(_java_map(gateway, {**common, **serializers}))
    producer.send(clients.producer.ProducerRecord(TOPIC, 0, "key", "value")).get()
    producer.close()
    deserializers = {"key.deserializer": f"{codec}Deserializer", "value.deserializer": f"{codec}Deserializer"}
    consumer = clients.consumer.KafkaConsumer(_java_map(gateway, {**common, **deserializers}))
    partitions = [gateway.jvm.org.apache.kafka.common.TopicPartition(TOPIC, 0)]
    consumer.assign(partitions)
    consumer.seekToBeginning(partitions)
    while consumer.poll(gateway.jvm.java.time.Duration.ofSeconds(20)).isEmpty():
        continue
    consumer.close()
    admin.deleteTopics([TOPIC]).all().get()
    admin.close()


def _java_map(gateway: JavaGateway, values: dict[str, str]) -> Any:
    found = gateway.jvm.java.util.HashMap()
    for name, value in values.items():
        found.put(name, value)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", required=True, help="where the broker really listens, HOST:PORT")
    parser.add_argument("--listen", type=int, required=True, help="the port it advertises, which this takes")
    parser.add_argument("--jars", type=Path, required=True, help="the directory with the jars of Apache Kafka")
    arguments = parser.parse_args()
    host, _, port = arguments.broker.partition(":")
    proxy = Proxy(arguments.listen, (host, int(port)))
    jar = next(arguments.jars.glob("kafka-clients-*.jar"))
    bootstrap = f"127.0.0.1:{arguments.listen}"
    librdkafka = f"librdkafka {confluent_kafka.libversion()[0]}"
    for client, run in (
        (librdkafka, run_librdkafka),
        ("a client of the future", run_client_of_the_future),
        (f"kafka-python {importlib.metadata.version('kafka-python')}", run_kafka_python),
        (jar.stem, lambda address: run_java(address, arguments.jars)),
    ):
        proxy.client = client
        run(bootstrap)
    content = {
        "made_by": f"the clients named below and the broker of {jar.stem.replace('-clients', '')}",
        "command": "see tests/golden/make_protocol_captures.py",
        "frames": [proxy.frames[key] for key in sorted(proxy.frames)],
    }
    TARGET.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
