"""Malformed requests: the broker closes their connection, and serves a good client as before."""

from __future__ import annotations

import contextlib
import random
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.common.config import parse
from kafka_sink.producer.kafka_producer import KafkaProducer
from kafka_sink.producer.producer_record import ProducerRecord
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import decode_response, encode_request
from kafka_sink.protocol.schema import Struct
from kafka_sink.records.compression import CompressionType
from tests.fakes.record_batches import make_batch
from tests.support.broker_process import BrokerProcess
from tests.support.messages import request_body
from tests.support.readback import read_topic

TOPIC = "t"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broker") / "data"


@pytest.fixture(scope="module")
def cluster(data_dir: Path) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(data_dir=data_dir) as running:
        running.create_topic(TOPIC, 1)
        yield running


@pytest.fixture(autouse=True)
def a_good_client_is_served(cluster: EmbeddedCluster) -> Iterator[None]:
    """Within, a client is connected, which the broker must serve at the end."""
    with connect(cluster) as good:
        call(good, ApiKey.METADATA, 9, [])
        yield
        answer = call(good, ApiKey.METADATA, 9, [{"name": TOPIC}])
        assert answer.topics[0].name == TOPIC


def connect(cluster: EmbeddedCluster) -> socket.socket:
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def read_exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def read_frame(sock: socket.socket) -> bytes:
    return read_exactly(sock, *struct.unpack(">i", read_exactly(sock, 4)))


def request_bytes(key: ApiKey, version: int, body: Struct) -> bytes:
    return frame(b"".join(map(bytes, encode_request(key, version, 7, "hostile", body))))


def call(sock: socket.socket, key: ApiKey, version: int, *values: Any, **named: Any) -> Any:
    body = request_body(key, *values, **named)
    sock.sendall(request_bytes(key, version, body))
    correlation_id, answer = decode_response(key, version, read_frame(sock))
    assert correlation_id == 7
    return answer


