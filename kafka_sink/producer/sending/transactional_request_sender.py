"""Sends the requests of the transaction manager, one at a time, and passes it the answers.

It is part of the sender thread's step. It finds the broker for a request, and waits for the connection and for pauses
between attempts without blocking. The manager and its requests interpret the answers.
"""

from __future__ import annotations

from kafka_sink.client.client_request import ClientResponse
from kafka_sink.client.metadata import Metadata
from kafka_sink.client.network_client import NetworkClient
from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.errors import KafkaError
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.producer.batching.accumulator import RecordAccumulator
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.transactions.manager import TransactionManager
from kafka_sink.producer.transactions.requests import TransactionalRequest


class TransactionalRequestSender:
    """See the module."""

    def __init__(
        self,
        *,
        client: NetworkClient,
        metadata: Metadata,
        accumulator: RecordAccumulator,
        transactions: TransactionManager,
        config: ProducerConfig,
        log: ContextLogger,
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._accumulator = accumulator
        self._transactions = transactions
        self._config = config
        self._log = log
        self._in_flight: TransactionalRequest | None = None

    def run_once(self, now_ms: int) -> int:
        """Send the next request if possible; returns how long the following poll may last, ms."""
        while self._in_flight is None:
            request = self._transactions.next_request(has_incomplete=self._accumulator.has_incomplete_or_appends)
            if request is None:
                return FOREVER_MS
            if request.not_before_ms > now_ms:
                return request.not_before_ms - now_ms
            wait_ms = self._try_send(request, now_ms)
            if wait_ms > 0:
                return wait_ms
        return FOREVER_MS

    def _try_send(self, request: TransactionalRequest, now_ms: int) -> int:
        """0 if *request* was sent or its coordinator is being looked up; else how long to wait, ms."""
        key = request.coordinator
        node = self._client.least_loaded_node(now_ms) if key is None else self._transactions.coordinator(key)
        if node is None:
            if key is None:
                # Never 0, which would mean that there is more to do now, and the caller would loop for ever.
                return max(self._config.retry_backoff_ms, 1)
            self._transactions.look_up(key, now_ms)
            return 0
        if not self._client.ready(node, now_ms):
            if key is not None and self._client.connection_failed(node):
                # This node may no longer be the coordinator. If it still is, a pause before the next attempt is
                # justified.
                self._transactions.look_up(key, now_ms, not_before_ms=now_ms + self._config.retry_backoff_ms)
                self._metadata.request_update()
                return 0
            return max(min(self._client.poll_delay_ms(node, now_ms), self._config.retry_backoff_ms), 1)
        if key is not None:
            self._transactions.coordinator_ready(key, node)
        self._transactions.taken(request)
        self._in_flight = request
        self._client.send(
            self._client.new_request(
                node,
                request.api_key,
                request.build,
                now_ms,
                max_version=request.max_version,
                timeout_ms=self._config.request_timeout_ms,
                callback=self._answered,
            ),
            now_ms,
        )
        return 0

    def _answered(self, response: ClientResponse) -> None:
        request, self._in_flight = self._in_flight, None
        if request is None:
            raise RuntimeError(f"{response.request} was answered although none was in flight")
        now_ms = response.received_ms
        try:
            if response.authentication_error is not None:
                raise response.authentication_error
            if response.version_mismatch is not None:
                request.unsupported(response.version_mismatch, now_ms)
            elif response.body is None:
                self._log.debug("%s was lost: %s", response.request, response.cause)
                request.lost(now_ms)
            else:
                request.handle(response.body, now_ms)
        except KafkaError as error:
            request.result.fail(error)
            self._transactions.fail_for_good(error)
