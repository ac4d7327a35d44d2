"""Requests to coordinators: they look up the coordinator, send the request, and retry until the answer is final.

The methods are exchanges, see :mod:`exchange`. The coordinators are cached; the caller interprets the answers.

Source: FindCoordinator; KIP-699 (many keys in one request).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from kafka_sink.client.blocking import BlockingClient, RequestSpec
from kafka_sink.client.exchange import Exchange, Pause, Round, run_together
from kafka_sink.common.backoff import ExponentialBackoff
from kafka_sink.common.clock import Clock
from kafka_sink.common.errors import ApiError, DisconnectError, ErrorCode, KafkaTimeoutError, error_for
from kafka_sink.common.model import Node
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.find_coordinator import (
    GROUP,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kafka_sink.protocol.schema import Struct

#: Error codes after which the same request is repeated. An unknown error does not tell whether the request took effect,
#: and every request sent here may be repeated.
AGAIN: Final = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)

_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION})

_FIRST_BACKOFF_MS: Final = 10
_LONGEST_BACKOFF_MS: Final = 500

#: Key type and key of a coordinator, as in FindCoordinator.
CoordinatorKey = tuple[int, str]


K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class CoordinatorRequests:
    """*timeout_ms* is the maximum duration of each exchange."""

    def __init__(self, client: BlockingClient, timeout_ms: int, clock: Clock) -> None:
        self._client = client
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._backoff = ExponentialBackoff(_FIRST_BACKOFF_MS, _LONGEST_BACKOFF_MS)
        self._coordinators: dict[CoordinatorKey, Node] = {}

    def run(self, exchange: Exchange[T]) -> T:
        """Run *exchange* and return its result."""
        result: T = self.run_all([exchange])[0]
        return result

    def run_all(self, exchanges: Sequence[Exchange[Any]]) -> list[Any]:
        """Run *exchanges* together and return their results."""
        return run_together(self._client, self._clock, exchanges)

    def coordinator(self, key: CoordinatorKey) -> Node:
        """The coordinator of *key*; to be called after :meth:`locate`."""
        return self._coordinators[key]

    def ask(
        self,
        key: CoordinatorKey,
        spec: RequestSpec,
        code_of: Callable[[Struct], ErrorCode],
        *,
        repeat_lost: bool = True,
    ) -> Exchange[Struct]:
        """The answer of *key*'s coordinator. The request is repeated until the answer has no retriable error.

        :raises DisconnectError: if the answer was lost and *repeat_lost* is False.
        """
        deadline_ms = self.deadline_ms()
        attempts = 0
        while True:
            yield from self.locate([key], deadline_ms)
            (answer,) = yield Round([(self._coordinators[key], spec)], self.left_ms(deadline_ms))
            if isinstance(answer, DisconnectError):
                self.forget([key])
                if not repeat_lost:
                    raise answer
                last = str(answer)
            elif isinstance(answer, ApiError):
                raise answer
            else:
                code = code_of(answer)
                if code is ErrorCode.NONE:
                    return answer
                if code not in AGAIN:
                    raise error_for(code, f"{spec.api_key.name} for {key[1]!r}")
                last = code.name
                if code in _MOVED:
                    self.forget([key])
            yield self.pause(attempts, deadline_ms, f"{spec.api_key.name} for {key[1]!r} ({last})")
            attempts += 1

    def ask_many(
        self,
        keys: Mapping[K, CoordinatorKey],
        spec: Callable[[K], RequestSpec],
        code_of: Callable[[Struct], ErrorCode],
    ) -> Exchange[dict[K, ErrorCode]]:
        """The final code for each of *keys*: all requests are sent at once and repeated until all have a final
        answer."""
        outcomes: dict[K, ErrorCode] = {}
        deadline_ms = self.deadline_ms()
        attempts = 0
        while waiting := [item for item in keys if item not in outcomes]:
            yield from self.locate([keys[item] for item in waiting], deadline_ms)
            answers = yield Round(
                [(self._coordinators[keys[item]], spec(item)) for item in waiting], self.left_ms(deadline_ms)
            )
            for item, answer in zip(waiting, answers, strict=True):
                code = self._code(answer, code_of)
                if code not in AGAIN:
                    outcomes[item] = code
                elif code in _MOVED:
                    self.forget([keys[item]])
            left = [item for item in keys if item not in outcomes]
            if left:
                yield self.pause(
                    attempts, deadline_ms, f"ending {len(left)} of {len(keys)} transactions, as {left[0]},"
                )
                attempts += 1
        return outcomes

    @staticmethod
    def _code(answer: Struct | ApiError, code_of: Callable[[Struct], ErrorCode]) -> ErrorCode:
        if isinstance(answer, DisconnectError | KafkaTimeoutError):
            return ErrorCode.NETWORK_EXCEPTION
        if isinstance(answer, ApiError):
            raise answer
        return code_of(answer)

    def locate(self, keys: Iterable[CoordinatorKey], deadline_ms: int) -> Exchange[None]:
        """Look up the coordinator of each of *keys*."""
        keys = list(dict.fromkeys(keys))
        attempts = 0
        while missing := [key for key in keys if key not in self._coordinators]:
            key_type = missing[0][0]
            names = [name for kind, name in missing if kind == key_type]

            def build(version: int, key_type: int = key_type, names: list[str] = names) -> Struct:
                if version >= 4:
                    return FindCoordinatorRequest(key_type=key_type, coordinator_keys=names)
                return FindCoordinatorRequest(key_type=key_type, key=names[0])

            spec = RequestSpec(ApiKey.FIND_COORDINATOR, build)
            (answer,) = yield Round([(None, spec)], self.left_ms(deadline_ms))
            if isinstance(answer, ApiError):
                raise answer
            assert isinstance(answer, FindCoordinatorResponse)
            if not self._take_coordinators(answer, key_type, names[0]):
                yield self.pause(attempts, deadline_ms, f"finding a coordinator of {names[0]!r}")
                attempts += 1

    def _take_coordinators(self, body: FindCoordinatorResponse, key_type: int, first: str) -> bool:
        """Store the coordinators in *body*; False if one was not available yet."""
        found: list[tuple[str, Any]] = [(each.key, each) for each in body.coordinators] or [(first, body)]
        complete = True
        for name, answer in found:
            code = ErrorCode.of(answer.error_code)
            if code is ErrorCode.NONE:
                self._coordinators[key_type, name] = Node(answer.node_id, answer.host, answer.port)
            elif code in AGAIN:
                complete = False
            else:
                kind = "consumer group" if key_type == GROUP else "transactional id"
                raise error_for(answer.error_code, f"no coordinator for the {kind} {name!r}")
        return complete

    def forget(self, keys: Iterable[CoordinatorKey]) -> None:
        for key in keys:
            self._coordinators.pop(key, None)

    def deadline_ms(self) -> int:
        """The deadline of an exchange that begins now."""
        return self._clock.monotonic_ms() + self._timeout_ms

    def left_ms(self, deadline_ms: int) -> int:
        return max(deadline_ms - self._clock.monotonic_ms(), 1)

    def pause(self, attempts: int, deadline_ms: int, what: str) -> Pause:
        """The pause before *what* is retried, after that many *attempts*.

        :raises KafkaTimeoutError: if the deadline would pass.
        """
        backoff_ms = self._backoff.backoff_ms(attempts)
        if self._clock.monotonic_ms() + backoff_ms >= deadline_ms:
            raise KafkaTimeoutError(f"{what} did not come to an end within {self._timeout_ms} ms")
        return Pause(backoff_ms)


def gravest(codes: Iterable[int]) -> ErrorCode:
    """The most severe code: a final error takes precedence over a retriable one."""
    found = {ErrorCode.of(code) for code in codes if code}
    return next((code for code in found if code not in AGAIN), next(iter(found), ErrorCode.NONE))