def closed(sock: socket.socket) -> bool:
    """Whether the broker closed the connection without a response."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("size", [2**31 - 1, 100 * 1024 * 1024 + 1, -1, -(2**31), 0, 3])
def test_impossible_sizes(cluster: EmbeddedCluster, size: int) -> None:
    with connect(cluster) as sock:
        sock.sendall(struct.pack(">i", size) + b"abc")
        assert closed(sock)


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300)],
    ids=["HTTP", "TLS"],
)
def test_other_protocols(cluster: EmbeddedCluster, data: bytes) -> None:
    with connect(cluster) as sock:
        sock.sendall(data)
        assert closed(sock)


def test_random_frames(cluster: EmbeddedCluster) -> None:
    chance = random.Random(20240607)
    for _ in range(300):
        with connect(cluster) as sock:
            body = bytearray(chance.randbytes(chance.randrange(8, 200)))
            if chance.random() < 0.8:
                # A header that is nearly right gets further in.
                body[:4] = struct.pack(">hh", chance.choice(list(ApiKey)), chance.randrange(0, 14))
                body[8:10] = struct.pack(">h", chance.choice([-1, 0, 3]))
            sock.sendall(frame(bytes(body)))
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                continue


def test_truncated_and_damaged_requests(cluster: EmbeddedCluster) -> None:
    chance = random.Random(7)
    good = request_bytes(
        ApiKey.PRODUCE,
        9,
        request_body(ApiKey.PRODUCE, None, -1, 100, [{"name": TOPIC, "partition_data": [(0, b"x" * 80)]}]),
    )[4:]
    for end in range(len(good)):
        with connect(cluster) as sock:
            sock.sendall(frame(good[:end]))
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                continue
    for _ in range(200):
        damaged = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(4, len(damaged))] = chance.choice([0, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        with connect(cluster) as sock:
            sock.sendall(frame(bytes(damaged)))
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                continue


def test_half_frames_and_silence_hold_up_nobody(cluster: EmbeddedCluster) -> None:
    silent = [connect(cluster) for _ in range(20)]
    try:
        for number, sock in enumerate(silent):
            sock.sendall((struct.pack(">i", 100 * 1024 * 1024) + b"x" * 10)[: number % 14])
        with connect(cluster) as good:
            call(good, ApiKey.METADATA, 9, [])
    finally:
        for sock in silent:
            sock.close()


def test_pipelined_requests_are_answered_in_order(cluster: EmbeddedCluster) -> None:
    count = 500
    with connect(cluster) as sock:
        segments = []
        for number in range(count):
            body = encode_request(ApiKey.METADATA, 9, number, None, request_body(ApiKey.METADATA, []))
            segments.append(frame(b"".join(map(bytes, body))))
        sock.sendall(b"".join(segments))
        for number in range(count):
            assert decode_response(ApiKey.METADATA, 9, read_frame(sock))[0] == number


@pytest.mark.behaviour("Faults: hostile clients", "Unknown APIs and versions close the connection")
@pytest.mark.parametrize(
    ("key", "version"), [(ApiKey.PRODUCE, 2), (ApiKey.PRODUCE, 99), (ApiKey.METADATA, -1), (52, 0), (999, 0)]
)
def test_unknown_apis_and_versions(cluster: EmbeddedCluster, key: int, version: int) -> None:
    with connect(cluster) as sock:
        sock.sendall(frame(struct.pack(">hhih", key, version, 1, -1) + bytes(20)))
        assert closed(sock)


@pytest.mark.behaviour("Faults: hostile clients", "ApiVersions of the future is answered in version 0")
def test_api_versions_of_the_future_are_answered_in_version_0(cluster: EmbeddedCluster) -> None:
    with connect(cluster) as sock:
        sock.sendall(frame(struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 5, -1) + b"\0\2a\2b\0"))
        answer: Any
        correlation_id, answer = decode_response(ApiKey.API_VERSIONS, 0, read_frame(sock))
        assert (correlation_id, answer.error_code) == (5, 35)
        assert ApiKey.PRODUCE in {entry.api_key for entry in answer.api_keys}
        call(sock, ApiKey.METADATA, 9, [])


GOOD = bytes(make_batch([b"a", b"b"]))


def edited(at: int, form: str, value: int, *, sum_up: bool = True, batch: bytes = GOOD) -> bytes:
    """Return *batch* with one field changed and a valid checksum."""
    from crc32c import crc32c

    data = bytearray(batch)
    struct.pack_into(form, data, at, value)
    if sum_up:
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def damaged(codec: CompressionType) -> bytes:
    """Return a batch with invalid compressed records and a valid checksum."""
    batch = make_batch([b"a" * 100], compression=codec)
    return edited(70, ">q", 0x1234_5678_9ABC_DEF0, batch=bytes(batch))


def miscounted(more: int) -> bytes:
    batch = bytes(make_batch([b"a"] * 300, compression=CompressionType.LZ4))
    return edited(23, ">i", 299 + more, batch=edited(57, ">i", 300 + more, batch=batch))


BAD_BATCHES: dict[str, tuple[bytes | None, int]] = {
    "no records": (None, 87),
    "empty": (b"", 87),
    "short": (GOOD[:40], 2),
    "truncated": (GOOD[:-1], 2),
    "two batches": (GOOD + GOOD, 87),
    "bad checksum": (edited(21, ">h", 8, sum_up=False), 2),
    "magic 0": (edited(16, ">b", 0, sum_up=False), 87),
    "magic 1": (edited(16, ">b", 1, sum_up=False), 87),
    "magic 3": (edited(16, ">b", 3, sum_up=False), 2),
    "length -5": (edited(8, ">i", -5, sum_up=False), 2),
    "length 2^31-1": (edited(8, ">i", 2**31 - 1, sum_up=False), 2),
    "count 3": (edited(57, ">i", 3), 87),
    "count 0": (edited(57, ">i", 0), 87),
    "count -1": (edited(57, ">i", -1), 87),
    "count 2^31-1": (edited(57, ">i", 2**31 - 1), 87),
    "last delta -1": (edited(23, ">i", -1), 87),
    "unknown codec": (edited(21, ">h", 7), 76),
    "control bit": (bytes(make_batch([b"a"], is_control=True)), 87),
    "transactional without producer id": (bytes(make_batch([b"a"], is_transactional=True)), 53),
    "transactional without transactional id": (
        bytes(make_batch([b"a"], is_transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)),
        53,
    ),
    "count 3 of many": (edited(23, ">i", 1999, batch=edited(57, ">i", 2000)), 87),
    "corrupt gzip": (damaged(CompressionType.GZIP), 87),
    "corrupt snappy": (damaged(CompressionType.SNAPPY), 87),
    "corrupt lz4": (damaged(CompressionType.LZ4), 87),
    "corrupt zstd": (damaged(CompressionType.ZSTD), 87),
    "compressed, one record too few": (miscounted(-1), 87),
    "compressed, one record too many": (miscounted(1), 87),
    "a time of tomorrow": (bytes(make_batch([b"a"], base_timestamp=(int(time.time()) + 86_400) * 1000)), 32),
    "the log append time": (edited(21, ">h", 8), 32),
    "producer id without sequence": (edited(43, ">q", 5), 87),
    "too large": (bytes(make_batch([b"x" * 1_100_000])), 10),
}


def produce(records: bytes | None, *, acks: int = -1, partition: int = 0, topic: str = TOPIC) -> Any:
    data = {"name": topic, "partition_data": [(partition, records)]}
    return request_body(ApiKey.PRODUCE, None, acks, 1000, [data])


@pytest.mark.behaviour("Log", "Wrong batches are answered with an error code, and not stored")
@pytest.mark.behaviour(
    "Faults: hostile clients", "Thirty-one kinds of wrong batches are answered with an error code, and never stored"
)
@pytest.mark.parametrize("name", BAD_BATCHES)
def test_bad_batches_are_answered_with_a_code_and_never_stored(cluster: EmbeddedCluster, name: str) -> None:
    records, code = BAD_BATCHES[name]
    with connect(cluster) as sock:
        before = end_offset(sock)
        answer = call(sock, ApiKey.PRODUCE, 9, produce(records))
        part = answer.responses[0].partition_responses[0]
        assert (part.error_code, part.base_offset) == (code, -1)
        assert part.error_message
        assert end_offset(sock) == before


def end_offset(sock: socket.socket) -> Any:
    return fetch(sock, 0).responses[0].partitions[0].high_watermark


def fetch(sock: socket.socket, offset: int, **options: Any) -> Any:
    parts = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]
    topics = [{"topic": TOPIC, "partitions": parts}]
    return call(sock, ApiKey.FETCH, 12, max_wait_ms=0, min_bytes=1, topics=topics, **options)


@pytest.mark.behaviour("Faults: hostile clients", "Produce to the wrong place is answered with an error code")
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (produce(GOOD, acks=2), 21),
        (produce(GOOD, acks=-2), 21),
        (produce(GOOD, partition=-1), 3),
        (produce(GOOD, partition=99), 3),
        (produce(GOOD, topic="nowhere"), 3),
        (produce(GOOD, topic=""), 3),
    ],
)
def test_produce_to_the_wrong_place(cluster: EmbeddedCluster, body: Any, code: int) -> None:
    with connect(cluster) as sock:
        answer = call(sock, ApiKey.PRODUCE, 9, body)
        assert answer.responses[0].partition_responses[0].error_code == code


@pytest.mark.behaviour("Throttling and quotas", "A failing write with acks=0 closes the connection")
def test_a_failing_write_without_acks_closes_the_connection(cluster: EmbeddedCluster) -> None:
    with connect(cluster) as sock:
        sock.sendall(request_bytes(ApiKey.PRODUCE, 9, produce(GOOD, acks=0)))
        call(sock, ApiKey.METADATA, 9, [])
        sock.sendall(request_bytes(ApiKey.PRODUCE, 9, produce(GOOD[:-1], acks=0)))
        assert closed(sock)


@pytest.mark.behaviour("Faults: hostile clients", "Fetch out of range is answered with an error code")
@pytest.mark.parametrize("offset", [-1, 2**62, -(2**63)])
def test_fetch_out_of_range(cluster: EmbeddedCluster, offset: int) -> None:
    with connect(cluster) as sock:
        assert fetch(sock, offset).responses[0].partitions[0].error_code == 1


def test_a_fetch_session_nobody_has(cluster: EmbeddedCluster) -> None:
    with connect(cluster) as sock:
        assert fetch(sock, 0, session_id=5, session_epoch=3).error_code == 70
        assert fetch(sock, 0, session_id=0, session_epoch=0).session_id == 0


@pytest.mark.parametrize("name", ["..", ".", "a/b", "../../etc", "x" * 250, "naïve", "", "a\0b"])
def test_topic_names_that_would_leave_the_data_directory(cluster: EmbeddedCluster, data_dir: Path, name: str) -> None:
    around = sorted(data_dir.parent.rglob("*"))
    with connect(cluster) as sock:
        answer = call(sock, ApiKey.CREATE_TOPICS, 5, [(name, 1, 1)])
        assert answer.topics[0].error_code == 17
        described = call(sock, ApiKey.METADATA, 9, [{"name": name}])
        assert described.topics[0].error_code == 17
    assert sorted(data_dir.parent.rglob("*")) == around


@pytest.mark.behaviour("Faults: hostile clients", "Impossible numbers of partitions are answered with an error code")
@pytest.mark.parametrize(("partitions", "code"), [(0, 37), (-5, 37), (2 * 10**9, 44), (2**31 - 1, 44)])
def test_partition_counts(cluster: EmbeddedCluster, partitions: int, code: int) -> None:
    with connect(cluster) as sock:
        answer = call(sock, ApiKey.CREATE_TOPICS, 5, [("counts", partitions, 1)])
        assert answer.topics[0].error_code == code


def memory_bytes(field: str) -> int:
    """Return a field of /proc/self/status in bytes: VmRSS is the current memory, VmHWM the peak since its reset."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


