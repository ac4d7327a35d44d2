"""Applies faults to requests and to their answers, between the dispatcher and the handlers.

The dispatcher calls it on handler threads, only while faults are set. All faults that are due for a request are applied
together: errors first, then effects on the answer, in the order in which they were set. It must not change handlers: it
passes a part of the request to the handler, or wraps the sink of its responses. Delayed work runs on the timer's
thread, and work that follows sent bytes runs on the network thread. A request must not be answered twice, and the
resources of a response (its budget, its request's memory) must always be released.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final
from uuid import UUID

from kafka_sink.broker.faults import error_response
from kafka_sink.broker.faults.faults import Fault
from kafka_sink.broker.handlers.context import ApiRequest, BrokerContext, Handle
from kafka_sink.broker.network.request_channel import (
    CloseConnectionResponse,
    NoOpResponse,
    Response,
    ResponseSink,
    SendResponse,
)
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.framing import frame
from kafka_sink.protocol.header import decode_request_body
from kafka_sink.protocol.messages.metadata import MetadataRequest
from kafka_sink.protocol.messages.produce import ProduceRequest
from kafka_sink.protocol.schema import Struct

#: Number of pieces of a slow answer; fewer if it has fewer bytes.
SLOW_PIECES: Final = 20


def _is_end(response: Response) -> bool:
    """Whether the response ends the request; other responses only pause its connection, or are a part of an answer."""
    if isinstance(response, SendResponse):
        return response.is_whole
    return isinstance(response, NoOpResponse | CloseConnectionResponse)


@dataclass
class _Changed:
    """Passes responses that do not end a request to *sink*, and the others to *end*, together with the sink."""

    _sink: ResponseSink
    _end: Callable[[ResponseSink, Response], None]

    def send_response(self, response: Response) -> None:
        if _is_end(response):
            self._end(self._sink, response)
        else:
            self._sink.send_response(response)


@dataclass
class Swallowed:
    """The answer, and its throttling, if any, are dropped; then *then* is called. The request stays unanswered."""

    _then: Callable[[], None]

    def send_response(self, response: Response) -> None:
        if _is_end(response):
            _complete(response)
            self._then()


def _complete(response: Response) -> None:
    if isinstance(response, SendResponse):
        response.complete()


def _lose(sink: ResponseSink, response: Response) -> None:
    """The answer is not sent, and the connection is not read again: the client sees a broker that hangs."""
    response.request.release()
    _complete(response)


def _close(sink: ResponseSink, response: Response) -> None:
    """The connection is closed instead of answering."""
    _complete(response)
    sink.send_response(CloseConnectionResponse(response.request))


def _halve(sink: ResponseSink, response: Response) -> None:
    """Half of an answer's bytes are sent, then the connection is closed."""
    if isinstance(response, SendResponse):
        data = _bytes_of(response)
        half, then = data[: len(data) // 2], partial(_close, sink, response)
        response = SendResponse(response.request, [half], then, is_whole=False)
    sink.send_response(response)


def _later(context: BrokerContext, delay_ms: int, action: Callable[[], None]) -> None:
    context.timer.schedule(context.clock.monotonic_ms() + delay_ms, action)


def _drip(context: BrokerContext, over_ms: int, sink: ResponseSink, response: Response) -> None:
    """The answer's bytes are sent in pieces over *over_ms*."""
    if not isinstance(response, SendResponse):
        sink.send_response(response)
        return
    data = _bytes_of(response)
    count = min(SLOW_PIECES, len(data))

    def send(number: int) -> None:
        piece = data[len(data) * number // count : len(data) * (number + 1) // count]
        sink.send_response(SendResponse(response.request, [piece], partial(sent, number), is_whole=False))

    def sent(number: int) -> None:
        if number + 1 < count:
            _later(context, over_ms // count, partial(send, number + 1))
            return
        response.complete()
        # All bytes are sent: the connection has nothing left to send for this request.
        sink.send_response(NoOpResponse(response.request))

    send(0)


def _bytes_of(response: SendResponse) -> memoryview:
    return memoryview(b"".join(memoryview(segment) for segment in frame(response.segments)))


_NO_ACKS = 0


def handle_with_faults(request: ApiRequest[Any], handle: Handle, log: ContextLogger) -> None:
    """Pass the request, or the part that the due faults leave, to *handle*."""
    due = [
        item.fault
        for item in request.broker.faults.may_befall(request.api_key.name.lower(), request.broker.node_id)
        if _befalls(item.fault, request) and item.is_due()
    ]
    for fault in due:
        connection_id = request.request.context.connection_id
        log.info("fault: %s of %s is affected by %s", request.api_key.name, connection_id, fault)
    if any(fault.drop == "request" for fault in due):
        request.request.release()
        return
    if any(fault.close == "request" for fault in due):
        request.close_connection()
        return
    for fault in due:
        request.sink = _changed(request.broker, request.sink, fault)
    refused = next((fault for fault in due if fault.error is not None), None)
    if refused is not None and refused.error is not None:
        _refuse(request, refused, refused.error, handle)
    elif any(fault.duplicate for fault in due):
        received = request.request
        again = decode_request_body(received.context.header, received.payload, received.body_offset)
        then = partial(handle, replace(request, body=again))
        handle(replace(request, sink=Swallowed(then)))
    else:
        handle(request)


def _changed(context: BrokerContext, sink: ResponseSink, fault: Fault) -> ResponseSink:
    if fault.delay_ms is not None:
        wait = partial(_later, context, fault.delay_ms)
        return _Changed(sink, lambda to, response: wait(partial(to.send_response, response)))
    if fault.slow_ms is not None:
        return _Changed(sink, partial(_drip, context, fault.slow_ms))
    if fault.drop is not None:
        return _Changed(sink, _lose)
    if fault.close is not None:
        return _Changed(sink, _halve if fault.close == "half" else _close)
    return sink


def _befalls(fault: Fault, request: ApiRequest[Any]) -> bool:
    if isinstance(request.body, MetadataRequest) and request.body.topics is None:
        return True
    return _cut(request, fault)[0] is not None


def _cut(request: ApiRequest[Any], fault: Fault) -> tuple[Struct | None, Struct | None]:
    """Split the request into the part to which *fault* applies, and the rest."""
    if fault.topic is None:
        return request.body, None

    def topic_name(topic_id: UUID) -> str | None:
        topic = request.broker.cluster.topic_by_id(topic_id)
        return None if topic is None else topic.name

    return error_response.split(request.api_key, request.version, request.body, partial(_means, fault), topic_name)


def _means(fault: Fault, topic: str | None, partition: int | None) -> bool:
    if fault.topic is not None and topic != fault.topic:
        return False
    return partition is None or fault.partition is None or partition == fault.partition


def _refuse(request: ApiRequest[Any], fault: Fault, code: ErrorCode, handle: Handle) -> None:
    if isinstance(request.body, ProduceRequest) and request.body.acks == _NO_ACKS:
        # As in Kafka: the client expects no answer, so only a closed connection shows the error.
        request.close_connection()
        return
    key, version = request.api_key, request.version
    if key is ApiKey.METADATA:
        wanted = partial(_means, fault)
        handle(
            _Patched.of(request, lambda answer: error_response.metadata_with_errors(answer, wanted, code), request.body)
        )
        return
    hit, rest = _cut(request, fault)
    assert hit is not None, "a fault applied to the request"
    refusal = error_response.error_response(key, version, hit, code)
    if rest is None:
        request.respond(refusal)
        return
    handle(_Patched.of(request, lambda answer: error_response.joined(key, version, answer, refusal), rest))


@dataclass(slots=True, eq=False)
class _Patched(ApiRequest[Any]):
    """A request, or a part of it, whose answer is changed before it is sent."""

    change: Callable[[Struct], Struct]

    @classmethod
    def of(cls, request: ApiRequest[Any], change: Callable[[Struct], Struct], body: Struct) -> _Patched:
        return cls(request.broker, request.request, request.sink, body, change)

    def respond_in_version(self, body: Struct, version: int, on_complete: Callable[[], None] | None = None) -> None:
        ApiRequest.respond_in_version(self, self.change(body), version, on_complete)
