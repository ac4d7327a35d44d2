"""Applies faults to requests and to their answers, between the dispatcher and the handlers.

The dispatcher calls it on handler threads, only while faults are set. All faults that are due for a request are applied
together: errors first, then effects on the answer, in the order in which they were set. It must not change handlers: it
passes a part of the request to the handler, or wraps the sink of its responses. Delayed work runs on the timer's
thread, and work that follows sent bytes runs on the network thread. A request must not be answered twice, and the
resources of a response (its budget, its request's memory) must always be released.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kafka_sink.broker.delays import Timer
from kafka_sink.broker.faults import error_response
from kafka_sink.broker.faults.faults import Fault
from kafka_sink.broker.handlers.context import ApiRequest, BrokerContext, Handle
from kafka_sink.broker.network.request_channel import (
    CloseConnectionResponse,
    NoOpResponse,
    PieceResponse,
    Request,
    Response,
    ResponseSink,
    SendResponse,
)
from kafka_sink.common.buffers import Buffer
from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.framing import frame
from kafka_sink.protocol.header import decode_request_body
from kafka_sink.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafka_sink.protocol.messages.produce import ProduceRequest
from kafka_sink.protocol.schema import Struct

#: Number of pieces of a slow answer; fewer if it has fewer bytes.
SLOW_PIECES: Final = 20


def _is_end(response: Response) -> bool:
    """Whether the response ends the request; other responses only pause its connection."""
    return isinstance(response, SendResponse | NoOpResponse | CloseConnectionResponse)


@dataclass
class _Changed:
    """Passes on to *sink* what does not end a request."""

    _sink: ResponseSink

    def send_response(self, response: Response) -> None:
        if _is_end(response):
            self._end(response)
        else:
            self._sink.send_response(response)

    def _end(self, response: Response) -> None:
        raise NotImplementedError


@dataclass
class Held(_Changed):
    """Answers are sent *delay_ms* later."""

    _timer: Timer
    _clock: Clock
    _delay_ms: int

    def _end(self, response: Response) -> None:
        due_ms = self._clock.monotonic_ms() + self._delay_ms
        self._timer.schedule(due_ms, partial(self._sink.send_response, response))


class Lost(_Changed):
    """Answers are not sent, and the connection is not read again: the client sees a broker that hangs."""

    def _end(self, response: Response) -> None:
        response.request.release()
        if isinstance(response, SendResponse):
            response.complete()


class Closed(_Changed):
    """The connection is closed instead of answering."""

    def _end(self, response: Response) -> None:
        if isinstance(response, SendResponse):
            response.complete()
        self._sink.send_response(CloseConnectionResponse(response.request))


class Halved(_Changed):
    """Half of an answer's bytes are sent, then the connection is closed."""

    def _end(self, response: Response) -> None:
        if not isinstance(response, SendResponse):
            self._sink.send_response(response)
            return
        request = response.request
        data = _bytes_of(response)

        def close() -> None:
            response.complete()
            self._sink.send_response(CloseConnectionResponse(request))

        self._sink.send_response(PieceResponse(request, data[: len(data) // 2], close))


@dataclass
class Dripped(_Changed):
    """An answer's bytes are sent in pieces over *over_ms*."""

    _timer: Timer
    _clock: Clock
    _over_ms: int

    def _end(self, response: Response) -> None:
        if not isinstance(response, SendResponse):
            self._sink.send_response(response)
            return
        data = _bytes_of(response)
        count = min(SLOW_PIECES, len(data))
        bounds = [len(data) * number // count for number in range(count + 1)]
        pieces = [data[start:end] for start, end in itertools.pairwise(bounds)]
        self._send(response, pieces, self._over_ms // count)

    def _send(self, response: SendResponse, pieces: Sequence[Buffer], pause_ms: int) -> None:
        request = response.request
        if len(pieces) == 1:
            self._sink.send_response(PieceResponse(request, pieces[0], partial(self._sent, response)))
            return

        def next_later() -> None:
            due_ms = self._clock.monotonic_ms() + pause_ms
            self._timer.schedule(due_ms, partial(self._send, response, pieces[1:], pause_ms))

        self._sink.send_response(PieceResponse(request, pieces[0], next_later))

    def _sent(self, response: SendResponse) -> None:
        response.complete()
        # All bytes are sent: the connection has nothing left to send for this request.
        self._sink.send_response(NoOpResponse(response.request))


@dataclass
class Swallowed:
    """The answer, and its throttling, if any, are dropped; then *then* is called. The request stays unanswered."""

    _then: Callable[[], None]

    def send_response(self, response: Response) -> None:
        if _is_end(response):
            if isinstance(response, SendResponse):
                response.complete()
            self._then()


def _bytes_of(response: SendResponse) -> memoryview:
    return memoryview(b"".join(memoryview(segment) for segment in frame(response.segments)))


_NO_ACKS = 0


def handle_with_faults(
    context: BrokerContext, request: Request, sink: ResponseSink, body: Struct, handle: Handle, log: ContextLogger
) -> None:
    header = request.context.header
    cut = _Cutter(context, header.api_key, header.api_version, body)
    due = [
        item.fault
        for item in context.faults.may_befall(header.api_key.name.lower(), context.node_id)
        if cut.befalls(item.fault) and item.is_due()
    ]
    for fault in due:
        log.info("fault: %s of %s is affected by %s", header.api_key.name, request.context.connection_id, fault)
    if any(fault.drop == "request" for fault in due):
        request.release()
        return
    if any(fault.close == "request" for fault in due):
        sink.send_response(CloseConnectionResponse(request))
        return
    for fault in due:
        sink = _changed(context, sink, fault)
    refused = next((fault for fault in due if fault.error is not None), None)
    if refused is not None and refused.error is not None:
        _refuse(ApiRequest(context, request, sink, body), cut, refused, refused.error, handle)
    elif any(fault.duplicate for fault in due):
        again = decode_request_body(header, request.payload, request.body_offset)
        then = partial(handle, ApiRequest(context, request, sink, again))
        handle(ApiRequest(context, request, Swallowed(then), body))
    else:
        handle(ApiRequest(context, request, sink, body))


def _changed(context: BrokerContext, sink: ResponseSink, fault: Fault) -> ResponseSink:
    if fault.delay_ms is not None:
        return Held(sink, context.timer, context.clock, fault.delay_ms)
    if fault.slow_ms is not None:
        return Dripped(sink, context.timer, context.clock, fault.slow_ms)
    if fault.drop is not None:
        return Lost(sink)
    if fault.close is not None:
        return Halved(sink) if fault.close == "half" else Closed(sink)
    return sink


class _Cutter:
    """Selects the part of one request to which a fault applies."""

    def __init__(self, context: BrokerContext, key: ApiKey, version: int, body: Struct) -> None:
        self._cluster = context.cluster
        self.key = key
        self.version = version
        self._body = body

    def befalls(self, fault: Fault) -> bool:
        if fault.topic is None:
            return True
        if isinstance(self._body, MetadataRequest) and self._body.topics is None:
            return True
        return self.cut(fault)[0] is not None

    def cut(self, fault: Fault) -> tuple[Struct | None, Struct | None]:
        """Split the request into the part to which *fault* applies, and the rest."""
        if fault.topic is None:
            return self._body, None
        return error_response.split(self.key, self.version, self._body, partial(_means, fault), self._topic_name)

    def _topic_name(self, topic_id: Any) -> str | None:
        topic = self._cluster.topic_by_id(topic_id)
        return None if topic is None else topic.name


def _means(fault: Fault, topic: str | None, partition: int | None) -> bool:
    if fault.topic is not None and topic != fault.topic:
        return False
    return partition is None or fault.partition is None or partition == fault.partition


def _refuse(request: ApiRequest[Any], cut: _Cutter, fault: Fault, code: ErrorCode, handle: Handle) -> None:
    if isinstance(request.body, ProduceRequest) and request.body.acks == _NO_ACKS:
        # As in Kafka: the client expects no answer, so only a closed connection shows the error.
        request.close_connection()
        return
    if cut.key is ApiKey.METADATA:
        handle(_Patched.of(request, lambda answer: _metadata(answer, fault, code), request.body))
        return
    hit, rest = cut.cut(fault)
    assert hit is not None, "a fault applied to the request"
    refusal = error_response.error_response(cut.key, cut.version, hit, code)
    if rest is None:
        request.respond(refusal)
        return
    handle(_Patched.of(request, lambda answer: error_response.joined(cut.key, cut.version, answer, refusal), rest))


def _metadata(answer: Struct, fault: Fault, code: ErrorCode) -> Struct:
    assert isinstance(answer, MetadataResponse)
    return error_response.metadata_with_errors(answer, partial(_means, fault), code)


@dataclass(slots=True, eq=False)
class _Patched(ApiRequest[Any]):
    """A request, or a part of it, whose answer is changed before it is sent."""

    change: Callable[[Struct], Struct]

    @classmethod
    def of(cls, request: ApiRequest[Any], change: Callable[[Struct], Struct], body: Struct) -> _Patched:
        return cls(request.broker, request.request, request.sink, body, change)

    def respond_in_version(self, body: Struct, version: int, on_complete: Callable[[], None] | None = None) -> None:
        ApiRequest.respond_in_version(self, self.change(body), version, on_complete)
