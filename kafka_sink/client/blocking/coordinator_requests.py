"""Blocking requests to coordinators: each looks up its coordinator, and is repeated until the outcome is
final.

The ``async`` methods are exchanges, see :mod:`blocking`; :meth:`CoordinatorRequests.run` runs one on the calling
thread. The coordinators are cached; the caller processes the outcomes.

Every request sent here may be repeated, whatever the outcome of earlier attempts. So errors have another meaning than
in a producer, which holds the state of one transaction (``producer/transactions/request_queue.py``):

* An unknown error is retried here. It is fatal for a producer, because it must never assume that a commit succeeded.
* The other retriable errors, for example that a topic does not exist, are final here. A producer repeats them until its
  call times out; a caller gets the error at once.
* Abortable and fatal errors, and being fenced, are final here and keep Kafka's code: there is no state to change.
* A TxnOffsetCommit that timed out stays with its coordinator here; a producer looks the coordinator up again.

Source: FindCoordinator; KIP-699 (many keys in one request).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar, overload

from kafka_sink.client.blocking.blocking import (
    UNREACHABLE,
    BlockingClient,
    Exchange,
    RequestSpec,
    Round,
    Tries,
    run_together,
)
from kafka_sink.client.requests.outcomes import (
    Attempts,
    CoordinatorKey,
    CoordinatorRequest,
    Done,
    FindCoordinator,
    Reaction,
    Refused,
)
from kafka_sink.common.clock import Clock, ExponentialBackoff
from kafka_sink.common.errors import ApiError, DisconnectError, ErrorCode, KafkaTimeoutError, codes
from kafka_sink.common.model import Node
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.schema import Struct

#: The codes after which a request is repeated; all others are final.
_REACTIONS: Final = dict.fromkeys(
    codes("""
        UNKNOWN_SERVER_ERROR REQUEST_TIMED_OUT COORDINATOR_LOAD_IN_PROGRESS CONCURRENT_TRANSACTIONS
        UNSTABLE_OFFSET_COMMIT NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND
    """),
    Reaction.RETRY,
) | dict.fromkeys(codes("NOT_COORDINATOR COORDINATOR_NOT_AVAILABLE NETWORK_EXCEPTION"), Reaction.LOOK_UP)

_FIRST_BACKOFF_MS: Final = 10
_LONGEST_BACKOFF_MS: Final = 500

K = TypeVar("K", bound=Hashable)
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")


def caller_reaction(api_key: ApiKey, code: ErrorCode) -> Reaction:
    """The reaction of a blocking caller to *code* in an answer to any API."""
    return _REACTIONS.get(code, Reaction.FATAL)


class CoordinatorRequests:
    """*timeout_ms* is the maximum duration of each exchange."""

    def __init__(self, client: BlockingClient, timeout_ms: int, clock: Clock) -> None:
        self._client = client
        self.timeout_ms = timeout_ms
        self._clock = clock
        self._backoff = ExponentialBackoff(_FIRST_BACKOFF_MS, _LONGEST_BACKOFF_MS)
        self._coordinators: dict[CoordinatorKey, Node] = {}

    def run(self, exchange: Exchange[A]) -> A:
        result: A = run_together(self._client, self._clock, [exchange])[0]
        return result

    @overload
    def together(self, first: Exchange[A], second: Exchange[B], /) -> tuple[A, B]: ...

    @overload
    def together(
        self,
        first: Exchange[A],
        second: Exchange[B],
        third: Exchange[C],
        fourth: Exchange[D],
        fifth: Exchange[E],
        sixth: Exchange[F],
        /,
    ) -> tuple[A, B, C, D, E, F]: ...

    def together(self, *exchanges: Exchange[Any]) -> tuple[Any, ...]:
        """Run independent *exchanges* and return their results. Requests that they await in the same round are in
        flight together. An error raised by one exchange ends the others."""
        return tuple(run_together(self._client, self._clock, exchanges))

    def coordinator(self, key: CoordinatorKey) -> Node:
        """The coordinator of *key*; to be called after :meth:`locate`."""
        return self._coordinators[key]

    async def ask(
        self, request: CoordinatorRequest[A], *, repeat_lost: bool = True, final: Collection[ErrorCode] = ()
    ) -> A:
        """The value in the answer of *request*'s coordinator. The request is repeated until its outcome is final.

        :param final: codes that are final here, although the request could be repeated.
        :raises DisconnectError: if the answer was lost and *repeat_lost* is False.
        :raises BrokersUnreachableError: if the coordinator could not be reached in time.
        :raises KafkaTimeoutError: if there is no final outcome in time for another reason.
        :raises ApiError: if the coordinator refused the request.
        """
        key = _key(request)
        attempts = Attempts(request, caller_reaction)
        tries = self.tries()
        while True:
            await self.locate([key], tries)
            sent = (self._coordinators[key], _spec(attempts.request))
            (answer,) = await Round([sent], tries.left_ms)
            outcome = self._outcome(attempts, key, answer)
            if isinstance(outcome, Done):
                return outcome.value
            if isinstance(answer, ApiError) and not (repeat_lost or isinstance(answer, UNREACHABLE)):
                raise answer
            if not outcome.reaction.is_retry or outcome.code in final:
                raise outcome.error
            why = answer if isinstance(answer, ApiError) else outcome.error
            await tries.pause(f"{request.api_key.name} for {key[1]!r}", why)

    async def ask_behind(self, change: CoordinatorRequest[Any], question: CoordinatorRequest[A]) -> A:
        """The value in the answer to *question*, which the coordinator handles right after it has accepted *change*;
        both requests have the same coordinator, and are repeated together.

        A coordinator that was replaced, and does not know it yet, still answers reads from its outdated state; but it
        cannot accept a change, because no other broker replicates it. Both requests are in flight together: brokers
        handle the requests of a connection one after the other.

        :raises BrokersUnreachableError: if the coordinator could not be reached in time.
        :raises KafkaTimeoutError: if there is no final outcome in time for another reason.
        :raises ApiError: if the coordinator refused one of them.
        """
        key = _key(change)
        tries = self.tries()
        attempts: Attempts[Any] = Attempts(change, caller_reaction)
        looking = Attempts(question, caller_reaction)
        while True:
            await self.locate([key], tries)
            node = self._coordinators[key]
            sent = [(node, _spec(attempts.request)), (node, replace(_spec(question), is_behind=True))]
            accepted, seen = await Round(sent, tries.left_ms)
            outcome = self._outcome(attempts, key, accepted)
            if isinstance(outcome, Done):
                # The read is only valid after an accepted change: if the read is repeated, so is the change.
                attempts = Attempts(change, caller_reaction)
                look_outcome = self._outcome(looking, key, seen)
                if isinstance(look_outcome, Done):
                    return look_outcome.value
                outcome = look_outcome
            if not outcome.reaction.is_retry:
                raise outcome.error
            lost = next((answer for answer in (accepted, seen) if isinstance(answer, ApiError)), None)
            await tries.pause(f"{change.api_key.name} for {key[1]!r}", lost or outcome.error)

    async def ask_many(self, requests: Mapping[K, CoordinatorRequest[Any]]) -> dict[K, ErrorCode]:
        """The final code for each of *requests*, which end transactions: all are sent at once and repeated until all
        outcomes are final."""
        codes: dict[K, ErrorCode] = {}
        attempts = {item: Attempts(request, caller_reaction) for item, request in requests.items()}
        keys = {item: _key(request) for item, request in requests.items()}
        tries = self.tries()
        while waiting := [item for item in requests if item not in codes]:
            await self.locate([keys[item] for item in waiting], tries)
            answers = await Round(
                [(self._coordinators[keys[item]], _spec(attempts[item].request)) for item in waiting], tries.left_ms
            )
            left: dict[K, ApiError] = {}
            for item, answer in zip(waiting, answers, strict=True):
                outcome = self._outcome(attempts[item], keys[item], answer)
                if isinstance(outcome, Done):
                    codes[item] = ErrorCode.NONE
                elif not outcome.reaction.is_retry:
                    codes[item] = outcome.code
                else:
                    left[item] = answer if isinstance(answer, ApiError) else outcome.error
            if left:
                first, why = next(iter(left.items()))
                what = f"ending {len(left)} of {len(requests)} transactions, such as {first},"
                await tries.pause(what, why)
        return codes

    def _outcome(self, attempts: Attempts[A], key: CoordinatorKey, answer: Struct | ApiError) -> Done[A] | Refused:
        """The outcome of one attempt. The coordinator is looked up again before the next one if it may have moved.

        :raises ApiError: *answer*, if the request could not be sent.
        """
        if isinstance(answer, DisconnectError | KafkaTimeoutError):
            outcome: Done[A] | Refused = attempts.refuse(ErrorCode.NETWORK_EXCEPTION, str(answer))
        elif isinstance(answer, ApiError):
            raise answer
        else:
            outcome = attempts.take(answer)
        if isinstance(outcome, Refused) and outcome.reaction is Reaction.LOOK_UP:
            self._forget([key])
        return outcome

    async def locate(self, keys: Iterable[CoordinatorKey], of: Tries) -> None:
        """Look up the coordinator of each of *keys*, within the deadline of *of*."""
        keys = list(dict.fromkeys(keys))
        tries = of.part()
        while missing := [key for key in keys if key not in self._coordinators]:
            key_type = missing[0][0]
            request = FindCoordinator(key_type, tuple(name for kind, name in missing if kind == key_type))
            (answer,) = await Round([(None, _spec(request))], tries.left_ms)
            if isinstance(answer, KafkaTimeoutError):
                why: ApiError = answer
            elif isinstance(answer, ApiError):
                raise answer
            else:
                outcome = Attempts(request, caller_reaction).take(answer)
                if isinstance(outcome, Done):
                    self._coordinators.update(outcome.value)
                    continue
                self._coordinators.update(request.coordinators(answer))
                why = outcome.error
                if not outcome.reaction.is_retry:
                    raise why
            await tries.pause(f"finding a coordinator of {request.names[0]!r}", why)

    def _forget(self, keys: Iterable[CoordinatorKey]) -> None:
        for key in keys:
            self._coordinators.pop(key, None)

    def tries(self) -> Tries:
        """The attempts of an exchange that begins now."""
        return Tries(self._clock, self._backoff, self.timeout_ms)


def _key(request: CoordinatorRequest[Any]) -> CoordinatorKey:
    if request.coordinator is None:
        raise ValueError(f"{request.api_key.name} has no coordinator")
    return request.coordinator


def _spec(request: CoordinatorRequest[Any]) -> RequestSpec:
    return RequestSpec(request.api_key, request.build, request.max_version)
