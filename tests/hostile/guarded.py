"""Hostile clients of a broker's listeners with TLS and SASL, while the broker serves an authenticated client.

They stop within a TLS handshake or a login, send malformed ones, or log in and then send malformed requests. The other
client writes and sends requests in between, over TLS; the latencies of its requests are recorded.
"""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import ssl
import struct
import time
from functools import cache
from typing import Final, TypeVar

from kafka_sink.broker.config import AUTHORIZER
from kafka_sink.broker.embedded_broker import EmbeddedCluster
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.acl import WILDCARD, AclBinding, AclOperation, ResourceType
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import decode_response
from kafka_sink.protocol.messages.connection import SaslAuthenticateRequest, SaslHandshakeRequest
from kafka_sink.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafka_sink.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_sink.protocol.schema import RequestBody, Struct
from tests.fakes.record_batches import make_batch
from tests.hostile.records import damaged
from tests.hostile.servers import OPEN
from tests.property.test_request_fuzz import Maker
from tests.support.certificates import Authority
from tests.support.good_client import frame, read_frame
from tests.support.secure_cluster import MECHANISMS, PASSWORD, PROTOCOLS, address, secure_cluster

#: Only a stalled broker takes this long, even on a slow machine.
_MOST_S: Final = 60.0
_SERVED: Final = "served"
_BOBS: Final = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
#: The latencies of the authenticated client's requests, in ms.
WAITS_MS: Final[list[float]] = []

Answer = TypeVar("Answer", bound=Struct)


class _Client:
    """A connection to one of the listeners."""

    def __init__(self, cluster: EmbeddedCluster, listener: str, tls: ssl.SSLContext | None = None) -> None:
        host, _, port = address(cluster, listener).rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=_MOST_S)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket)

    def ask(self, key: ApiKey, version: int, body: RequestBody[Answer]) -> Answer:
        self.socket.sendall(frame(key, version, body))
        return decode_response(key, version, read_frame(self.socket))[1]  # type: ignore[return-value]

    def log_in(self, user: str, password: str) -> None:
        self.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest("PLAIN"))
        token = f"\0{user}\0{password}".encode()
        assert self.ask(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(token)).error_code == 0


