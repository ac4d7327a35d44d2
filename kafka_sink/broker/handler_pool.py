"""The threads that handle requests.

Each is a shell round :meth:`HandlerPool.handle_one`. Must never die of a request: what a handler lets escape costs that
connection and nothing else.

Source: apache/kafka ``KafkaRequestHandlerPool``.
"""

from __future__ import annotations

import threading

from kafka_sink.broker.request_channel import CloseConnectionResponse, RequestChannel, RequestHandler
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.threads import start_thread


class HandlerPool:
    """*threads* threads that take requests from *channel* and give them to *handle*."""

    def __init__(self, name: str, channel: RequestChannel, handle: RequestHandler, threads: int) -> None:
        self._name = name
        self._log = ContextLogger(__name__, name)
        self._channel = channel
        self._handle = handle
        self._size = threads
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads."""
        self._threads = [start_thread(f"{self._name}-{number}", self._run) for number in range(self._size)]

    def handle_one(self) -> bool:
        """Wait for a request and handle it; False when this thread has to end."""
        request = self._channel.receive_request()
        if request is None:
            return False
        try:
            self._handle(request)
        except Exception:
            context = request.context
            self._log.exception(
                "handling %s of %s failed, closing its connection", context.header.api_key.name, context.connection_id
            )
            self._channel.send_response(CloseConnectionResponse(request))
        return True

    def _run(self) -> None:
        while self.handle_one():
            continue

    def shutdown(self) -> None:
        """End the threads; returns when the requests they were at are handled."""
        self._channel.shutdown(len(self._threads))
        for thread in self._threads:
            thread.join()
        self._threads = []
