"""Hostile clients against a broker in a process of its own, which serves a good client all the time.

Each test reports the longest wait of the good client and the growth of the broker's memory during the attack.
``KAFKALITE_HOSTILE_FRAMES`` sets how many frames of random bytes are sent.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kafka_sink.columns.varint import encode_unsigned_varint
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_sink.protocol.messages.metadata import MetadataRequest
from kafka_sink.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_sink.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.bench.resources import resident_bytes
from tests.conftest import Figure
from tests.fakes.record_batches import make_batch
from tests.support import amounts
from tests.support.broker_process import BrokerProcess
from tests.support.good_client import LEAST_REQUESTS, Served, frame, good_client, read_frame

FRAMES = amounts.HOSTILE_FRAMES
MIB = 1024 * 1024
#: A bound that only a stalled broker exceeds, even on a slow machine.
LONGEST_WAIT_MS = 10_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    config = {"connections.max.idle.ms": 60_000, "queued.max.response.bytes": 32 * MIB}
    with running(tmp_path_factory.mktemp("attacked") / "data", config) as started:
        yield started


@contextlib.contextmanager
def running(data_dir: Path, config: Mapping[str, object]) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(data_dir, config=config)
    broker.start()
    try:
        with connect(broker) as sock:
            topics = [CreatableTopic("good", 1, 1), CreatableTopic("bulk", 1, 1)]
            sock.sendall(frame(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics)))
            read_frame(sock)
        yield broker
    finally:
        broker.stop()


def connect(broker: BrokerProcess, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), timeout=20, source_address=(source, 0))


class Attack:
    """The connections of an attack, which are closed at its end."""

    def __init__(self, broker: BrokerProcess, figure: Figure) -> None:
        self.broker = broker
        self._figure = figure
        self.served = Served()
        self.grown_mib = 0.0
        self._sockets = contextlib.ExitStack()

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return self._sockets.enter_context(connect(self.broker, source))

    def connections(self, count: int) -> list[socket.socket]:
        return [self.connect() for _ in range(count)]

    @contextlib.contextmanager
    def on(self, seconds: float = 0.5) -> Iterator[None]:
        """Within, and for *seconds* afterwards, the good client sends requests."""
        before = resident_bytes(self.broker.pid)
        with self._sockets, good_client(self.broker.bootstrap_servers, "good") as self.served:
            yield
            time.sleep(seconds)
            self.grown_mib = (resident_bytes(self.broker.pid) - before) / MIB
        self._figure("good client", f"{self.served} of {self.served.requests}")
        self._figure("memory", f"+{self.grown_mib:.1f} MiB")
        assert self.served.errors == []
        assert self.served.requests >= LEAST_REQUESTS
        assert self.served.waits_ms[-1] < LONGEST_WAIT_MS


@pytest.fixture
def attack(broker: BrokerProcess, figure: Figure) -> Attack:
    return Attack(broker, figure)


def closed(sock: socket.socket) -> bool:
    try:
        while sock.recv(65536):
            continue
        return True
    except ConnectionError:
        return True


def test_no_attack(attack: Attack) -> None:
    """Measures the good client's wait without other clients."""
    with attack.on(1.0):
        pass


@pytest.mark.behaviour(
    "Faults: hostile clients", "Connections that send one byte and then nothing do not hold up a good client"
)
def test_connections_that_say_one_byte_and_then_nothing(attack: Attack) -> None:
    with attack.on():
        for sock in attack.connections(200):
            sock.send(b"\0")


@pytest.mark.behaviour("Faults: hostile clients", "Connections that send a byte at a time do not hold up a good client")
def test_connections_that_dribble(attack: Attack) -> None:
    request = frame(ApiKey.METADATA, 9, MetadataRequest([]))
    with attack.on(0.1):
        slow = attack.connections(100)
        for number in range(len(request)):
            for sock in slow:
                sock.send(request[number : number + 1])
            time.sleep(0.02)
        assert all(read_frame(sock) for sock in slow), "slow is not wrong: they are answered"


