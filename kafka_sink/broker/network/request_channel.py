"""The connection between the network layer and the handlers: a queue of requests, queues of responses, and the threads
that handle requests.

Processors enqueue requests (and block while the queue is full); handler threads dequeue them and answer from any
thread; every processor has its own queue of responses. No lock may be held while a request is handled, and a request
must not end a handler thread: if its handler raises an exception, only that connection is closed.

Source: apache/kafka ``RequestChannel``, ``KafkaRequestHandlerPool``.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeAlias

from kafka_sink.common.buffers import Buffer
from kafka_sink.common.clock import stopwatch_ns
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.metrics import IdleMeter
from kafka_sink.common.threads import start_thread
from kafka_sink.network.frames import NetworkReceive
from kafka_sink.protocol.header import RequestHeader


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The client of a request, and the listener and connection on which it arrived."""

    header: RequestHeader
    connection_id: str
    client_address: str
    listener_name: str
    #: The authenticated principal of the connection: ``User:name``.
    principal: str = "User:ANONYMOUS"


class ResponseReceiver(Protocol):
    """The interface of a processor for its requests."""

    def enqueue_response(self, response: Response) -> None:
        """Queue a response, to be sent by the processor's thread, or dropped if that has ended (any thread)."""


@dataclass(slots=True, eq=False)
class Request:
    """A received request, until it is answered."""

    #: The processor that owns the connection.
    processor: ResponseReceiver
    context: RequestContext
    _receive: NetworkReceive
    #: Offset of the body in the payload.
    body_offset: int
    # Timestamps for metrics, in ns of a monotonic clock; 0 for events that have not happened yet.
    received_ns: int = 0
    dequeued_ns: int = 0
    handled_ns: int = 0
    responded_ns: int = 0
    response_dequeued_ns: int = 0
    throttle_ms: int = 0

    @property
    def payload(self) -> memoryview:
        """The frame, header included."""
        return self._receive.payload

    def release(self) -> None:
        """Release the payload's memory for other requests; the payload must not be read afterwards."""
        self._receive.release()


@dataclass(frozen=True, slots=True)
class NoOpResponse:
    """No response is sent (acks=0); the connection may be read again."""

    request: Request


@dataclass(frozen=True, slots=True)
class SendResponse:
    """*segments* (header and body, without the frame's length) are sent; if not *is_whole*, they are a part of a
    frame, sent as it is, and the request stays unanswered.

    *on_complete* runs once, on the processor's thread, when they were sent or the connection is closed.
    """

    request: Request
    segments: Sequence[Buffer]
    on_complete: Callable[[], None] | None = None
    is_whole: bool = True

    def complete(self) -> None:
        """Called when the response was sent or dropped."""
        if self.on_complete is not None:
            self.on_complete()


@dataclass(frozen=True, slots=True)
class CloseConnectionResponse:
    """The connection is closed."""

    request: Request


@dataclass(frozen=True, slots=True)
class StartThrottlingResponse:
    """The connection is not read before the throttling ends, even if the response was sent."""

    request: Request


@dataclass(frozen=True, slots=True)
class EndThrottlingResponse:
    """The throttling has ended."""

    request: Request


Response: TypeAlias = (
    NoOpResponse | SendResponse | CloseConnectionResponse | StartThrottlingResponse | EndThrottlingResponse
)


class ResponseSink(Protocol):
    """The destination of responses: a request channel, or a wrapper that changes them."""

    def send_response(self, response: Response) -> None:
        """Accept a response to a request (any thread may call this)."""


#: Tells one handler thread to end.
_SHUTDOWN: Final = None


class RequestChannel:
    """A bounded queue of requests and the way back to the processors."""

    def __init__(self, capacity: int) -> None:
        #: The number of requests after which :meth:`send_request` waits.
        self.capacity = capacity
        # SimpleQueue is implemented in C: a bounded queue.Queue costs several times as much per request.
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._room = threading.Condition()
        self._waiting_for_room = 0

    def send_request(self, request: Request) -> None:
        """Enqueue a request for the handlers; blocks while the queue is full."""
        with self._room:
            if self._requests.qsize() >= self.capacity:
                self._waiting_for_room += 1
                while self._requests.qsize() >= self.capacity:
                    self._room.wait()
                self._waiting_for_room -= 1
            self._requests.put(request)

    def receive_request(self) -> Request | None:
        """Wait for the next request. None tells the calling handler thread to end."""
        request = self._requests.get()
        if self._waiting_for_room:
            # Threads registered as waiting before this check are notified; later ones see the free slot themselves.
            with self._room:
                self._room.notify()
        return request

    def send_response(self, response: Response) -> None:
        """Pass a response to the processor of its request."""
        if not isinstance(response, StartThrottlingResponse | EndThrottlingResponse):
            response.request.responded_ns = stopwatch_ns()
        response.request.processor.enqueue_response(response)

    @property
    def queued(self) -> int:
        """Requests that wait for a handler."""
        return self._requests.qsize()

    def shutdown(self, handlers: int) -> None:
        """End *handlers* handler threads; requests that no handler has received are dropped."""
        while True:
            try:
                self._requests.get_nowait()
            except queue.Empty:
                break
        for _ in range(handlers):
            self._requests.put(_SHUTDOWN)


RequestHandler: TypeAlias = Callable[[Request], None]


class HandlerPool:
    """*threads* threads that receive requests from *channel* and pass them to *handle*."""

    def __init__(self, name: str, channel: RequestChannel, handle: RequestHandler, threads: int) -> None:
        self._name = name
        self._log = ContextLogger(__name__, name)
        self._channel = channel
        self._handle = handle
        self._idle = [IdleMeter(stopwatch_ns()) for _ in range(threads)]
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._threads = [
            start_thread(f"{self._name}-{number}", partial(self._run, idle)) for number, idle in enumerate(self._idle)
        ]

    @property
    def idle_share(self) -> float:
        """The share of time in which the threads wait for requests, from 0 to 1."""
        now_ns = stopwatch_ns()
        return sum(idle.share(now_ns) for idle in self._idle) / len(self._idle)

    def handle_one(self, idle: IdleMeter) -> bool:
        """Wait for a request and handle it; False if this thread has to end."""
        idle.begin_wait(stopwatch_ns())
        request = self._channel.receive_request()
        now_ns = stopwatch_ns()
        idle.end_wait(now_ns)
        if request is None:
            return False
        request.dequeued_ns = now_ns
        try:
            self._handle(request)
        except Exception:
            context = request.context
            self._log.exception(
                "handling %s of %s failed, closing its connection", context.header.api_key.name, context.connection_id
            )
            self._channel.send_response(CloseConnectionResponse(request))
        finally:
            request.handled_ns = stopwatch_ns()
            # Released before the answer: delayed requests would hold memory that others need to be read.
            request.release()
        return True

    def _run(self, idle: IdleMeter) -> None:
        while self.handle_one(idle):
            continue

    def shutdown(self) -> None:
        """End the threads; returns when the requests in progress are handled."""
        self._channel.shutdown(len(self._threads))
        for thread in self._threads:
            thread.join()
        self._threads = []
