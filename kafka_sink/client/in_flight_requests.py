"""Requests handed to a connection and not answered yet.

Owned by one NetworkClient and its thread; only the counters may be read by others. A connection's answers come in the
order of its requests, so a queue per connection is all the matching there is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from kafka_sink.client.client_request import ClientRequest
from kafka_sink.common.clock import FOREVER_MS


@dataclass(slots=True)
class InFlightRequest:
    """A request on its way: in which *version* it was encoded, and whether the client itself asks (*is_internal*)."""

    request: ClientRequest
    version: int
    is_internal: bool
    sent_ms: int

    def time_to_timeout_ms(self, now_ms: int) -> int:
        """How long its answer may still take."""
        return self.sent_ms + self.request.timeout_ms - now_ms


class InFlightRequests:
    """Per connection: newest first, as Kafka's; the newest may still be being written, the oldest is answered next.

    It only counts. Whether the newest is written, so that another may follow, the selectable knows.
    """

    def __init__(self, max_per_connection: int) -> None:
        self._max_per_connection = max_per_connection
        self._requests: dict[str, deque[InFlightRequest]] = {}
        self._total = 0

    def add(self, entry: InFlightRequest) -> None:
        """It is handed to the selectable now."""
        self._requests.setdefault(entry.request.destination, deque()).appendleft(entry)
        self._total += 1

    def complete_next(self, node_id: str) -> InFlightRequest:
        """Take out the oldest: the next answer is its own. :raises RuntimeError: nothing is in flight."""
        entry = self._queue(node_id).pop()
        self._total -= 1
        return entry

    def last_sent(self, node_id: str) -> InFlightRequest:
        """The newest. :raises RuntimeError: nothing is in flight."""
        return self._queue(node_id)[0]

    def complete_last_sent(self, node_id: str) -> InFlightRequest:
        """Take out the newest. :raises RuntimeError: nothing is in flight."""
        entry = self._queue(node_id).popleft()
        self._total -= 1
        return entry

    def _queue(self, node_id: str) -> deque[InFlightRequest]:
        queue = self._requests.get(node_id)
        if not queue:
            raise RuntimeError(f"there are no in-flight requests for node {node_id}")
        return queue

    def can_send_more(self, node_id: str) -> bool:
        """The connection has fewer than the allowed requests in flight."""
        return len(self._requests.get(node_id, ())) < self._max_per_connection

    def count(self, node_id: str | None = None) -> int:
        """Requests in flight to one node, or to all."""
        return self._total if node_id is None else len(self._requests.get(node_id, ()))

    def clear_all(self, node_id: str) -> Iterator[InFlightRequest]:
        """Take out everything of one node, oldest first."""
        queue = self._requests.pop(node_id, deque())
        self._total -= len(queue)
        return reversed(queue)

    def nodes_with_timed_out_requests(self, now_ms: int) -> list[tuple[str, InFlightRequest]]:
        """Nodes that owe an answer for too long, each with its oldest such request."""
        found = []
        for node_id, queue in self._requests.items():
            late = next((entry for entry in reversed(queue) if entry.time_to_timeout_ms(now_ms) < 0), None)
            if late is not None:
                found.append((node_id, late))
        return found

    def time_to_next_timeout_ms(self, now_ms: int) -> int:
        """How long until :meth:`nodes_with_timed_out_requests` may name one."""
        entries = (entry for queue in self._requests.values() for entry in queue)
        return max(min((entry.time_to_timeout_ms(now_ms) for entry in entries), default=FOREVER_MS) + 1, 0)
