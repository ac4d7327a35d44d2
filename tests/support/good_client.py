"""A client that behaves, in a process of its own: writes and asks, over and over, and says how long it had to wait.

Every hundredth request comes over a new connection, so that the acceptor is measured too.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import decode_response, encode_request
from kafka_sink.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafka_sink.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kafka_sink.protocol.schema import Struct
from tests.fakes.record_batches import make_batch
from tests.support.forks import FORKS

_PAUSE_S = 0.004
_PER_CONNECTION = 100
#: A client that was told to stop goes on until it has sent so many: a busy machine may have given it no time before.
LEAST_REQUESTS = 21


def frame(key: ApiKey, version: int, body: Struct, client_id: str = "good") -> bytes:
    data = b"".join(map(bytes, encode_request(key, version, 7, client_id, body)))
    return struct.pack(">i", len(data)) + data


def read_frame(sock: socket.socket) -> bytes:
    def exactly(size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = sock.recv(size - len(data))
            if not more:
                raise EOFError("the broker closed the connection")
            data += more
        return data

    return exactly(*struct.unpack(">i", exactly(4)))


def _work(host: str, port: int, topic: str, asked: Connection) -> None:
    """Work until *asked* says something, and answer with a Served."""
    write = ProduceRequest(
        None, 1, 5000, [TopicProduceData(topic, partition_data=[PartitionProduceData(0, make_batch([b"x" * 100]))])]
    )
    requests = [
        (ApiKey.PRODUCE, frame(ApiKey.PRODUCE, 9, write)),
        (ApiKey.METADATA, frame(ApiKey.METADATA, 9, MetadataRequest([MetadataRequestTopic(name=topic)]))),
    ]
    waits_ms: list[float] = []
    errors: list[str] = []
    sock: socket.socket | None = None
    number = 0
    asked.send("working")
    while not asked.poll(_PAUSE_S) or number < LEAST_REQUESTS:
        key, data = requests[number % 2]
        began = time.perf_counter()
        try:
            if sock is None or number % _PER_CONNECTION == 0:
                if sock is not None:
                    sock.close()
                sock = socket.create_connection((host, port), timeout=20)
            sock.sendall(data)
            _, answer = decode_response(key, 9, read_frame(sock))
            if isinstance(answer, ProduceResponse) and answer.responses[0].partition_responses[0].error_code:
                errors.append(str(answer))
        except (OSError, EOFError) as error:
            errors.append(repr(error))
            sock = None
        waits_ms.append((time.perf_counter() - began) * 1000)
        number += 1
    asked.send(Served(number, errors[:3], sorted(waits_ms)))


@dataclass
class Served:
    """How a client fared."""

    requests: int = 0
    errors: list[str] = field(default_factory=list)
    waits_ms: list[float] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        return self.waits_ms[min(int(share * len(self.waits_ms)), len(self.waits_ms) - 1)]

    def __str__(self) -> str:
        return f"p50 {self.percentile(0.5):.1f} ms, p99 {self.percentile(0.99):.1f} ms, max {self.waits_ms[-1]:.0f} ms"


@contextlib.contextmanager
def good_client(bootstrap_servers: str, topic: str) -> Iterator[Served]:
    """Works while the block runs; what it found is filled in at the end."""
    host, _, port = bootstrap_servers.rpartition(":")
    ours, theirs = FORKS.Pipe()
    process = FORKS.Process(target=_work, args=(host, int(port), topic, theirs), daemon=True)
    process.start()
    theirs.close()
    served = Served()
    with ours:
        assert ours.recv() == "working"
        try:
            yield served
        finally:
            ours.send("enough")
            vars(served).update(vars(ours.recv()))
            process.join()