class _Raised(logging.Handler):
    """Collects unexpected errors that the broker logs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.texts.append(logging.Formatter().format(record))


class _Guarded:
    """A cluster with every kind of listener. Bob has all permissions for topics, groups and transactional ids, and none
    for the cluster; Alice is the client that the cluster serves, on one connection.
    """

    def __init__(self) -> None:
        authority = Authority()
        users = {"authorizer_class_name": AUTHORIZER, "super_users": "User:alice"}
        self.cluster = OPEN.enter_context(secure_cluster(authority.issue("127.0.0.1").pem(), **users))
        self.cluster.create_topic(_SERVED, 1)
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.tls.check_hostname, self.tls.verify_mode = False, ssl.CERT_NONE
        login = {"security.protocol": "SASL_SSL", "ssl.truststore.certificates": authority.pem}
        login |= {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": PASSWORD}
        with AdminClient(address(self.cluster, "SASL_SSL"), login) as admin:
            admin.create_acls([_everything(kind) for kind in _BOBS])
        self._served = _Client(self.cluster, "SASL_SSL", self.tls)
        OPEN.callback(self._served.socket.close)
        self._served.log_in("alice", PASSWORD)
        self.raised = _Raised()
        logging.getLogger("kafka_sink").addHandler(self.raised)
        OPEN.callback(logging.getLogger("kafka_sink").removeHandler, self.raised)

    def serve(self) -> None:
        """Write a record as Alice, and request the topic's metadata."""
        data = TopicProduceData(_SERVED, partition_data=[PartitionProduceData(0, make_batch([b"x" * 100]))])
        began = time.perf_counter()
        written = self._served.ask(ApiKey.PRODUCE, 9, ProduceRequest(None, -1, 30_000, [data]))
        between = time.perf_counter()
        found = self._served.ask(ApiKey.METADATA, 9, MetadataRequest([MetadataRequestTopic(name=_SERVED)]))
        WAITS_MS.extend(((between - began) * 1_000, (time.perf_counter() - between) * 1_000))
        assert written.responses[0].partition_responses[0].error_code == 0
        assert found.topics[0].error_code == 0

    def attack(self, rng: random.Random, held: contextlib.ExitStack) -> None:
        """Run one client, which may stay connected and may not read its responses."""
        listener = rng.choice(PROTOCOLS)
        is_tls, is_sasl = listener.endswith("SSL"), listener.startswith("SASL")
        client = _Client(self.cluster, listener)
        held.callback(client.socket.close)
        with contextlib.suppress(OSError, EOFError):
            if is_tls and rng.random() < 0.4:
                self._shake_hands_badly(rng, client)
                return
            if is_tls:
                client.socket = self.tls.wrap_socket(client.socket)
                held.callback(client.socket.close)
            if is_sasl and rng.random() < 0.5:
                client.socket.sendall(_bad_login(rng))
            else:
                if is_sasl:
                    client.log_in("bob", "b")
                maker = Maker(rng.getrandbits(32))
                for _ in range(rng.choice((1, 3, 20))):
                    data = maker.frame()
                    client.socket.sendall(struct.pack(">i", len(data)) + data)
                if rng.random() < 0.3:
                    client.socket.sendall(_bad_login(rng))
            if rng.random() < 0.3:
                client.socket.shutdown(socket.SHUT_WR)

    def _shake_hands_badly(self, rng: random.Random, client: _Client) -> None:
        """Send a handshake that is truncated, damaged, or not continued."""
        received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        handshake = self.tls.wrap_bio(received, sent)
        for _ in range(rng.choice((1, 1, 2))):
            try:
                handshake.do_handshake()
            except ssl.SSLWantReadError:
                said = sent.read()
                client.socket.sendall(
                    damaged(rng, said) if rng.random() < 0.5 else said[: rng.randrange(len(said) + 1)]
                )


def _everything(kind: ResourceType) -> AclBinding:
    """Return the ACL that allows Bob all operations on all resources of *kind*."""
    return AclBinding(principal="User:bob", operation=AclOperation.ALL, resource_type=kind, resource_name=WILDCARD)


def _bad_login(rng: random.Random) -> bytes:
    """Return steps of a login that are too early, too many, too large, of no mechanism or damaged."""
    tokens = (
        b"\0bob\0wrong",
        b"\0bob",
        b"n,,n=bob,r=abc",
        b"n,,\x01auth=Bearer x\x01\x01",
        b"",
        b"\0" * 70_000,
        b"\xff" * 9,
    )
    steps: list[bytes] = []
    for _ in range(rng.choice((1, 2, 4))):
        mechanism = rng.choice((*MECHANISMS, "GSSAPI", "", "\0" * 300))
        steps.append(frame(ApiKey.SASL_HANDSHAKE, rng.choice((0, 1)), SaslHandshakeRequest(mechanism)))
        steps.append(
            frame(ApiKey.SASL_AUTHENTICATE, rng.choice((0, 1, 2)), SaslAuthenticateRequest(rng.choice(tokens)))
        )
    data = b"".join(rng.sample(steps, rng.randrange(1, len(steps) + 1)))
    return damaged(rng, data) if rng.random() < 0.5 else data


@cache
def _guarded() -> _Guarded:
    return _Guarded()


def guarded_listeners(rng: random.Random) -> None:
    """An authenticated client is served and the broker raises no error, whatever other clients send or do not read."""
    guarded = _guarded()
    with contextlib.ExitStack() as held:
        for _ in range(rng.choice((1, 2, 6))):
            guarded.attack(rng, held)
            guarded.serve()
    guarded.serve()
    raised, guarded.raised.texts = guarded.raised.texts, []
    assert not raised, raised[0]
