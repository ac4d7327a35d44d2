"""Requests to coordinators as pure values: a request in, an outcome out.

A :class:`CoordinatorRequest` builds the request for a negotiated version, and reads its answer. :class:`Attempts` is
one request until its final outcome. The caller sends :attr:`Attempts.request`, passes the answer to
:meth:`Attempts.take`, and processes the outcome; nothing here sends or waits. The :data:`Reactions` of the caller
determine the meaning of an error code: those of a producer are in ``producer/transactions/request_queue.py``, those of
callers whose requests may all be repeated in ``client/blocking/coordinator_requests.py``.

Source: FindCoordinator (KIP-699); apache/kafka ``TransactionManager.TxnRequestHandler``; KIP-1050 (classes of errors).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from kafka_sink.common.errors import ApiError, ErrorCode, ProtocolError, error_for
from kafka_sink.common.model import Node
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.metadata import GROUP, FindCoordinatorRequest, FindCoordinatorResponse
from kafka_sink.protocol.schema import Struct

#: A coordinator's key: key type and key, as in a FindCoordinator request.
CoordinatorKey: TypeAlias = tuple[int, str]

T = TypeVar("T")
S = TypeVar("S", bound=Struct)


class Reaction(Enum):
    """The reaction to an error code, from the mildest to the most severe."""

    RETRY = "the request is sent again after a pause"
    LOOK_UP = "likewise, to the coordinator that is found anew"
    ABORT = "the transaction can only be aborted"
    BUMP = "likewise, and the next one needs a new epoch"
    UNINITIALIZE = "no id was given; asking for one may be tried again"
    FENCED = "another producer holds the transactional id: an error for good"
    FATAL = "an error for good"

    @property
    def is_retry(self) -> bool:
        return self in (Reaction.RETRY, Reaction.LOOK_UP)


#: The reaction to each error code in an answer to each API.
Reactions: TypeAlias = Callable[[ApiKey, ErrorCode], Reaction]


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """The request succeeded."""

    value: T


@dataclass(frozen=True, slots=True)
class Errors(Generic[T]):
    """The error codes in an answer, and a text that says what failed; without a code, parts of the request were not
    answered. A further attempt sends *rest*, if it is given, because the coordinator has accepted all the others."""

    codes: Collection[ErrorCode]
    detail: str
    rest: CoordinatorRequest[T] | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The request failed with *code*; *reaction* is the consequence."""

    reaction: Reaction
    code: ErrorCode
    detail: str

    @property
    def error(self) -> ApiError:
        return error_for(self.code, self.detail)


class CoordinatorRequest(ABC, Generic[T]):
    """A request that may be sent any number of times, each time to the current coordinator."""

    api_key: ClassVar[ApiKey]

    @property
    @abstractmethod
    def coordinator(self) -> CoordinatorKey | None:
        """The coordinator that handles the request; None for any broker."""

    @property
    def max_version(self) -> int | None:
        """The newest version that may be negotiated; None for the newest of both sides."""
        return None

    @abstractmethod
    def build(self, version: int) -> Struct:
        """:raises UnsupportedVersionError: if *version* is too old for the content of the request."""

    @abstractmethod
    def read(self, body: Struct) -> Done[T] | Errors[T]:
        """The outcome in the answer *body*."""

    def _expect(self, body: Struct, kind: type[S]) -> S:
        if not isinstance(body, kind):
            raise ProtocolError(f"{type(body).__name__} is not a response to {self.api_key.name}")
        return body

    def _read_code(self, code: int, value: T, detail: str) -> Done[T] | Errors[T]:
        return Errors([ErrorCode.of(code)], detail) if code else Done(value)


def only_one(items: Sequence[T]) -> T:
    """The only item of an answer. :raises ProtocolError: if the broker sent another number of items."""
    if len(items) != 1:
        raise ProtocolError(f"the broker answered about {len(items)} things, and was asked about one: {items!r:.200}")
    return items[0]


