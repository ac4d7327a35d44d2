"""Malformed and unusual requests of every API and version, through decoder and handlers: no exception escapes, and each
request is answered once or closes its connection.

Requests are built from the declared fields, with values that handlers use (topics and ids that exist, extreme numbers,
batches), and half of them are damaged afterwards. ``KAFKALITE_FUZZ_REQUESTS`` sets their number; a failure names the
seed and the request that caused it.
"""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from kafka_sink.broker.handlers.dispatch import HANDLERS
from kafka_sink.broker.network.request_channel import (
    CloseConnectionResponse,
    EndThrottlingResponse,
    NoOpResponse,
    SendResponse,
    StartThrottlingResponse,
)
from kafka_sink.common.errors import ProtocolError
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import encode_request
from kafka_sink.protocol.registry import api
from kafka_sink.protocol.schema import BYTES, RECORDS, STRING, UUID, Array, FieldType, Primitive, Struct
from tests.conftest import Figure
from tests.fakes.broker_node import BrokerNode
from tests.fakes.record_batches import make_batch
from tests.support import amounts

REQUESTS = amounts.FUZZ_REQUESTS
#: Requests to one broker: later requests meet the state that earlier ones left, and a failure is repeatable.
PER_BROKER = 500
_DAMAGE = [b"\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff" * 4, b"\xff\xfe", b"\0" * 4, b"\xff" * 10, b"\x80" * 6]
_STRINGS = ["t", "u", "", "..", "nowhere", "x" * 300, "a\0b", "1", "0", "GROUP", "__consumer_offsets", "retention.ms"]


class Maker:
    """Makes requests from one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.topic_ids: list[uuid.UUID] = []
        self.batches = [
            make_batch([b"a", b"b"]),
            make_batch([b"a"], producer_id=1, producer_epoch=0, base_sequence=0),
            make_batch([b"a"], is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
            make_batch([b"a"], is_control=True),
        ]

    def frame(self) -> bytes:
        key = self.chance.choice(list(HANDLERS))
        versions = HANDLERS[key].versions
        version = self.chance.randint(versions.min, versions.max)
        body = self.message(api(key).request, version)
        client_id = self.chance.choice(["client", None, ""])
        data = b"".join(map(bytes, encode_request(key, version, 7, client_id, body)))
        return self._damaged(data) if self.chance.random() < 0.5 else data

    def message(self, kind: type[Struct], version: int) -> Any:
        made = kind()
        for field in kind.SCHEMA.fields:
            # A field that is omitted keeps its default, as most fields of most requests do.
            if version in field.versions and self.chance.random() < 0.8:
                null = version in field.nullable and self.chance.random() < 0.2
                setattr(made, field.name, None if null else self._value(field.type, version))
        return made

    def _value(self, type: FieldType, version: int) -> Any:
        chance = self.chance
        if isinstance(type, Array):
            return [self._value(type.element, version) for _ in range(chance.choice([0, 1, 1, 1, 2, 3]))]
        if not isinstance(type, Primitive):
            return self.message(type, version)
        if type is STRING:
            return chance.choice(_STRINGS)
        if type is BYTES:
            return chance.randbytes(chance.choice([0, 3, 40]))
        if type is RECORDS:
            batch = chance.choice(self.batches)
            return self._damaged(bytes(batch)) if chance.random() < 0.4 else batch
        if type is UUID:
            return chance.choice([*self.topic_ids, uuid.UUID(int=0), uuid.UUID(int=chance.getrandbits(128))])
        if type.name == "bool":
            return chance.random() < 0.5
        if type.name == "float64":
            return chance.choice([0.0, -1.0, float("inf"), float("nan")])
        bits = int(type.name.removeprefix("u").removeprefix("int"))
        low, high = (0, 2**bits - 1) if type.name[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return chance.choice([0, 0, 0, 1, 1, 2, 3, max(-1, low), max(-2, low), low, high, chance.randint(low, high)])

    def _damaged(self, data: bytes) -> bytes:
        """Replace some bytes, truncate the frame, or append bytes."""
        chance = self.chance
        damaged = bytearray(data)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(damaged)) if damaged else 0
            patch = chance.choice([*_DAMAGE, bytes([chance.randrange(256)])])
            damaged[at : at + len(patch)] = patch
        if chance.random() < 0.3:
            del damaged[chance.randrange(len(damaged)) :]
        elif chance.random() < 0.1:
            damaged += chance.randbytes(20)
        return bytes(damaged)


def answers_of(node: BrokerNode, frame: bytes) -> list[object] | None:
    """The responses to *frame*, immediate and after all possible waits; None if it is not a request."""
    node.responses.clear()
    try:
        node.handle_frame(frame)
    except ProtocolError:
        # The network thread closes the connection before any handler sees it.
        return None
    if not _final(node):
        node.clock.advance(2**31)
        node.timer.run_due(node.clock.now_ms)
    found = _final(node)
    for response in node.responses:
        if isinstance(response, SendResponse):
            response.complete()
    return found


def _final(node: BrokerNode) -> list[object]:
    known = (SendResponse, NoOpResponse, CloseConnectionResponse)
    assert all(isinstance(one, (*known, StartThrottlingResponse, EndThrottlingResponse)) for one in node.responses)
    return [one for one in node.responses if isinstance(one, known)]


@pytest.mark.behaviour(
    "Faults: hostile clients", "No request, however damaged, escapes the handlers or stays unanswered"
)
def test_no_request_escapes_or_goes_unanswered(figure: Figure) -> None:
    answered = closed = refused = 0
    seen: set[ApiKey] = set()
    for seed in range(-(-REQUESTS // PER_BROKER)):
        maker = Maker(seed)
        node = BrokerNode()
        for name in ("t", "u"):
            node.cluster.create_topic(name, 2)
            topic = node.cluster.topic(name)
            assert topic is not None
            maker.topic_ids.append(topic.topic_id)
        for number in range(PER_BROKER):
            frame = maker.frame()
            try:
                answers = answers_of(node, frame)
            except Exception as error:
                pytest.fail(f"seed {seed}, request {number}, {frame.hex()}: {error!r}")
            if answers is None:
                refused += 1
                continue
            assert len(answers) == 1, f"seed {seed}, request {number}, {frame.hex()}: {len(answers)} answers"
            if isinstance(answers[0], CloseConnectionResponse):
                closed += 1
            else:
                answered += 1
                seen.add(answers[0].request.context.header.api_key)  # type: ignore[attr-defined]
    figure("requests", f"{REQUESTS}: {answered} answered, {closed} closed, {refused} no request at all")
    assert seen == set(HANDLERS)