@pytest.mark.behaviour("Faults: hostile clients", "Half frames do not hold up a good client")
def test_half_frames(attack: Attack) -> None:
    request = frame(ApiKey.METADATA, 9, MetadataRequest([]))
    with attack.on():
        for sock in attack.connections(200):
            sock.send(request[: len(request) // 2])


@pytest.mark.behaviour("Faults: hostile clients", "Frames that are announced and never come take no memory")
def test_frames_that_are_announced_and_never_come(attack: Attack) -> None:
    with attack.on():
        for sock in attack.connections(200):
            sock.send(struct.pack(">i", 100 * MIB) + b"x" * 10)
    assert attack.grown_mib < 200, "200 times 100 MiB were announced"


NO_FRAMES = {
    **{str(size): struct.pack(">i", size) + b"abc" for size in (2**31 - 1, 100 * MIB + 1, -1, 0, 3)},
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300),
}


@pytest.mark.behaviour("Faults: hostile clients", "What is no frame closes its connection")
def test_what_is_no_frame_is_closed(attack: Attack, figure: Figure) -> None:
    waits_ms = []
    with attack.on():
        for data in list(NO_FRAMES.values()) * 100:
            with connect(attack.broker) as sock:
                began = time.perf_counter()
                sock.sendall(data)
                assert closed(sock)
                waits_ms.append((time.perf_counter() - began) * 1000)
    figure("closed after", f"{sorted(waits_ms)[350]:.1f} ms, at most {max(waits_ms):.1f} ms")


@pytest.mark.behaviour("Faults: hostile clients", "Frames of random bytes are closed or answered")
def test_random_frames(attack: Attack, figure: Figure) -> None:
    chance = random.Random(20240607)
    began = time.perf_counter()
    with attack.on(0.2):
        for number in range(FRAMES):
            body = bytearray(chance.randbytes(chance.randrange(0, 1024)))
            if chance.random() < 0.5 and len(body) > 10:
                # A header that is nearly right gets further in.
                body[:4] = struct.pack(">hh", chance.choice(list(ApiKey)), chance.randrange(0, 14))
                body[8:10] = struct.pack(">h", chance.choice([-1, 0, 3]))
            # The ports of an address are limited, and the system reserves each for a minute after its use.
            with connect(attack.broker, f"127.0.0.{number % 250 + 2}") as sock:
                sock.sendall(struct.pack(">i", len(body)) + body)
                sock.shutdown(socket.SHUT_WR)
                assert closed(sock)
    figure("frames", f"{FRAMES} in {time.perf_counter() - began:.1f} s")


def raw(key: int, version: int, body: bytes, *, flexible: bool) -> bytes:
    data = struct.pack(">hhih", key, version, 1, -1) + (b"\0" if flexible else b"") + body
    return struct.pack(">i", len(data)) + data


#: Bodies with lengths that exceed their contents; the broker closes the connection for each.
MALFORMED = {
    "array of 2^31-1": raw(ApiKey.METADATA, 1, struct.pack(">i", 2**31 - 1), flexible=False),
    "array of -2": raw(ApiKey.PRODUCE, 3, struct.pack(">hhii", -1, -1, 1000, -2), flexible=False),
    "compact array of 2^32-2": raw(ApiKey.METADATA, 9, b"\xff\xff\xff\xff\x0f", flexible=True),
    "string of 32767": raw(ApiKey.METADATA, 1, struct.pack(">ih", 1, 32767) + b"abc", flexible=False),
    "string of -2": raw(ApiKey.METADATA, 1, struct.pack(">ih", 1, -2), flexible=False),
    "varint without end": raw(ApiKey.METADATA, 9, b"\xff" * 10, flexible=True),
    "records of 2^31-1": raw(
        ApiKey.PRODUCE, 3, struct.pack(">hhiih1siii", -1, -1, 1000, 1, 1, b"t", 1, 0, 2**31 - 1), flexible=False
    ),
    "10^6 tags without their bytes": raw(ApiKey.METADATA, 9, b"\xc0\x84\x3d", flexible=False),
}


@pytest.mark.behaviour("Faults: hostile clients", "Requests that claim what they do not hold are closed")
def test_requests_that_claim_what_they_do_not_hold(attack: Attack) -> None:
    with attack.on():
        for data in list(MALFORMED.values()) * 50:
            with connect(attack.broker) as sock:
                sock.sendall(data)
                assert closed(sock)
    assert attack.grown_mib < 100


@pytest.mark.behaviour("Faults: hostile clients", "A million tagged fields are skipped")
def test_a_million_tagged_fields_are_skipped(attack: Attack) -> None:
    # Any number of unknown tagged fields is allowed; they delay only their sender.
    tags = b"".join(encode_unsigned_varint(tag) + b"\0" for tag in range(1_000_000))
    body = b"\x01" + b"\0\0\0" + encode_unsigned_varint(1_000_000) + tags
    with attack.on(0.2):
        sock = attack.connect()
        sock.sendall(raw(ApiKey.METADATA, 9, body, flexible=True))
        assert read_frame(sock)


@pytest.mark.behaviour("Faults: hostile clients", "Bytes after the request are ignored, as Kafka does")
def test_bytes_after_the_request_are_ignored(attack: Attack) -> None:
    with attack.on(0.2):
        sock = attack.connect()
        for _ in range(100):
            sock.sendall(raw(ApiKey.METADATA, 9, b"\x01\0\0\0\0" + b"rest" * 1000, flexible=True))
            assert read_frame(sock)


@pytest.mark.behaviour("Faults: hostile clients", "A thousand idle connections do not hold up a good client")
def test_a_thousand_idle_connections(attack: Attack) -> None:
    with attack.on(1.0):
        attack.connections(1000)


@pytest.mark.behaviour("Faults: hostile clients", "A client that pipelines and never reads takes no memory")
def test_a_client_that_never_reads_its_answers(attack: Attack, figure: Figure) -> None:
    count = 100_000
    request = frame(ApiKey.METADATA, 9, MetadataRequest([]))
    sent = 0
    with attack.on(1.0):
        sock = attack.connect()
        sock.settimeout(1.0)
        with contextlib.suppress(TimeoutError):
            for _ in range(count // 1000):
                sock.sendall(request * 1000)
                sent += 1000
    figure("requests it got rid of", sent)
    assert attack.grown_mib < 100


@pytest.mark.behaviour(
    "Faults: hostile clients", "Readers that ask for much and never read are bounded by queued.max.response.bytes"
)
def test_readers_that_ask_for_much_and_never_read(attack: Attack, figure: Figure) -> None:
    batch = make_batch([bytes(1000)] * 500)
    with connect(attack.broker) as sock:
        for _ in range(40):
            data = [TopicProduceData("bulk", partition_data=[PartitionProduceData(0, batch)])]
            sock.sendall(frame(ApiKey.PRODUCE, 9, ProduceRequest(None, 1, 5000, data)))
            read_frame(sock)
    partition = FetchPartition(0, fetch_offset=0, partition_max_bytes=20 * MIB)
    asked = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic("bulk", partitions=[partition])])
    request = frame(ApiKey.FETCH, 12, asked)
    with attack.on(1.0):
        for sock in attack.connections(100):
            sock.sendall(request * 3)
    figure("asked for", "100 times 20 MB")
    # The budget of 32 MiB, one batch of half a megabyte per reader, and the buffers of the sockets.
    assert attack.grown_mib < 32 + 100 * 0.5 + 50


