"""Keeps the identity of an idempotent producer, and its transaction: settles what batches did to the sequences, and
sends the requests of the transaction manager, one at a time, and passes it the answers.

It is one part of the sender thread's step. It finds the broker for a request, and waits for the connection and for
pauses between attempts without blocking. The manager follows the outcomes.
"""

from __future__ import annotations

from kafka_sink.client.connection.client_request import ClientResponse
from kafka_sink.client.factory import ClientNetwork
from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.errors import KafkaError, TransactionAbortableError
from kafka_sink.producer.batching.accumulator import RecordAccumulator
from kafka_sink.producer.metrics import ProducerContext
from kafka_sink.producer.sending.in_flight_batches import InFlightBatches
from kafka_sink.producer.transactions.manager import TransactionManager
from kafka_sink.producer.transactions.request_queue import QueuedRequest


class TransactionalRequestSender:
    """See the module."""

    def __init__(
        self,
        context: ProducerContext,
        network: ClientNetwork,
        accumulator: RecordAccumulator,
        in_flight: InFlightBatches,
        transactions: TransactionManager,
    ) -> None:
        self._config = context.config
        self._log = context.log
        self._client = network.client
        self._metadata = network.metadata
        self._accumulator = accumulator
        self._batches = in_flight
        self._transactions = transactions
        self._in_flight: QueuedRequest | None = None

    def run_once(self, now_ms: int) -> int:
        """Resolve sequences, fail the batches that cannot be sent any more, and send the next request if possible;
        returns how long the following poll may last, ms.
        """
        transactions = self._transactions
        with_gap = transactions.sequences.resolve_sequences()
        if with_gap and transactions.is_transactional:
            transactions.sequences_have_gap(with_gap)
        if transactions.has_fatal_error:
            self._batches.abort_all(self._reason())
            return FOREVER_MS
        denied = transactions.take_denial()
        if denied is not None:
            self._batches.abort_all(denied)
        if transactions.is_given_up:
            self._batches.abort_undrained(self._reason())
        transactions.ensure_producer_id(is_needed=self._accumulator.has_incomplete, now_ms=now_ms)
        return self._send_next(now_ms)

    def _reason(self) -> Exception:
        return self._transactions.last_error or TransactionAbortableError("the transaction was aborted")

    def abort_open_transaction(self) -> bool:
        """Abort a transaction that can no longer be committed; otherwise brokers and readers would wait for its
        time-out. False if none is open, or it cannot be aborted.
        """
        if not self._transactions.has_ongoing_transaction:
            return False
        if not self._transactions.is_completing:
            self._log.info("aborting the open transaction, because the producer is closed")
            try:
                self._transactions.begin_abort()
            except KafkaError:
                self._log.exception("the open transaction could not be aborted")
                return False
        return True

    def close(self) -> None:
        """Fail the calls that still wait for a result."""
        self._transactions.close()

    def _send_next(self, now_ms: int) -> int:
        while self._in_flight is None:
            queued = self._transactions.next_request(has_incomplete=self._accumulator.has_incomplete_or_appends)
            if queued is None:
                return FOREVER_MS
            if queued.not_before_ms > now_ms:
                return queued.not_before_ms - now_ms
            wait_ms = self._try_send(queued, now_ms)
            if wait_ms > 0:
                return wait_ms
        return FOREVER_MS

    def _try_send(self, queued: QueuedRequest, now_ms: int) -> int:
        """0 if *queued* was sent or its coordinator is being looked up; else how long to wait, ms."""
        request = queued.request
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
        self._transactions.taken(queued)
        self._in_flight = queued
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
        queued, self._in_flight = self._in_flight, None
        if queued is None:
            raise RuntimeError(f"a response to {response.request} arrived although no request was in flight")
        now_ms = response.received_ms
        try:
            if response.authentication_error is not None:
                raise response.authentication_error
            if response.version_mismatch is not None:
                self._transactions.unsupported(queued, response.version_mismatch, now_ms)
            elif response.body is None:
                self._log.debug("%s was lost: %s", response.request, response.cause)
                self._transactions.lost(queued, now_ms)
            else:
                self._transactions.answered(queued, response.body, now_ms)
        except KafkaError as error:
            queued.result.fail(error)
            self._transactions.fail_for_good(error)