@pytest.mark.behaviour("Faults: hostile clients", "A decompression bomb is refused, and takes little memory")
@pytest.mark.parametrize("codec", [codec for codec in CompressionType if codec is not CompressionType.NONE])
def test_a_decompression_bomb_is_refused_and_takes_little_memory(
    cluster: EmbeddedCluster, codec: CompressionType, figure: Callable[[str, object], None]
) -> None:
    bomb = bytes(make_batch([bytes(300_000_000)], compression=codec))
    cluster.create_topic(f"bombed-{codec.config_name}", 1, configs={"max.message.bytes": str(1 << 25)})
    with connect(cluster) as sock:
        before = memory_bytes("VmRSS")
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        started = time.monotonic()
        answer = call(sock, ApiKey.PRODUCE, 9, produce(bomb, topic=f"bombed-{codec.config_name}"))
        ms = (time.monotonic() - started) * 1000

        part = answer.responses[0].partition_responses[0]
        assert part.error_code == 87
        assert "67108864" in (part.error_message or "")
        grown = (memory_bytes("VmHWM") - before) / 2**20
        # Twice the limit while a buffer grows, and the request itself.
        assert grown < 2 * 64 + len(bomb) / 2**20 + 32
        text = f"{len(bomb) / 1024:.0f} KiB for 286 MiB: refused after {ms:.0f} ms, memory +{grown:.0f} MiB at most"
        figure(f"decompression bomb, {codec.config_name}", text)


