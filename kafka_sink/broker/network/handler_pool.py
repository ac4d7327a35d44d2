"""The request handler threads.

Each thread runs :meth:`HandlerPool.handle_one` in a loop. A request must not end a thread: if a handler raises an
exception, only that connection is closed.

Source: apache/kafka ``KafkaRequestHandlerPool``.
"""

from __future__ import annotations

import threading
from functools import partial

from kafka_sink.broker.network.request_channel import CloseConnectionResponse, RequestChannel, RequestHandler
from kafka_sink.common.clock import stopwatch_ns
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.metrics import IdleMeter
from kafka_sink.common.threads import start_thread


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
        """Start the threads."""
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
            # Released before the answer: delayed requests would otherwise hold memory that other requests need to be
            # read.
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
