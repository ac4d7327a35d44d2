"""The memory of a request is estimated before it is decoded: many small items cost more than their bytes."""

from __future__ import annotations

import contextlib
import gc
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_sink.broker.network.request_channel import CloseConnectionResponse
from kafka_sink.common.errors import ProtocolError
from kafka_sink.protocol import codec
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import decode_request_body, decode_request_header
from kafka_sink.protocol.registry import api
from kafka_sink.protocol.schema import StructField
from tests.fakes.broker_node import BrokerNode
from tests.support.request_items import arrays, frame_of

#: Number of items of an array.
MANY = 250
#: Bytes that only the first request of its kind allocates: compiled readers, caches.
BESIDES = 64_000


def asked() -> Iterator[Any]:
    for key, field in arrays():
        with contextlib.suppress(ValueError):
            frame_of(key, field, [0])
            yield pytest.param(key, field, id=f"{key.name} {field.name}")


ASKED = list(asked())


@pytest.mark.behaviour("Faults: hostile clients", "A request takes 8 times its size of memory at most, or 64 MiB")
@pytest.mark.parametrize(("key", "field"), ASKED)
def test_a_request_takes_no_more_than_is_estimated(
    key: ApiKey, field: StructField, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = frame_of(key, field, list(range(MANY)))
    # The memory of topics that a request creates has a limit of its own, so this node creates none.
    node = BrokerNode(auto_create_topics_enable=False)
    node.cluster.create_topic("t", 1)
    node.handle_frame(frame)
    del node.responses[:]
    gc.collect()
    tracemalloc.start()
    try:
        node.handle_frame(frame)
        taken = tracemalloc.get_traced_memory()[1] - BESIDES
    finally:
        tracemalloc.stop()
    monkeypatch.setattr(codec, "MOST_TIMES", 0)
    monkeypatch.setattr(codec, "LEAST_BYTES", max(taken, 1))
    header, offset = decode_request_header(frame)
    with pytest.raises(ProtocolError, match="it names so much that it would take more than"):
        decode_request_body(header, frame, offset)


def test_most_arrays_of_requests_are_tried() -> None:
    assert len(ASKED) > 40


def test_a_connection_that_asks_for_too_much_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    node = BrokerNode()
    body = api(ApiKey.FIND_COORDINATOR).request()
    body.coordinator_keys = [f"n{number}" for number in range(MANY)]  # type: ignore[attr-defined]
    node.call(ApiKey.FIND_COORDINATOR, 4, body)
    monkeypatch.setattr(codec, "LEAST_BYTES", 20_000)
    node.send(ApiKey.FIND_COORDINATOR, 4, body)
    (response,) = node.responses
    assert isinstance(response, CloseConnectionResponse)