class Attempts(Generic[T]):
    """One request, and the meaning of the answers to its attempts."""

    def __init__(self, request: CoordinatorRequest[T], reactions: Reactions) -> None:
        #: The request to send now, or again after an outcome with a reaction of RETRY or LOOK_UP.
        self.request = request
        self._reactions = reactions

    def take(self, body: Struct) -> Done[T] | Refused:
        """The outcome of the attempt that was answered with *body*."""
        read = self.request.read(body)
        if isinstance(read, Done):
            return read
        if read.rest is not None:
            self.request = read.rest
        if not read.codes:
            return Refused(Reaction.RETRY, ErrorCode.UNKNOWN_SERVER_ERROR, read.detail)
        return self.refuse(gravest(self.request.api_key, read.codes, self._reactions), read.detail)

    def refuse(self, code: ErrorCode, detail: str) -> Refused:
        """The outcome of an attempt that failed with *code*."""
        return Refused(self._reactions(self.request.api_key, code), code, detail)


def gravest(api_key: ApiKey, codes: Iterable[ErrorCode], reactions: Reactions) -> ErrorCode:
    """The code with the most severe reaction. OPERATION_NOT_ATTEMPTED is only chosen if there is no other code."""
    order = list(Reaction)
    attempted = [code for code in codes if code is not ErrorCode.OPERATION_NOT_ATTEMPTED]
    return max(
        attempted, key=lambda code: order.index(reactions(api_key, code)), default=ErrorCode.OPERATION_NOT_ATTEMPTED
    )


@dataclass(frozen=True)
class FindCoordinator(CoordinatorRequest[Mapping[CoordinatorKey, Node]]):
    """Finds the coordinators of *names*, all of one key type. Before version 4 a request has room for one name, which
    is the first."""

    api_key = ApiKey.FIND_COORDINATOR

    key_type: int
    names: tuple[str, ...]

    @property
    def keys(self) -> list[CoordinatorKey]:
        return [(self.key_type, name) for name in self.names]

    @property
    def coordinator(self) -> CoordinatorKey | None:
        return None

    def build(self, version: int) -> Struct:
        if version >= 4:
            return FindCoordinatorRequest(key_type=self.key_type, coordinator_keys=list(self.names))
        return FindCoordinatorRequest(key_type=self.key_type, key=self.names[0])

    def coordinators(self, body: Struct) -> Mapping[CoordinatorKey, Node]:
        """The coordinators in *body*, also if others are not available. Entries for other names, or without an address,
        are ignored."""
        return {
            (self.key_type, name): Node(entry.node_id, entry.host, entry.port)
            for name, entry in self._each(body)
            if not entry.error_code and name in self.names and entry.host
        }

    def read(self, body: Struct) -> Done[Mapping[CoordinatorKey, Node]] | Errors[Mapping[CoordinatorKey, Node]]:
        refused = [(name, entry) for name, entry in self._each(body) if entry.error_code]
        coordinators = self.coordinators(body)
        if coordinators and not refused:
            return Done(coordinators)
        kind = "group" if self.key_type == GROUP else "transactional id"
        if not refused:
            text = f"the answer names no coordinator of the {kind} {self.names[0]!r}"
            return Errors([ErrorCode.COORDINATOR_NOT_AVAILABLE], text)
        texts = ", ".join(
            f"{name!r} ({entry.error_message})" if entry.error_message else repr(name) for name, entry in refused
        )
        codes = [ErrorCode.of(entry.error_code) for _, entry in refused]
        return Errors(codes, f"no coordinator was found for the {kind} {texts}")

    def _each(self, body: Struct) -> list[tuple[str, Any]]:
        """The answer for each name, in any version."""
        response = self._expect(body, FindCoordinatorResponse)
        return [(coordinator.key, coordinator) for coordinator in response.coordinators] or [(self.names[0], response)]
