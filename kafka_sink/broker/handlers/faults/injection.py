"""Applies faults to requests: selects the faults that are due and handles the request accordingly.

The dispatcher calls it on handler threads, only while faults are set. All faults that are due for a request are applied
together: errors first, then effects on the answer, in the order in which they were set. Requests without a due fault
must be handled as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from kafka_sink.broker.faults import error_response
from kafka_sink.broker.faults.fault import Answer, Close, Delay, Drop, Duplicate, Fault, Slow
from kafka_sink.broker.handlers.context import ApiRequest, BrokerContext
from kafka_sink.broker.handlers.faults.answers import Closed, Dripped, Halved, Held, Lost, Swallowed
from kafka_sink.broker.network.request_channel import CloseConnectionResponse, Request, ResponseSink
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import decode_request_body
from kafka_sink.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafka_sink.protocol.messages.produce import ProduceRequest
from kafka_sink.protocol.schema import Struct

Handle: TypeAlias = Callable[[ApiRequest[Any]], None]

_NO_ACKS = 0


def handle_with_faults(
    context: BrokerContext, request: Request, sink: ResponseSink, body: Struct, handle: Handle, log: ContextLogger
) -> None:
    """Handle *request* with the faults that are due."""
    header = request.context.header
    cut = _Cutter(context, header.api_key, header.api_version, body)
    due = [
        item.fault
        for item in context.faults.may_befall(header.api_key.name.lower(), context.node_id)
        if cut.befalls(item.fault) and item.is_due()
    ]
    for fault in due:
        log.info("fault: %s of %s is affected by %r", header.api_key.name, request.context.connection_id, fault)
    effects = [fault.effect for fault in due]
    if Drop("request") in effects:
        request.release()
        return
    if Close("request") in effects:
        sink.send_response(CloseConnectionResponse(request))
        return
    for effect in effects:
        sink = _changed(context, sink, effect)
    refused = next((fault for fault in due if isinstance(fault.effect, Answer)), None)
    if refused is not None and isinstance(refused.effect, Answer):
        _refuse(ApiRequest(request, sink, body), cut, refused, refused.effect.code, handle)
    elif Duplicate() in effects:
        again = decode_request_body(header, request.payload, request.body_offset)
        then = partial(handle, ApiRequest(request, sink, again))
        handle(ApiRequest(request, Swallowed(then), body))
    else:
        handle(ApiRequest(request, sink, body))


def _changed(context: BrokerContext, sink: ResponseSink, effect: object) -> ResponseSink:
    match effect:
        case Delay(delay_ms):
            return Held(sink, context.timer, context.clock, delay_ms)
        case Drop():
            return Lost(sink)
        case Close(at):
            return Halved(sink) if at == "half" else Closed(sink)
        case Slow(over_ms):
            return Dripped(sink, context.timer, context.clock, over_ms)
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
        handle(_Patched(request, lambda answer: _metadata(answer, fault, code)))
        return
    hit, rest = cut.cut(fault)
    assert hit is not None, "a fault applied to the request"
    refusal = error_response.error_response(cut.key, cut.version, hit, code)
    if rest is None:
        request.respond(refusal)
        return
    handle(_Patched(request, lambda answer: error_response.joined(cut.key, cut.version, answer, refusal), rest))


def _metadata(answer: Struct, fault: Fault, code: ErrorCode) -> Struct:
    assert isinstance(answer, MetadataResponse)
    return error_response.metadata_with_errors(answer, partial(_means, fault), code)


class _Patched(ApiRequest[Any]):
    """A request, or a part of it with *body*, whose answer is changed before it is sent."""

    __slots__ = ("_change",)

    def __init__(
        self, request: ApiRequest[Any], change: Callable[[Struct], Struct], body: Struct | None = None
    ) -> None:
        super().__init__(request.request, request.sink, request.body if body is None else body)
        self._change = change

    def respond_in_version(self, body: Struct, version: int, on_complete: Callable[[], None] | None = None) -> None:
        super().respond_in_version(self._change(body), version, on_complete)
