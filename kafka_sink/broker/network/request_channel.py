"""Where the network layer and the handlers meet: requests one way, responses the other.

Processors put requests in (and wait while the queue is full), handlers take them out and answer from any thread; every
processor has its own queue of responses. Must never hold a lock while anybody handles anything.

Source: apache/kafka ``RequestChannel``.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from kafka_sink.common.buffers import Buffer
from kafka_sink.common.clock import stopwatch_ns
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.network.receive import NetworkReceive
from kafka_sink.protocol.header import RequestHeader


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Whose request it is and by which way it came."""

    header: RequestHeader
    connection_id: str
    client_address: str
    listener_name: str
    #: Who the client is, as its connection has shown: ``User:name``.
    principal: str = "User:ANONYMOUS"


class Request:
    """A received request, until it is answered."""

    __slots__ = (
        "_receive",
        "body_offset",
        "context",
        "dequeued_ns",
        "handled_ns",
        "processor",
        "received_ns",
        "responded_ns",
        "response_dequeued_ns",
        "throttle_ms",
    )

    def __init__(
        self,
        processor: int,
        context: RequestContext,
        receive: NetworkReceive,
        body_offset: int,
        received_ns: int = 0,
    ) -> None:
        #: Id of the processor that has the connection.
        self.processor = processor
        self.context = context
        #: Where in the payload the body begins.
        self.body_offset = body_offset
        self._receive = receive
        # Its life so far, for figures: instants of the stopwatch, 0 while they lie ahead.
        self.received_ns = received_ns
        self.dequeued_ns = 0
        self.handled_ns = 0
        self.responded_ns = 0
        self.response_dequeued_ns = 0
        self.throttle_ms = 0

    @property
    def payload(self) -> memoryview:
        """The frame, header included."""
        return self._receive.payload

    def release(self) -> None:
        """Nobody reads the payload any more: its memory may be used for other requests."""
        self._receive.release()


@dataclass(frozen=True, slots=True)
class NoOpResponse:
    """Nothing is sent (acks=0): the connection may be read again."""

    request: Request


@dataclass(frozen=True, slots=True)
class SendResponse:
    """*segments* (header and body, without the frame's length) are sent.

    *on_complete* runs once, on the processor's thread, when they have left or the connection is gone.
    """

    request: Request
    segments: Sequence[Buffer]
    on_complete: Callable[[], None] | None = None

    def complete(self) -> None:
        """It has left, or never will."""
        if self.on_complete is not None:
            self.on_complete()


@dataclass(frozen=True, slots=True)
class PieceResponse:
    """*data* is sent as it is, without a length in front: a piece of an answer. The request stays unanswered.

    *on_complete* runs once, on the processor's thread, when it has left or the connection is gone.
    """

    request: Request
    data: Buffer
    on_complete: Callable[[], None]

    def complete(self) -> None:
        """It has left, or never will."""
        self.on_complete()


@dataclass(frozen=True, slots=True)
class CloseConnectionResponse:
    """The connection is closed."""

    request: Request


@dataclass(frozen=True, slots=True)
class StartThrottlingResponse:
    """The connection is not read again before the throttling ends, answer or not."""

    request: Request


@dataclass(frozen=True, slots=True)
class EndThrottlingResponse:
    """The throttling is over."""

    request: Request


Response: TypeAlias = (
    NoOpResponse
    | SendResponse
    | PieceResponse
    | CloseConnectionResponse
    | StartThrottlingResponse
    | EndThrottlingResponse
)


class ResponseReceiver(Protocol):
    """A processor, as far as the channel needs it."""

    def enqueue_response(self, response: Response) -> None:
        """Take a response to send it on the processor's own thread (any thread calls this)."""
        ...


class ResponseSink(Protocol):
    """Where answers go: a request channel, or what changes them on their way there."""

    def send_response(self, response: Response) -> None:
        """Take a response to a request (any thread calls this)."""
        ...


#: Tells one handler thread to end.
_SHUTDOWN: Final = None


class RequestChannel:
    """A bounded queue of requests and the way back to the processors."""

    def __init__(self, capacity: int, name: str) -> None:
        self._log = ContextLogger(__name__, name)
        # Waits in C: a queue of the standard library that knows a bound costs several times as much per request.
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._capacity = capacity
        self._room = threading.Condition()
        self._waiting_for_room = 0
        self._lock = threading.Lock()
        self._processors: dict[int, ResponseReceiver] = {}

    def add_processor(self, processor_id: int, processor: ResponseReceiver) -> None:
        """Let responses find *processor*. :raises ValueError: the id is taken."""
        with self._lock:
            if processor_id in self._processors:
                raise ValueError(f"there is a processor {processor_id} already")
            self._processors[processor_id] = processor

    def remove_processor(self, processor_id: int) -> None:
        """Drop responses to this processor from now on."""
        with self._lock:
            self._processors.pop(processor_id, None)

    def send_request(self, request: Request) -> None:
        """Hand a request to the handlers; waits while the queue is full."""
        with self._room:
            if self._requests.qsize() >= self._capacity:
                self._waiting_for_room += 1
                while self._requests.qsize() >= self._capacity:
                    self._room.wait()
                self._waiting_for_room -= 1
            self._requests.put(request)

    def receive_request(self) -> Request | None:
        """The next request; waits for it. None says that the calling handler has to end."""
        request = self._requests.get()
        if self._waiting_for_room:
            # Whoever counted itself in before this was read is woken; whoever did after sees the room itself.
            with self._room:
                self._room.notify()
        return request

    def send_response(self, response: Response) -> None:
        """Hand a response to the processor that the request came from; dropped when that is gone."""
        if not isinstance(response, StartThrottlingResponse | EndThrottlingResponse):
            response.request.responded_ns = stopwatch_ns()
        processor = self._processors.get(response.request.processor)
        if processor is None:
            self._log.debug("dropping a response for %s", response.request.context.connection_id)
            if isinstance(response, SendResponse | PieceResponse):
                response.complete()
            return
        processor.enqueue_response(response)

    @property
    def queued(self) -> int:
        """Requests that wait for a handler."""
        return self._requests.qsize()

    def shutdown(self, handlers: int) -> None:
        """End *handlers* handler threads; requests nobody has begun are dropped."""
        while True:
            try:
                self._requests.get_nowait()
            except queue.Empty:
                break
        for _ in range(handlers):
            self._requests.put(_SHUTDOWN)


RequestHandler: TypeAlias = Callable[[Request], None]
