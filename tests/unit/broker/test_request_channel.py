"""The queue between network threads and request handlers, and the handler threads."""

from __future__ import annotations

import pytest

from kafka_sink.broker.network.request_channel import (
    CloseConnectionResponse,
    HandlerPool,
    NoOpResponse,
    Request,
    RequestChannel,
    RequestContext,
    Response,
)
from kafka_sink.common.metrics import IdleMeter
from kafka_sink.common.threads import start_thread
from kafka_sink.network.frames import MemoryPool, NetworkReceive
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import RequestHeader


class Responses:
    """A processor that only collects its responses."""

    def __init__(self) -> None:
        self.got: list[Response] = []

    def enqueue_response(self, response: Response) -> None:
        self.got.append(response)


def request(
    processor: Responses | None = None, connection: str = "c", receive: NetworkReceive | None = None
) -> Request:
    header = RequestHeader(ApiKey.METADATA, 1, 7, "test")
    context = RequestContext(header, connection, "127.0.0.1", "PLAINTEXT")
    return Request(processor or Responses(), context, receive or NetworkReceive(connection, memoryview(b"")), 0)


def test_requests_come_out_in_order() -> None:
    channel = RequestChannel(10)
    sent = [request(connection=str(number)) for number in range(3)]
    for each in sent:
        channel.send_request(each)
    assert channel.queued == 3
    assert [channel.receive_request() for _ in sent] == sent


@pytest.mark.behaviour("RequestChannel", "A full queue makes the network thread wait")
def test_full_queue_blocks_network_thread_until_one_is_taken() -> None:
    channel = RequestChannel(1)
    first, second = request(), request()
    channel.send_request(first)
    blocked = start_thread("network", lambda: channel.send_request(second))
    blocked.join(0.05)
    assert blocked.is_alive() and channel.queued == 1
    assert channel.receive_request() is first
    blocked.join(60)
    assert not blocked.is_alive()
    assert channel.receive_request() is second


@pytest.mark.behaviour("RequestChannel", "A response goes to the processor of its request")
def test_responses_find_the_processor_their_request_came_from() -> None:
    channel = RequestChannel(1)
    processors = [Responses(), Responses()]
    response = NoOpResponse(request(processors[1]))
    channel.send_response(response)
    assert [processor.got for processor in processors] == [[], [response]]


def test_release_gives_the_payloads_memory_back_once() -> None:
    pool = MemoryPool(100)
    assert pool.try_reserve(60)
    held = request(receive=NetworkReceive("c", memoryview(bytes(60)), pool))
    held.release()
    held.release()
    assert pool.available_bytes == 100


def test_handlers_handle_everything_and_end() -> None:
    channel = RequestChannel(100)
    handled: list[Request] = []
    pool = HandlerPool("handler", channel, handled.append, 3)
    sent = [request() for _ in range(20)]
    pool.start()
    for each in sent:
        channel.send_request(each)
    while channel.queued:
        continue
    pool.shutdown()
    assert len(handled) == len(sent) and set(map(id, handled)) == set(map(id, sent))


@pytest.mark.behaviour("RequestChannel", "A handler that fails closes its connection and affects nothing else")
def test_failing_handler_closes_only_its_own_connection(caplog: pytest.LogCaptureFixture) -> None:
    channel = RequestChannel(2)
    processor = Responses()

    def fail(_: Request) -> None:
        raise KeyError("a mistake")

    pool = HandlerPool("handler", channel, fail, 1)
    bad = request(processor, "bad")
    channel.send_request(bad)
    assert pool.handle_one(IdleMeter(0)) is True
    assert processor.got == [CloseConnectionResponse(bad)]
    assert "handling METADATA of bad failed" in caplog.text


def test_shutdown_drops_what_nobody_has_begun() -> None:
    channel = RequestChannel(5)
    channel.send_request(request())
    channel.shutdown(handlers=1)
    assert channel.receive_request() is None
