"""A client's metadata of the cluster, and the time of its next refresh.

Application threads add topics, request an update and wait for it. The network thread checks whether an update is due,
sends the request and passes the answer in. Every method may be called from any thread. It never sends anything itself,
and never calls other code while it holds its lock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafka_sink.client.metadata.cluster import (
    Cluster,
    LostTopic,
    NewLeader,
    invalid_topic,
    lost_topics,
    next_snapshot,
    not_visible,
    with_leaders,
)
from kafka_sink.common.clock import FOREVER_MS, Clock, ExponentialBackoff
from kafka_sink.common.errors import KafkaError, KafkaTimeoutError
from kafka_sink.common.locks import Lock
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import Node, TopicPartition
from kafka_sink.protocol.messages.metadata import MetadataResponse

_NEVER_MS: Final = -FOREVER_MS

#: The protocol encodes the length of a name in 16 bits.
_NAME_MAX_BYTES: Final = 32767


@dataclass(frozen=True, slots=True)
class UpdateRequest:
    """A metadata request for *topics* by name; the other fields are passed back in with the answer."""

    topics: tuple[str, ...]
    request_version: int
    is_partial: bool


class Metadata:
    """Topics of interest, the newest :class:`~kafka_sink.client.metadata.cluster.Cluster`, and the rules of refreshing
    them (KIP-526).

    :param refresh_backoff_ms: the minimum time between two attempts; doubles with every failed attempt up to
        *refresh_backoff_max_ms* (KIP-580).
    :param max_age_ms: a snapshot older than this is refreshed automatically.
    :param max_idle_ms: a topic that was not added again for this long is removed.
    """

    def __init__(
        self,
        clock: Clock,
        refresh_backoff_ms: int,
        max_age_ms: int,
        max_idle_ms: int,
        *,
        refresh_backoff_max_ms: int = 1_000,
        log_context: str = "",
    ) -> None:
        self._clock = clock
        self._backoff = ExponentialBackoff(refresh_backoff_ms, refresh_backoff_max_ms)
        self._max_age_ms = max_age_ms
        self._max_idle_ms = max_idle_ms
        self._log = ContextLogger(__name__, log_context)
        # Guards all fields below; every update, error and close wakes the waiting threads.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._cluster = Cluster()
        self._addresses: tuple[tuple[str, int], ...] = ()
        self._topics: dict[str, int] = {}
        self._lost: dict[str, LostTopic] = {}
        self._new_topics: set[str] = set()
        #: Incremented with every update; see :meth:`await_update`.
        self.update_version = 0
        self._request_version = 0
        self._need_full_update = True
        self._need_partial_update = False
        self._last_refresh_ms = _NEVER_MS
        self._last_successful_refresh_ms = _NEVER_MS
        self._failed_attempts = 0
        self._refresh_backoff_ms = self._backoff.backoff_ms(0)
        self._fatal: KafkaError | None = None
        self._is_closed = False

    @property
    def lock(self) -> Lock:
        """The lock that the network thread needs for every step."""
        return self._lock

    def fetch(self) -> Cluster:
        """The latest snapshot; never waits."""
        return self._cluster

    def age_ms(self, now_ms: int) -> int:
        """The time since the last successful update; 0 before the first."""
        return 0 if self.update_version == 0 else now_ms - self._last_successful_refresh_ms

    def add(self, topic: str, now_ms: int) -> None:
        """Keep *topic* for max_idle_ms from now; a new topic is requested as soon as possible.

        :raises ValueError: if no request can contain this name; it would block the updates of all other topics.
        """
        if not isinstance(topic, str):
            raise ValueError(f"a topic must be str, got {type(topic).__name__} ({topic!r:.50})")
        with self._lock:
            if topic not in self._topics:
                _check_can_be_asked_for(topic)
                self._new_topics.add(topic)
                self._request_update_for_new_topics()
            self._topics[topic] = now_ms + self._max_idle_ms

    def request_update(self) -> int:
        """Request an update of all topics; returns the current version for :meth:`await_update`."""
        with self._lock:
            self._need_full_update = True
            return self.update_version

    def request_update_for_topic(self, topic: str) -> int:
        """Request an update of *topic*: of the new topics only if it is new, otherwise of all topics."""
        with self._lock:
            if topic in self._new_topics:
                return self._request_update_for_new_topics()
            return self.request_update()

    def _request_update_for_new_topics(self) -> int:
        # No backoff applies to a topic that was never requested.
        self._last_refresh_ms = _NEVER_MS
        self._need_partial_update = True
        self._request_version += 1
        return self.update_version

    def await_update(self, last_version: int, timeout_ms: int) -> None:
        """Wait until :attr:`update_version` is greater than *last_version*.

        :raises KafkaTimeoutError: if there is no update within *timeout_ms*.
        :raises KafkaError: if the cluster refuses this client, or the client was closed in the meantime.
        """
        with self._lock:
            deadline_ms = min(self._clock.monotonic_ms() + timeout_ms, FOREVER_MS)
            while True:
                self.raise_if_fatal()
                if self._is_closed:
                    raise KafkaError("metadata was requested after the client was closed")
                if self.update_version > last_version:
                    return
                remaining_ms = deadline_ms - self._clock.monotonic_ms()
                if remaining_ms <= 0:
                    raise KafkaTimeoutError(f"no metadata arrived within {timeout_ms} ms")
                self._clock.wait(self._changed, remaining_ms)

    def raise_for_topic(self, topic: str) -> None:
        """Raise the cluster's error for *topic* (invalid name, not authorized), or a fatal error of this client."""
        self.raise_if_fatal()
        self.raise_if_invalid(topic)
        if topic in self._cluster.unauthorized_topics:
            raise not_visible(topic)

    def raise_if_invalid(self, topic: str) -> None:
        """Raise an error if the cluster has reported *topic* as an invalid name; a retry would not help."""
        if topic in self._cluster.invalid_topics:
            raise invalid_topic(topic)

    def raise_if_fatal(self) -> None:
        """Raise the error that makes every update impossible; it is raised once."""
        with self._lock:
            fatal, self._fatal = self._fatal, None
        if fatal is not None:
            raise fatal

    def bootstrap(self, addresses: Sequence[tuple[str, int]]) -> None:
        """Start with only *addresses* (host, port)."""
        with self._lock:
            self._addresses = tuple(addresses)
            self._need_full_update = True
            self.update_version += 1
            self._lost = lost_topics(self._cluster, None, self._lost)
            self._cluster = Cluster.bootstrap(self._addresses)

    def rebootstrap(self) -> None:
        """Start again with the bootstrap addresses, because no known broker can be reached (KIP-899)."""
        self._log.info("rebootstrapping with %s", ", ".join(f"{host}:{port}" for host, port in self._addresses))
        self.bootstrap(self._addresses)

    def time_to_next_update_ms(self, now_ms: int) -> int:
        """The time until an update is due; 0 = now."""
        with self._lock:
            if self._need_full_update or self._need_partial_update:
                until_expiry_ms = 0
            else:
                until_expiry_ms = max(self._last_successful_refresh_ms + self._max_age_ms - now_ms, 0)
            return max(until_expiry_ms, self._last_refresh_ms + self._refresh_backoff_ms - now_ms, 0)

    def next_request(self, now_ms: int) -> UpdateRequest:
        """The request for the next update: only new topics if nothing else is due, otherwise all topics."""
        with self._lock:
            is_fresh = self._last_successful_refresh_ms + self._max_age_ms > now_ms
            is_partial = is_fresh and not self._need_full_update
            topics = self._new_topics if is_partial else self._topics
            return UpdateRequest(tuple(sorted(topics)), self._request_version, is_partial)

    def update(self, response: MetadataResponse, request: UpdateRequest, *, version: int, now_ms: int) -> None:
        """Apply the answer (in *version*) to *request* and wake the waiting threads."""
        with self._lock:
            if self._is_closed:
                return
            # A topic that was added while the request was in flight is not in the answer.
            self._need_partial_update = request.request_version < self._request_version
            self._last_refresh_ms = now_ms
            self._reset_backoff(0)
            self.update_version += 1
            if not request.is_partial:
                self._need_full_update = False
                self._last_successful_refresh_ms = now_ms
            snapshot = next_snapshot(
                self._cluster,
                response,
                version=version,
                is_partial=request.is_partial,
                retain=lambda topic: self._retain(topic, now_ms),
                lost=self._lost,
            )
            lost = lost_topics(self._cluster, snapshot.cluster, self._lost)
            self._lost = {name: topic for name, topic in lost.items() if name in self._topics}
            self._cluster = snapshot.cluster
            if snapshot.is_stale:
                self._need_full_update = True
            self._new_topics.difference_update(topic.name for topic in response.topics if topic.name is not None)
            self._changed.notify_all()

    def update_leaders(self, leaders: Mapping[TopicPartition, NewLeader], nodes: Iterable[Node]) -> None:
        """Apply leader changes that a broker reported for partitions that it does not lead (KIP-951); outdated ones are
        ignored.

        This does not replace an update and wakes no waiting thread, because the information is correct but incomplete.
        """
        with self._lock:
            self._cluster = with_leaders(self._cluster, leaders, nodes)

    def _retain(self, topic: str, now_ms: int) -> bool:
        expires_ms = self._topics.get(topic)
        if expires_ms is None:
            return False
        if topic in self._new_topics or now_ms < expires_ms:
            return True
        self._log.debug("forgetting topic %s: not used for %d ms", topic, self._max_idle_ms)
        del self._topics[topic]
        return False

    def failed_update(self, now_ms: int) -> None:
        """An attempt failed: back off before the next one."""
        with self._lock:
            self._last_refresh_ms = now_ms
            self._reset_backoff(self._failed_attempts + 1)

    def _reset_backoff(self, failed_attempts: int) -> None:
        # Computed once per attempt, so that the jitter does not change the result between two calls.
        self._failed_attempts = failed_attempts
        self._refresh_backoff_ms = self._backoff.backoff_ms(max(failed_attempts - 1, 0))

    def fatal_error(self, error: KafkaError) -> None:
        """No update can succeed any more; the next waiting thread gets *error*."""
        with self._lock:
            self._fatal = error
            self._changed.notify_all()

    def close(self) -> None:
        """Close, and wake all waiting threads."""
        with self._lock:
            self._is_closed = True
            self._changed.notify_all()


def _check_can_be_asked_for(topic: str) -> None:
    try:
        size = len(topic.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"topic {topic!r:.50} cannot be written in UTF-8: {error.reason}") from None
    if size > _NAME_MAX_BYTES:
        raise ValueError(
            f"topic {topic[:50]!r}… takes {size} bytes, more than the limit of {_NAME_MAX_BYTES} for a name"
        )
