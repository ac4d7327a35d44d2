"""Faults of answers: delayed, lost, truncated, or sent in small pieces.

Each class wraps the sink of a handler's responses and passes on what it does not change. It is called by the thread
that answers; delayed work runs on the timer's thread, and work that follows sent bytes runs on the network thread. A
request must not be answered twice, and the resources of a response (its budget, its request's memory) must always be
released.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from kafka_sink.broker.network.request_channel import (
    CloseConnectionResponse,
    NoOpResponse,
    PieceResponse,
    Response,
    ResponseSink,
    SendResponse,
)
from kafka_sink.broker.timer import Timer
from kafka_sink.common.buffers import Buffer
from kafka_sink.common.clock import Clock
from kafka_sink.protocol.framing import frame

#: Number of pieces of a slow answer; fewer if it has fewer bytes.
SLOW_PIECES: Final = 20


def _is_end(response: Response) -> bool:
    """Whether the response ends the request; other responses only pause its connection."""
    return isinstance(response, SendResponse | NoOpResponse | CloseConnectionResponse)


class _Changed:
    """Passes on to *sink* what does not end a request."""

    def __init__(self, sink: ResponseSink) -> None:
        self._sink = sink

    def send_response(self, response: Response) -> None:
        if _is_end(response):
            self._end(response)
        else:
            self._sink.send_response(response)

    def _end(self, response: Response) -> None:
        raise NotImplementedError


class Held(_Changed):
    """Answers are sent *delay_ms* later."""

    def __init__(self, sink: ResponseSink, timer: Timer, clock: Clock, delay_ms: int) -> None:
        super().__init__(sink)
        self._timer = timer
        self._clock = clock
        self._delay_ms = delay_ms

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


class Dripped(_Changed):
    """An answer's bytes are sent in pieces over *over_ms*."""

    def __init__(self, sink: ResponseSink, timer: Timer, clock: Clock, over_ms: int) -> None:
        super().__init__(sink)
        self._timer = timer
        self._clock = clock
        self._over_ms = over_ms

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


class Swallowed:
    """The answer, and its throttling, if any, are dropped; then *then* is called. The request stays unanswered."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then

    def send_response(self, response: Response) -> None:
        if _is_end(response):
            if isinstance(response, SendResponse):
                response.complete()
            self._then()


def _bytes_of(response: SendResponse) -> memoryview:
    return memoryview(b"".join(memoryview(segment) for segment in frame(response.segments)))