@pytest.mark.behaviour(
    "Faults: hostile clients", "A storm of connections over the quota does not hold up a good client"
)
def test_a_storm_of_connections_over_the_quota(tmp_path: Path, figure: Figure) -> None:
    config = {"max.connections.per.ip": 50}
    refused = 0
    with running(tmp_path / "data", config) as broker:
        attack = Attack(broker, figure)
        with attack.on(0.5):
            begun = time.monotonic()
            # A busy machine takes longer to open enough connections.
            while (lasts := time.monotonic() - begun) < 1 or (not refused and lasts < 60):
                sock = attack.connect("127.0.0.2")
                sock.settimeout(0.001)
                with contextlib.suppress(TimeoutError):
                    refused += closed(sock)
    figure("refused", refused)
    assert refused > 0


@pytest.mark.behaviour("KSelector", "The broker closes an idle connection after connections.max.idle.ms")
@pytest.mark.behaviour("Faults: hostile clients", "Silent connections are closed when their time is up")
def test_silent_connections_are_closed_when_their_time_is_up(tmp_path: Path, figure: Figure) -> None:
    with running(tmp_path / "data", {"connections.max.idle.ms": 1000}) as broker:
        attack = Attack(broker, figure)
        with attack.on(0.1):
            silent = attack.connections(100)
            for number, sock in enumerate(silent):
                sock.send((struct.pack(">i", 1000) + b"x")[: number % 6])
            began = time.perf_counter()
            assert all(closed(sock) for sock in silent)
            figure("100 silent connections closed after", f"{time.perf_counter() - began:.1f} s of 1 s")
