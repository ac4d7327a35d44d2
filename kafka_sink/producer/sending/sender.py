"""Sender: the thread of a producer that communicates with the brokers.

:meth:`Sender.run` is the thread; :meth:`Sender.run_once` is one bounded step of it, which a simulator can drive alone.
The sender thread owns the NetworkClient, the drain and the idempotence state. It waits only in the client's poll, and
after an unexpected error. A failure of one batch or callback never stops the others.

:class:`TransactionalRequestSender` is the part of a step that keeps the identity of an idempotent producer, and its
transaction: it settles what batches did to the sequences, sends the requests of the transaction manager, one at a time,
and passes it the answers. It finds the broker for a request, and waits for the connection and for pauses between
attempts without blocking. The manager processes the outcomes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from kafka_sink.client.connection.client_request import ClientResponse
from kafka_sink.client.connection.network_client import NetworkClient
from kafka_sink.client.factory import ClientNetwork
from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.errors import KafkaError, TransactionAbortableError
from kafka_sink.common.model import TopicPartition
from kafka_sink.producer.batching.accumulator import RecordAccumulator
from kafka_sink.producer.batching.producer_batch import ProducerBatch
from kafka_sink.producer.metrics import ProducerContext
from kafka_sink.producer.sending.in_flight_batches import InFlightBatches
from kafka_sink.producer.sending.produce_request_sender import ProduceRequestSender
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
        returns how long the following poll may last, ms."""
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
        time-out. False if none is open, or it cannot be aborted."""
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
        self._transactions.close(self._in_flight)

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
        message = self._client.new_request(
            node,
            request.api_key,
            request.build,
            now_ms,
            max_version=request.max_version,
            timeout_ms=self._config.request_timeout_ms,
            callback=self._answered,
        )
        try:
            self._client.send(message, now_ms)
            self._in_flight = queued
        except Exception as error:
            unsent = KafkaError(f"{request.api_key.name} was not sent, because it cannot be encoded: {error}")
            self._transactions.request_failed(queued.result, unsent)
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


#: The maximum number of partitions in the message about records that were not acknowledged.
_PARTITIONS_NAMED = 10


class Sender:
    """The sender thread's loop (apache/kafka ``Sender``).

    :param transactional: None for a producer that is not idempotent.
    """

    def __init__(
        self,
        context: ProducerContext,
        client: NetworkClient,
        accumulator: RecordAccumulator,
        in_flight: InFlightBatches,
        produce: ProduceRequestSender,
        transactional: TransactionalRequestSender | None,
    ) -> None:
        self._config = context.config
        self._clock = context.clock
        self._log = context.log
        self._client = client
        self._accumulator = accumulator
        self._in_flight = in_flight
        self._produce = produce
        self._transactional = transactional
        self._longest_poll_ms = FOREVER_MS if accumulator.tells_of_new_batches else self._config.linger_ms
        self._running = True
        self._force_close = False
        self._why_closed = "the producer was closed"
        self._lost = ""
        # The pause after an unexpected error; a forced close ends it.
        self._pause = threading.Condition()
        self._last_uncaught: type[Exception] | None = None

    def run(self) -> None:
        """Run until closed, then send the remaining batches and abort an open transaction. A forced close fails the
        batches."""
        try:
            while self._running:
                self._step()
            # An append that began before the close may still add its batch.
            self._accumulator.await_appends()
            while not self._force_close and self._accumulator.has_incomplete:
                self._step()
            while not self._force_close and self._transactional and self._transactional.abort_open_transaction():
                self._step()
        except BaseException as error:
            # Errors do not end a step: another thread or user code has raised it here.
            self._why_closed = f"{type(error).__name__} ended the sender thread"
            raise
        finally:
            # However this thread ends: no other thread can complete the remaining batches, and nothing may be added to
            # them.
            self._running = False
            self._accumulator.close()
            self._accumulator.await_appends()
            self._note_lost(self._in_flight.give_up(self._reason_for_giving_up))
            if self._transactional is not None:
                self._transactional.close()
            try:
                self._client.close()
            except Exception:
                self._log.exception("closing the network client failed")

    def _reason_for_giving_up(self, batch: ProducerBatch) -> Exception:
        if batch.was_sent:
            return KafkaError(f"{self._why_closed} before this record was acknowledged; it was sent, and may be stored")
        return KafkaError(f"{self._why_closed} before this record was sent")

    def _note_lost(self, batches: Sequence[ProducerBatch]) -> None:
        if batches:
            lost = "; ".join(
                f"{what}: {_places(given_up)}"
                for what, was_sent in (("never sent", False), ("sent, and possibly stored", True))
                if (given_up := [batch for batch in batches if batch.was_sent is was_sent])
            )
            self._lost = f"{self._why_closed}, and not all records were acknowledged: {lost}"
            self._log.warning("%s", self._lost)

    def take_lost(self) -> str:
        """The records that were given up at the end, counted for the user; empty if there are none, and the second
        time."""
        lost, self._lost = self._lost, ""
        return lost

    def _step(self) -> None:
        try:
            self.run_once()
        except Exception as error:
            # A step that fails in the same way as the previous one is not logged again.
            if type(error) is not self._last_uncaught:
                self._last_uncaught = type(error)
                self._log.exception("uncaught error in the sender thread; the thread continues")
            # A step that fails before its poll has not waited, and the next one may fail as fast.
            with self._pause:
                if not self._force_close:
                    self._clock.wait(self._pause, max(self._config.retry_backoff_ms, 1))
        else:
            self._last_uncaught = None

    def run_once(self) -> None:
        """One iteration: expire batches, prepare the identity, send, then wait for the network at most once.

        The order matters: expired batches are never drained in the same pass, and the effects of expiry and of answers
        on the sequences are settled before the drain, so a partition never waits for a decision that can be made now.
        """
        now_ms = self._clock.monotonic_ms()
        self._in_flight.expire(now_ms)
        wait_ms = FOREVER_MS if self._transactional is None else self._transactional.run_once(now_ms)
        poll_ms = min(self._produce.run_once(now_ms), wait_ms, self._longest_poll_ms)
        self._client.poll(poll_ms, self._clock.monotonic_ms())

    def initiate_close(self) -> None:
        """Stop after the queued batches have been sent. Any thread."""
        self._accumulator.close()
        self._running = False
        self.wakeup()

    def force_close(self) -> None:
        """Stop now; batches that are not acknowledged fail. Any thread."""
        self._force_close = True
        self.initiate_close()
        with self._pause:
            self._pause.notify_all()

    def end_with_program(self) -> None:
        """Close a producer that is still open when the program ends; report what was not sent. The exiting thread."""
        self._why_closed = "the program exited without flush() or close() of this producer"
        self.force_close()

    def wakeup(self) -> None:
        """End the sender's wait. Any thread."""
        self._client.wakeup()

    @property
    def is_running(self) -> bool:
        return self._running


def _places(batches: Iterable[ProducerBatch]) -> str:
    """The number of records of each partition, as text."""
    counts: dict[TopicPartition, int] = {}
    for batch in batches:
        counts[batch.topic_partition] = counts.get(batch.topic_partition, 0) + batch.record_count
    named = [f"{partition} ({count})" for partition, count in sorted(counts.items())[:_PARTITIONS_NAMED]]
    if len(counts) > _PARTITIONS_NAMED:
        named.append(f"and {len(counts) - _PARTITIONS_NAMED} more partitions")
    return f"{sum(counts.values())} record(s) for {', '.join(named)}"