def test_an_attack_while_a_producer_works(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("busy", 3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 1})
    chance = random.Random(3)
    attacks: list[Callable[[socket.socket], None]] = [
        lambda sock: sock.sendall(chance.randbytes(500)),
        lambda sock: sock.sendall(struct.pack(">i", -1)),
        lambda sock: sock.sendall(frame(chance.randbytes(40))),
        lambda sock: sock.close(),
    ]
    for number in range(2000):
        producer.produce("busy", b"%d" % number, partition=number % 3)
        if number % 25 == 0:
            with connect(cluster) as sock:
                attacks[number // 25 % len(attacks)](sock)
            producer.poll(0)
    assert producer.flush(60) == 0
    found = read_topic(cluster.bootstrap_servers, "busy")
    assert sorted(int(record.value or b"") for record in found) == list(range(2000))


@pytest.mark.behaviour(
    "ConnectionQuotas", "max.connections.per.ip refuses a connection, which counts until it is closed"
)
def test_connections_of_one_address_are_limited() -> None:
    config = parse(BrokerConfig, {"max.connections.per.ip": "3"})
    with EmbeddedCluster(config=config) as limited:
        allowed = [connect(limited) for _ in range(3)]
        try:
            for sock in allowed:
                call(sock, ApiKey.METADATA, 9, [])
            with connect(limited) as extra:
                assert closed(extra)
            allowed.pop().close()
            while True:
                with connect(limited) as again:
                    try:
                        call(again, ApiKey.METADATA, 9, [])
                        break
                    except (EOFError, OSError):
                        # The broker has not yet detected the end of one of the three.
                        continue
        finally:
            for sock in allowed:
                sock.close()


def test_idle_connections_are_closed() -> None:
    config = parse(BrokerConfig, {"connections.max.idle.ms": "200"})
    with EmbeddedCluster(config=config) as impatient, connect(impatient) as sock:
        assert closed(sock)


@pytest.mark.behaviour(
    "Faults: hostile clients", "Transactional ids and time-outs out of range are answered with an error code"
)
@pytest.mark.parametrize(
    ("identity", "timeout_ms", "code"),
    [(b"", 1000, 42), (b"t", 0, 50), (b"t", -1, 50), (b"t", 900_001, 50), (b"t" * 32_767, 1000, 0)]
    + [(b"t" * length, 1000, None) for length in (32_768, 65_536, 1_000_000)],
    ids=lambda value: f"{len(value)} bytes" if isinstance(value, bytes) else str(value),
)
def test_transactional_ids_and_time_outs_out_of_range(
    cluster: EmbeddedCluster, identity: bytes, timeout_ms: int, code: int | None
) -> None:
    """*code* None: no string is that long, so the connection is closed."""
    header = struct.pack(">hhih", ApiKey.INIT_PRODUCER_ID, 4, 1, -1) + b"\0"
    length = bytearray()
    rest = len(identity) + 1
    while rest > 0x7F:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    body = bytes([*length, rest]) + identity + struct.pack(">iqh", timeout_ms, -1, -1) + b"\0"
    with connect(cluster) as sock:
        sock.sendall(struct.pack(">i", len(header + body)) + header + body)
        if code is None:
            assert sock.recv(1) == b""
            return
        answer: Any = decode_response(ApiKey.INIT_PRODUCER_ID, 4, read_frame(sock))[1]
        assert answer.error_code == code


LONGEST = "x" * 32_767


@pytest.mark.behaviour("Faults: hostile clients", "The longest names are answered with an error code")
@pytest.mark.parametrize(
    ("key", "version", "fields"),
    [
        (ApiKey.CREATE_TOPICS, 7, ([(LONGEST, 1, 1)], 100)),
        (ApiKey.CREATE_TOPICS, 7, ([("u", 1, 1, [], [("retention.ms", LONGEST)])], 100)),
        (ApiKey.DELETE_TOPICS, 6, ([LONGEST], [], 100)),
        (ApiKey.CREATE_PARTITIONS, 3, ([(LONGEST, 3)], 100)),
        (ApiKey.DESCRIBE_CONFIGS, 4, ([(4, LONGEST)],)),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, ([(2, TOPIC, [(LONGEST, 0, LONGEST)])],)),
    ],
    ids=lambda value: value.name if isinstance(value, ApiKey) else "",
)
def test_the_longest_names_are_answered_with_a_code(
    cluster: EmbeddedCluster, key: ApiKey, version: int, fields: tuple[Any, ...]
) -> None:
    with connect(cluster) as sock:
        answer = call(sock, key, version, *fields)
    (results,) = (
        value for value in (getattr(answer, each.name) for each in answer.SCHEMA.fields) if type(value) is list
    )
    assert results[0].error_code != 0
    assert 0 < len(results[0].error_message) < 5000


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs Linux")
@pytest.mark.behaviour("Faults: hostile clients", "Silent connections do not use up the files that logs need")
def test_silent_connections_leave_files_for_logs(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data")
    process.start()
    try:
        properties = {"bootstrap.servers": process.bootstrap_servers, "linger.ms": 0, "max.block.ms": 20_000}
        with KafkaProducer(properties) as producer, contextlib.ExitStack() as silent:
            producer.send(ProducerRecord("before", b"x")).result(60)
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (256, 256))
            for _ in range(300):
                silent.enter_context(socket.create_connection(("127.0.0.1", process.port), timeout=20))
            for number in range(5):
                producer.send(ProducerRecord(f"after-{number}", b"x")).result(60)
        with KafkaProducer(properties) as producer:
            producer.send(ProducerRecord("later", b"x")).result(60)
    finally:
        process.kill()
