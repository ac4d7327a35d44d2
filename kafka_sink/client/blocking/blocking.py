"""Blocking requests, the basis of the admin client and the log reader.

The calling thread drives the NetworkClient; calls of threads that share one are serialized. Every wait has a deadline,
and an error about unreachable brokers names each address and its cause.

A KeyboardInterrupt may end a call at any line of the network client, which is made for a single thread without
interruptions. The next call after an interrupted one therefore begins with a new network client: pending answers are
discarded, and no inconsistent state remains.

Several exchanges with brokers can run concurrently on one thread, as coroutines. An :data:`Exchange` awaits the answers
to a :class:`Round` of requests, or a :class:`Pause`. It neither sends nor waits itself, and its own requests keep their
order. :func:`run_together` runs any number of exchanges on the calling thread; the requests of one round are in flight
together. There is no event loop: nothing else can be awaited in an exchange.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar, cast

from kafka_sink.client.connection.client_request import BodyBuilder, ClientResponse
from kafka_sink.client.connection.network_client import ConnectionFailure, NetworkClient
from kafka_sink.client.factory import create_client
from kafka_sink.client.metadata.cluster import Cluster, next_snapshot
from kafka_sink.client.metadata.metadata import Metadata
from kafka_sink.client.options.config import ClientConfig
from kafka_sink.common.clock import FOREVER_MS, SYSTEM_CLOCK, Clock, ExponentialBackoff, end_of
from kafka_sink.common.errors import (
    ApiError,
    BrokersUnreachableError,
    DisconnectError,
    KafkaError,
    KafkaTimeoutError,
    NotConnectedError,
)
from kafka_sink.common.locks import is_nested, release_left
from kafka_sink.common.model import Node
from kafka_sink.network.channel.selectable import Selectable
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kafka_sink.protocol.schema import RequestBody, Struct

_log = logging.getLogger(__name__)

P = ParamSpec("P")
#: The most connections to one node, for requests that brokers may handle at the same time.
LANES: Final = 4

T = TypeVar("T")
A = TypeVar("A", bound=Struct)


@dataclass(frozen=True)
class RequestSpec:
    """A request; *build* gets the version negotiated with the broker, at most *max_version*. *is_behind*: the broker
    must first handle the preceding request to the same node, so both use one connection."""

    api_key: ApiKey
    build: BodyBuilder
    max_version: int | None = None
    is_behind: bool = False


def cluster_request(topics: Sequence[str] | None) -> tuple[RequestSpec, Callable[[Struct], Cluster]]:
    """The request for the cluster with *topics* (None = all of them), and the function that converts its answer."""
    asked_in = 0

    def build(version: int) -> Struct:
        nonlocal asked_in
        asked_in = version
        names = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
        return MetadataRequest(topics=names, allow_auto_topic_creation=False)

    def cluster_of(answer: Struct) -> Cluster:
        assert isinstance(answer, MetadataResponse)
        return next_snapshot(Cluster(), answer, version=asked_in, is_partial=False, retain=lambda topic: True).cluster

    return RequestSpec(ApiKey.METADATA, build), cluster_of


class BlockingClient:
    """A blocking interface to a NetworkClient. Its metadata requests never create topics.

    :param timeout_ms: the default time limit of a request, including connection attempts and retries.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        client_id: str,
        timeout_ms: int,
        clock: Clock = SYSTEM_CLOCK,
        selectable: Selectable | None = None,
    ) -> None:
        self._create: Callable[[], tuple[NetworkClient, Metadata]] = partial(
            create_client,
            config,
            client_id=client_id,
            clock=clock,
            allow_auto_topic_creation=False,
            selectable=selectable,
        )
        self._client, self._metadata = self._create()
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._turn = threading.RLock()
        # True also after an interrupted call.
        self._is_under_way = False
        self._is_closed = False
        self._used_ms = clock.monotonic_ms()

    def request(
        self,
        node: Node | None,
        api_key: ApiKey,
        build: Callable[[int], RequestBody[A]],
        *,
        timeout_ms: int | None = None,
    ) -> A:
        """The answer to one request, as :meth:`ask` with the class of the answer."""
        # The network client decodes each answer with the response class of its API, which is that of *build*'s request.
        return cast(A, self.ask(node, RequestSpec(api_key, build), timeout_ms=timeout_ms))

    def ask(self, node: Node | None, spec: RequestSpec, *, timeout_ms: int | None = None) -> Struct:
        """The answer to one request.

        A request to a given *node* is sent once. If the connection is lost, a :class:`DisconnectError` is raised,
        because the caller may have to check first whether this is still the right broker. With None any broker is used,
        and brokers are tried until one answers.

        :raises BrokersUnreachableError: if *node*, or without one any broker, could not be reached in time; the text
            names each address and its cause.
        :raises KafkaTimeoutError: if there is no answer in time for another reason.
        :raises NotConnectedError: if *node* cannot be reached.
        :raises DisconnectError: if the connection was lost before *node* answered.
        :raises UnsupportedVersionError: if the broker has no version of the API in common with this client.
        :raises AuthenticationError: if the broker refuses this client.
        """
        return self._in_turn(self._ask, node, spec, *self._times(timeout_ms))

    def _times(self, timeout_ms: int | None) -> tuple[int, int]:
        """The start of a call that begins now, and its deadline, monotonic ms."""
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        return self._clock.monotonic_ms(), end_of(timeout_ms, self._clock)

    def _ask(self, node: Node | None, spec: RequestSpec, *times: int) -> Struct:
        call = _Call(self._client, self._metadata, self._clock, *times)
        if node is not None:
            return _answer(call, node, spec)
        search = _Search(call)
        attempts = 0
        while True:
            try:
                return _answer(call, search.ready_node(), spec)
            except DisconnectError:
                search.pause(self._backoff.backoff_ms(attempts))
                attempts += 1

    def _answers(self, requests: Sequence[tuple[Node, RequestSpec]], *times: int) -> list[Struct | ApiError]:
        return _Pipeline(_Call(self._client, self._metadata, self._clock, *times), requests).answers()

    def _in_turn(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call *call* with exclusive use of the network client, and return its result.

        :raises KafkaError: if a signal handler calls the client while its own thread is in the middle of a call.
        """
        try:
            with self._turn:
                self._begin_turn()
                try:
                    outcome = call(*args, **kwargs)
                except KafkaError:
                    # An error answer, or a time-out between two polls.
                    self._is_under_way = False
                    raise
                self._is_under_way = False
                return outcome
        except BaseException:
            release_left(self._turn)
            raise

    def _begin_turn(self) -> None:
        if self._is_under_way:
            if is_nested():
                raise KafkaError(
                    "this client was called by a signal handler or a finalizer during another request on the same "
                    "thread; the handler should only set a flag"
                )
            self._renew()
        elif self._client.is_closed:
            # :meth:`rest` has closed it.
            self._renew()
        self._used_ms = self._clock.monotonic_ms()
        self._is_under_way = True

    def _renew(self) -> None:
        if self._is_closed:
            return
        left = self._client
        try:
            left.close()
        except Exception:
            _log.exception("could not close all connections of an interrupted request")
        self._client, self._metadata = self._create()
        self._client.api_versions.know_features_of(left.api_versions)

    def request_all(
        self, requests: Sequence[tuple[Node, RequestSpec]], *, timeout_ms: int | None = None
    ) -> list[Struct | ApiError]:
        """The answers to many requests to many nodes, sent concurrently. A request without an answer has its error in
        its place, as :meth:`ask` raises it.

        Brokers handle the requests of a connection one after the other. So several to one node are distributed over up
        to :data:`LANES` connections that are established by then; only a request that *is_behind* another keeps its
        order. At most max.in.flight.requests.per.connection are in flight on each.
        """
        return self._in_turn(self._answers, requests, *self._times(timeout_ms))

    def feature_level(self, name: str) -> int:
        """The level of a finalized feature of the cluster (KIP-584); 0 if no broker has reported it. This sends no
        request, so an earlier request must have reached a broker."""
        return self._client.api_versions.feature_level(name)

    def fetch_cluster(self, topics: Sequence[str] | None, *, timeout_ms: int | None = None) -> Cluster:
        """Fetch the cluster with *topics* (None = all of them) from a broker; topics that do not exist are omitted."""
        spec, cluster_of = cluster_request(topics)
        return cluster_of(self.ask(None, spec, timeout_ms=timeout_ms))

    def idle(self, duration_ms: int) -> None:
        """Wait for *duration_ms* while the network is polled."""
        self._in_turn(self._idle, self._clock.monotonic_ms() + duration_ms)

    def _idle(self, until_ms: int) -> None:
        while (now_ms := self._clock.monotonic_ms()) < until_ms:
            self._client.poll(until_ms - now_ms, now_ms)

    def connection_failures(self) -> tuple[ConnectionFailure, ...]:
        """The last failure of each address that is not connected now."""
        return self._client.connection_failures()

    def rest(self, idle_ms: int) -> None:
        """Close all connections until the next request, unless one is under way or was begun within *idle_ms*.

        Any thread may call it but one that handles signals.
        """
        if self._turn.acquire(blocking=False):
            try:
                if self._clock.monotonic_ms() - self._used_ms >= idle_ms:
                    self._client.close()
            finally:
                self._turn.release()

    def close(self) -> None:
        """Close all connections. Closing again does nothing."""
        self._is_closed = True
        self._client.close()

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class _Call:
    """A call with its deadline, and the network client that it drives."""

    client: NetworkClient
    metadata: Metadata
    clock: Clock
    started_ms: int
    deadline_ms: int

    @property
    def limit_ms(self) -> int:
        """The time limit of the call."""
        return self.deadline_ms - self.started_ms


class _Search:
    """The search for any broker that is ready."""

    def __init__(self, call: _Call) -> None:
        self._client, self._metadata, self._clock = call.client, call.metadata, call.clock
        self._call = call

    def ready_node(self) -> Node:
        """The first broker that is ready."""
        while True:
            now_ms = self._clock.monotonic_ms()
            node = self._client.least_loaded_node(now_ms)
            if node is not None and self._client.ready(node, now_ms):
                return node
            self._poll(now_ms, self._wait_for_any_ms(node, now_ms))

    def _wait_for_any_ms(self, node: Node | None, now_ms: int) -> int:
        """How long to wait for *node*, or for the backoff of any node to end."""
        if node is None:
            nodes = self._metadata.fetch().nodes
            return min((self._client.poll_delay_ms(node, now_ms) for node in nodes), default=FOREVER_MS)
        # The connection failed at once: another node may be tried.
        return 0 if self._client.connection_failed(node) else self._client.poll_delay_ms(node, now_ms)

    def pause(self, backoff_ms: int) -> None:
        """Poll the network for *backoff_ms*."""
        until_ms = self._clock.monotonic_ms() + backoff_ms
        while (now_ms := self._clock.monotonic_ms()) < until_ms:
            self._poll(now_ms, until_ms - now_ms)

    def _poll(self, now_ms: int, wait_ms: int) -> None:
        remaining_ms = self._call.deadline_ms - now_ms
        if remaining_ms <= 0:
            failures = {(failure.host, failure.port): failure.cause for failure in self._client.connection_failures()}
            for node in self._metadata.fetch().nodes:
                failures.setdefault((node.host, node.port), "no answer yet")
            causes = "; ".join(f"{host}:{port}: {cause}" for (host, port), cause in failures.items())
            raise BrokersUnreachableError(f"no broker could be reached within {self._call.limit_ms} ms: {causes}")
        self._client.poll(min(remaining_ms, wait_ms), now_ms)
        self._metadata.raise_if_fatal()


class _Pipeline:
    """Many requests in one call."""

    def __init__(self, call: _Call, requests: Sequence[tuple[Node, RequestSpec]]) -> None:
        self._client, self._metadata, self._clock = call.client, call.metadata, call.clock
        self._call = call
        self._requests = requests
        self._answers: list[Struct | ApiError | None] = [None] * len(requests)
        self._unanswered = len(requests)
        #: By connection.
        self._unsent: dict[Node, deque[int]] = {}
        counts = Counter(node for node, spec in requests if not spec.is_behind)
        lanes = {node: cycle(self._lanes(node, count)) for node, count in counts.items()}
        chosen: list[Node] = []
        for index, (node, spec) in enumerate(requests):
            chosen.append(chosen[-1] if spec.is_behind else next(lanes[node]))
            self._unsent.setdefault(chosen[-1], deque()).append(index)
        # Nodes to which a connection attempt was made for these requests.
        self._tried: set[Node] = set()

    def answers(self) -> list[Struct | ApiError]:
        while self._unanswered:
            now_ms = self._clock.monotonic_ms()
            if now_ms >= self._call.deadline_ms:
                for index, (node, spec) in enumerate(self._requests):
                    self._set(index, _no_answer(self._client, node, spec, self._call.limit_ms))
                break
            for node, unsent in self._unsent.items():
                if unsent:
                    self._send_to(node, unsent, now_ms)
            if self._unanswered:
                # Until the deadline, or until the backoff of a node is over.
                waits = (self._client.poll_delay_ms(node, now_ms) for node, unsent in self._unsent.items() if unsent)
                self._client.poll(min(self._call.deadline_ms - now_ms, *waits, FOREVER_MS), now_ms)
                self._metadata.raise_if_fatal()
        return [answer for answer in self._answers if answer is not None]

    def _lanes(self, node: Node, count: int) -> list[Node]:
        """The connections to *node* for *count* requests. Missing ones are opened, but not waited for: a broker may
        refuse them."""
        if not self._client.is_ready(node, self._call.started_ms):
            return [node]
        others = (replace(node, lane=lane) for lane in range(1, min(count, LANES)))
        return [node, *(lane for lane in others if self._client.ready(lane, self._call.started_ms))]

    def _send_to(self, node: Node, unsent: deque[int], now_ms: int) -> None:
        """Send as many requests of *unsent* as *node* accepts now; fail them if the node cannot be reached."""
        # A node in backoff after an earlier failure gets one more attempt.
        if self._client.can_connect(node.connection_id, now_ms):
            self._tried.add(node)
        while unsent and self._client.ready(node, now_ms):
            self._send(node, unsent.popleft(), now_ms)
        if unsent and node in self._tried and self._client.connection_failed(node):
            failure = self._client.peers.failure(node)
            error = NotConnectedError(f"{node}: {failure.cause if failure else 'the connection was lost'}")
            while unsent:
                self._set(unsent.popleft(), error)

    def _send(self, node: Node, index: int, now_ms: int) -> None:
        _, spec = self._requests[index]
        request = self._client.new_request(
            node,
            spec.api_key,
            spec.build,
            now_ms,
            max_version=spec.max_version,
            callback=lambda response: self._take(index, response),
        )
        self._client.send(request, now_ms)

    def _take(self, index: int, response: ClientResponse) -> None:
        error = response.authentication_error or response.version_mismatch
        self._set(index, response.body or error or DisconnectError(response.cause))

    def _set(self, index: int, answer: Struct | ApiError) -> None:
        if self._answers[index] is None:
            self._answers[index] = answer
            self._unanswered -= 1


def _answer(call: _Call, node: Node, spec: RequestSpec) -> Struct:
    (answer,) = _Pipeline(call, [(node, spec)]).answers()
    if isinstance(answer, ApiError):
        raise answer
    return answer


def _no_answer(client: NetworkClient, node: Node, spec: RequestSpec, waited_ms: int) -> KafkaTimeoutError:
    """The error of a request that *node* had *waited_ms* to answer."""
    failure = client.peers.failure(node)
    if client.is_connected(node):
        before = f"; before that: {failure.cause}" if failure else ""
        return KafkaTimeoutError(f"{node} did not answer {spec.api_key.name} within {waited_ms} ms{before}")
    return BrokersUnreachableError(f"{node}: {failure.cause if failure else f'no connection within {waited_ms} ms'}")


@dataclass(frozen=True)
class Round:
    """Independent requests; those with node None may go to any broker.

    A request without an answer has an error in its place, as in :meth:`BlockingClient.request_all`.
    """

    requests: Sequence[tuple[Node | None, RequestSpec]]
    timeout_ms: int

    def __await__(self) -> Generator[Round, Answers, Answers]:
        """The answers, in the order of the requests."""
        return (yield self)


@dataclass(frozen=True)
class Pause:
    """A pause without requests."""

    duration_ms: int

    def __await__(self) -> Generator[Pause, Answers, None]:
        yield self


#: The answers to a :class:`Round`, in its order.
Answers: TypeAlias = Sequence[Struct | ApiError]

#: The coroutine of an ``async def`` function that awaits answers.
Exchange: TypeAlias = Coroutine[Any, Any, T]


#: The errors of requests that no broker has seen.
UNREACHABLE: Final = (NotConnectedError, BrokersUnreachableError)


class Tries:
    """The attempts of an operation that is repeated until it succeeds: the time that is left for the next one, and the
    pauses between them. The time begins with the construction.

    :param timeout_ms: the maximum duration of all attempts together.
    """

    def __init__(self, clock: Clock, backoff: ExponentialBackoff, timeout_ms: int) -> None:
        self._clock = clock
        self._backoff = backoff
        self.timeout_ms = timeout_ms
        self._deadline_ms = end_of(timeout_ms, clock)
        self._pauses = 0

    @property
    def left_ms(self) -> int:
        """The time limit of the next attempt, at least 1 ms."""
        return max(self._deadline_ms - self._clock.monotonic_ms(), 1)

    def part(self) -> Tries:
        """The attempts of a part of the operation: the same deadline, but the pauses start with the shortest again."""
        part = copy(self)
        part._pauses = 0
        return part

    def next_pause(self) -> Pause | None:
        """The pause before the next attempt; None if the deadline would pass."""
        backoff_ms = self._backoff.backoff_ms(self._pauses)
        self._pauses += 1
        return Pause(backoff_ms) if self._clock.monotonic_ms() + backoff_ms < self._deadline_ms else None

    def pause(self, what: str, why: ApiError) -> Pause:
        """The pause before *what*, which failed with *why*, is tried again.

        :raises BrokersUnreachableError: if the deadline would pass, and *why* is that no broker could be reached.
        :raises KafkaTimeoutError: if the deadline would pass otherwise.
        """
        pause = self.next_pause()
        if pause is None:
            kind = BrokersUnreachableError if isinstance(why, UNREACHABLE) else KafkaTimeoutError
            raise kind(f"{what} did not complete within {self.timeout_ms} ms: {why}") from why
        return pause


def run_together(client: BlockingClient, clock: Clock, exchanges: Sequence[Exchange[Any]]) -> list[Any]:
    """Run *exchanges* and return their results. An error raised by one ends all of them."""
    results: list[Any] = [None] * len(exchanges)
    rounds: dict[int, Round] = {}
    due_ms: dict[int, int] = {}

    def go_on(index: int, answers: Answers | None) -> None:
        """Resume an exchange up to its next step; *answers* is None at its start."""
        try:
            step = exchanges[index].send(answers)
        except StopIteration as end:
            results[index] = end.value
            return
        if isinstance(step, Round):
            rounds[index] = step
        else:
            due_ms[index] = clock.monotonic_ms() + step.duration_ms

    try:
        for index in range(len(exchanges)):
            go_on(index, None)
        while rounds or due_ms:
            if rounds:
                pending, rounds = rounds, {}
                for index, answers in zip(pending, _ask(client, clock, list(pending.values())), strict=True):
                    go_on(index, answers)
            else:
                client.idle(max(min(due_ms.values()) - clock.monotonic_ms(), 0))
            for index in [index for index, at_ms in due_ms.items() if at_ms <= clock.monotonic_ms()]:
                del due_ms[index]
                go_on(index, ())
    finally:
        for exchange in exchanges:
            exchange.close()
    return results


def _ask(client: BlockingClient, clock: Clock, rounds: Sequence[Round]) -> list[Answers]:
    """The answers to all *rounds*; the requests to known brokers are in flight together, those to any broker follow one
    by one in the remaining time."""
    started_ms = clock.monotonic_ms()

    def of_any(spec: RequestSpec, timeout_ms: int) -> Struct | ApiError:
        left_ms = max(started_ms + timeout_ms - clock.monotonic_ms(), 1)
        try:
            return client.ask(None, spec, timeout_ms=left_ms)
        except ApiError as error:
            return error

    of_brokers = [(node, spec) for request_round in rounds for node, spec in request_round.requests if node is not None]
    timeout_ms = max(request_round.timeout_ms for request_round in rounds)
    answers = iter(client.request_all(of_brokers, timeout_ms=timeout_ms) if of_brokers else ())
    return [
        [of_any(spec, each.timeout_ms) if node is None else next(answers) for node, spec in each.requests]
        for each in rounds
    ]
