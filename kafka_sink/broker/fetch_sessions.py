"""What a node keeps of fetches: their sessions (KIP-227), and the bytes of their responses that wait to be sent.

With a session a client names only partitions that it reads otherwise, and gets only those that changed. Modelled on
Kafka's FetchSession: a session that is not used makes room for a new one after two minutes. A request that gets no
session (id 0) is answered in full, so that limits never fail a fetch.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Final, TypeAlias, TypeVar
from uuid import UUID

from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)

NO_SESSION: Final = 0
#: Session epochs of requests that name all their partitions: one that asks for a session, and one that does not.
_FIRST_EPOCH: Final = 0
_FINAL_EPOCH: Final = -1
_LAST_EPOCH: Final = 2**31 - 1
#: Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS.
_EVICTION_MS: Final = 120_000
#: Limit on the partitions of all sessions of a node, which Kafka does not have: about 50 MB.
MOST_PARTITIONS: Final = 100_000

#: Topic by name or by id, and partition.
_Key: TypeAlias = tuple[str, UUID, int]
P = TypeVar("P")
T = TypeVar("T")


def _by_topic(parts: Iterable[tuple[_Key, P]], kind: Callable[[str, UUID, list[P]], T]) -> list[T]:
    """*parts* as values of *kind*, one for all that follow each other and are of one topic."""
    topics = groupby(parts, key=lambda part: part[0][:2])
    return [kind(name, topic_id, [part for _, part in group]) for (name, topic_id), group in topics]


@dataclass(slots=True)
class _CachedPartition:
    request: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1

    def must_respond(self, part: PartitionData) -> bool:
        """Whether *part* says anything new, which is remembered: records, an error or another end or start."""
        failed = part.error_code != ErrorCode.NONE
        before = self.high_watermark, self.log_start_offset
        # An error is forgotten, so that the first answer without it says so.
        self.high_watermark = -1 if failed else part.high_watermark
        self.log_start_offset = part.log_start_offset
        return failed or bool(part.records) or before != (part.high_watermark, part.log_start_offset)


@dataclass(slots=True)
class _Session:
    session_id: int
    by_id: bool
    created_ms: int
    used_ms: int
    #: In the order in which they are read; those that were answered with records move to the end.
    partitions: dict[_Key, _CachedPartition]
    epoch: int = 1

    def update(self, body: FetchRequest) -> None:
        for topic in body.topics:
            for partition in topic.partitions:
                key = topic.topic, topic.topic_id, partition.partition
                self.partitions.setdefault(key, _CachedPartition(partition)).request = partition
        for forgotten in body.forgotten_topics_data:
            for index in forgotten.partitions:
                self.partitions.pop((forgotten.topic, forgotten.topic_id, index), None)

    def topics(self) -> list[FetchTopic]:
        requests = ((key, cached.request) for key, cached in self.partitions.items())
        return _by_topic(requests, FetchTopic)

    def changed(self, responses: Iterable[FetchableTopicResponse]) -> list[FetchableTopicResponse]:
        """What of *responses* must be sent; it is remembered as sent."""
        parts = []
        for topic in responses:
            for part in topic.partitions:
                key = topic.topic, topic.topic_id, part.partition_index
                if not self.partitions[key].must_respond(part):
                    continue
                parts.append((key, part))
                if part.records:
                    self.partitions[key] = self.partitions.pop(key)
        return _by_topic(parts, FetchableTopicResponse)


class FetchSessions:
    """The sessions of one node, at most *slots*. Any thread may use it."""

    def __init__(self, slots: int, clock: Clock) -> None:
        self._slots = slots
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[int, _Session] = {}

    def begin(self, body: FetchRequest, *, by_id: bool) -> FetchContext:
        """What *body* fetches; a request that names all its partitions ends its session. *by_id*: topics have ids.

        :raises ApiError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        with self._lock:
            if body.session_epoch in (_FIRST_EPOCH, _FINAL_EPOCH):
                self._sessions.pop(body.session_id, None)
                return FetchContext(self, body.topics, by_id, starts=body.session_epoch == _FIRST_EPOCH)
            session = self._continued(body, by_id)
            session.update(body)
            if not session.partitions:
                del self._sessions[session.session_id]
                return FetchContext(self, body.topics, by_id)
            # Only a request that names partitions can add some.
            if body.topics and self._partitions() > MOST_PARTITIONS:
                del self._sessions[session.session_id]
                raise ApiError("sessions of this node have too many partitions", ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            session.used_ms = self._clock.monotonic_ms()
            session.epoch = 1 if session.epoch == _LAST_EPOCH else session.epoch + 1
            return FetchContext(self, session.topics(), by_id, session, session.epoch)

    def _continued(self, body: FetchRequest, by_id: bool) -> _Session:
        session = self._sessions.get(body.session_id)
        if session is None:
            raise ApiError(f"there is no fetch session {body.session_id}", ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != body.session_epoch:
            text = f"the epoch of fetch session {body.session_id} is {session.epoch}, not {body.session_epoch}"
            raise ApiError(text, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            text = f"fetch session {body.session_id} has topics by {'id' if session.by_id else 'name'}"
            raise ApiError(text, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return session

    def _partitions(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def start(self, partitions: dict[_Key, _CachedPartition], *, by_id: bool) -> int:
        """The id of a new session, or NO_SESSION if there is no room for it."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            if not partitions or self._partitions() + len(partitions) > MOST_PARTITIONS:
                return NO_SESSION
            if len(self._sessions) >= self._slots and not self._evict(len(partitions), now_ms):
                return NO_SESSION
            session_id = random.randint(1, 2**31 - 1)
            while session_id in self._sessions:
                session_id = random.randint(1, 2**31 - 1)
            self._sessions[session_id] = _Session(session_id, by_id, now_ms, now_ms, partitions)
            return session_id

    def _evict(self, size: int, now_ms: int) -> bool:
        """Make room for a session of *size* partitions: a stale one goes, or an old one that is not larger."""
        sessions = self._sessions.values()
        stalest = min(sessions, key=lambda session: session.used_ms, default=None)
        if stalest is not None and now_ms - stalest.used_ms > _EVICTION_MS:
            del self._sessions[stalest.session_id]
            return True
        old = (session for session in sessions if session.used_ms - session.created_ms > _EVICTION_MS)
        smallest = min(old, key=lambda session: len(session.partitions), default=None)
        if smallest is None or len(smallest.partitions) > size:
            return False
        del self._sessions[smallest.session_id]
        return True

    def changed(
        self, session: _Session, epoch: int, responses: list[FetchableTopicResponse]
    ) -> list[FetchableTopicResponse]:
        """What of *responses* the client of *session* must get.

        :raises ApiError: INVALID_FETCH_SESSION_EPOCH: the session went on before this answer.
        """
        with self._lock:
            if session.epoch != epoch:
                text = f"fetch session {session.session_id} has continued with epoch {session.epoch}"
                raise ApiError(text, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            return session.changed(responses)


@dataclass(frozen=True, slots=True)
class FetchContext:
    """What one request fetches: *topics*, also those that its session remembers."""

    sessions: FetchSessions
    topics: list[FetchTopic]
    by_id: bool
    session: _Session | None = None
    #: Of the session, once this request has been answered.
    epoch: int = _FINAL_EPOCH
    starts: bool = False

    @property
    def session_id(self) -> int:
        """The session that this request continues, or NO_SESSION."""
        return NO_SESSION if self.session is None else self.session.session_id

    def answer(self, responses: list[FetchableTopicResponse]) -> tuple[int, list[FetchableTopicResponse]]:
        """The session's id and what of *responses* is sent. :raises ApiError: see :meth:`FetchSessions.changed`."""
        if self.session is not None:
            return self.session_id, self.sessions.changed(self.session, self.epoch, responses)
        if not self.starts:
            return NO_SESSION, responses
        partitions = {}
        for asked_topic, topic in zip(self.topics, responses, strict=True):
            for request, part in zip(asked_topic.partitions, topic.partitions, strict=True):
                cached = partitions[topic.topic, topic.topic_id, request.partition] = _CachedPartition(request)
                cached.must_respond(part)
        return self.sessions.start(partitions, by_id=self.by_id), responses


class ResponseBudget:
    """Limits the bytes of fetch responses that wait to be sent to *limit_bytes*, even if clients request data and never
    read it.

    Handlers reserve on any thread; network threads release when a response was sent or its connection is closed. A
    reservation must never fail: a consumer always gets its next batch, but nothing more while the limit is reached.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._reserved = 0

    @property
    def available_bytes(self) -> int:
        """The bytes left below the limit; 0 when the limit is reached."""
        return max(self._limit_bytes - self._reserved, 0)

    def reserve(self, size: int) -> None:
        """Reserve *size* bytes, even beyond the limit."""
        with self._lock:
            self._reserved += size

    def release(self, size: int) -> None:
        """Release reserved bytes. :raises ValueError: if more bytes are released than were reserved."""
        with self._lock:
            if size > self._reserved:
                raise ValueError(f"{size} bytes released, {self._reserved} are reserved")
            self._reserved -= size
