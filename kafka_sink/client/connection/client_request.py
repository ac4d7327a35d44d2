"""A request and its outcome; and the requests in flight, which were passed to a connection and are not
answered yet.

Created on the thread that drives the NetworkClient; callbacks also run on that thread. :class:`InFlightRequests` is
owned by one NetworkClient and used on its thread; other threads may only read the counters. A connection returns
answers in the order of its requests, so one queue per connection is enough to match them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.errors import AuthenticationError, UnsupportedVersionError
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.schema import Struct

#: Builds the request's body once the version is negotiated with the broker.
BodyBuilder = Callable[[int], Struct]


@dataclass(frozen=True, slots=True, eq=False)
class ClientRequest:
    """A request to *destination* (a connection id); *timeout_ms* counts from the moment when the request is passed to
    the connection.

    *max_version* limits the negotiated version. Without *expect_response* the request is complete once it is written.
    """

    destination: str
    api_key: ApiKey
    build: BodyBuilder
    correlation_id: int
    created_ms: int
    expect_response: bool
    timeout_ms: int
    max_version: int | None
    callback: ResponseCallback | None

    def __str__(self) -> str:
        return f"{self.api_key.name} request {self.correlation_id}"


@dataclass(frozen=True, slots=True, eq=False)
class ClientResponse:
    """The outcome of a request, exactly one of: an answer (*body*, None if none was expected), *disconnected* (*cause*
    says why), or *version_mismatch* (broker and client have no version of the API in common; nothing was sent)."""

    request: ClientRequest
    received_ms: int
    body: Struct | None = None
    disconnected: bool = False
    version_mismatch: UnsupportedVersionError | None = None
    authentication_error: AuthenticationError | None = None
    cause: str = ""

    @property
    def latency_ms(self) -> int:
        return self.received_ms - self.request.created_ms


ResponseCallback = Callable[[ClientResponse], None]


@dataclass(slots=True)
class InFlightRequest:
    """A request in flight: the *version* in which it was encoded, and whether the client itself sent it
    (*is_internal*)."""

    request: ClientRequest
    version: int
    is_internal: bool
    sent_ms: int

    def time_to_timeout_ms(self, now_ms: int) -> int:
        """The time until the request times out."""
        return self.sent_ms + self.request.timeout_ms - now_ms


class InFlightRequests:
    """The queue of each connection, newest request first, as in Kafka. The newest request may still be partly written;
    the next answer belongs to the oldest.

    This class only counts requests. The selectable determines whether the newest is written, so that another may
    follow.
    """

    def __init__(self, max_per_connection: int) -> None:
        self._max_per_connection = max_per_connection
        self._requests: dict[str, deque[InFlightRequest]] = {}
        self._total = 0

    def add(self, entry: InFlightRequest) -> None:
        """Add a request that is passed to the selectable now."""
        self._requests.setdefault(entry.request.destination, deque()).appendleft(entry)
        self._total += 1

    def complete_next(self, node_id: str) -> InFlightRequest:
        """Remove and return the oldest request, to which the next answer belongs.

        :raises RuntimeError: if nothing is in flight.
        """
        entry = self._queue(node_id).pop()
        self._total -= 1
        return entry

    def last_sent(self, node_id: str) -> InFlightRequest:
        """The newest request. :raises RuntimeError: if nothing is in flight."""
        return self._queue(node_id)[0]

    def complete_last_sent(self, node_id: str) -> InFlightRequest:
        """Remove and return the newest request. :raises RuntimeError: if nothing is in flight."""
        entry = self._queue(node_id).popleft()
        self._total -= 1
        return entry

    def _queue(self, node_id: str) -> deque[InFlightRequest]:
        queue = self._requests.get(node_id)
        if not queue:
            raise RuntimeError(f"there are no in-flight requests for node {node_id}")
        return queue

    def can_send_more(self, node_id: str) -> bool:
        """Whether the connection has fewer requests in flight than allowed."""
        return len(self._requests.get(node_id, ())) < self._max_per_connection

    def count(self, node_id: str | None = None) -> int:
        """The number of requests in flight to one node, or to all."""
        return self._total if node_id is None else len(self._requests.get(node_id, ()))

    def clear_all(self, node_id: str) -> Iterator[InFlightRequest]:
        """Remove and return all requests of one node, oldest first."""
        queue = self._requests.pop(node_id, deque())
        self._total -= len(queue)
        return reversed(queue)

    def nodes_with_timed_out_requests(self, now_ms: int) -> list[tuple[str, InFlightRequest]]:
        """The nodes with timed-out requests, each with the oldest such request."""
        timed_out = []
        for node_id, queue in self._requests.items():
            late = next((entry for entry in reversed(queue) if entry.time_to_timeout_ms(now_ms) < 0), None)
            if late is not None:
                timed_out.append((node_id, late))
        return timed_out

    def time_to_next_timeout_ms(self, now_ms: int) -> int:
        """The time until :meth:`nodes_with_timed_out_requests` may return a node."""
        entries = (entry for queue in self._requests.values() for entry in queue)
        return max(min((entry.time_to_timeout_ms(now_ms) for entry in entries), default=FOREVER_MS) + 1, 0)
