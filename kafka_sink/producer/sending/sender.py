"""Sender: the thread of a producer that communicates with the brokers.

:meth:`Sender.run` is the thread; :meth:`Sender.run_once` is one bounded step of it, which a simulator can drive alone.
The sender thread owns the NetworkClient, the drain and the idempotence state. It waits only in
the client's poll, and after an unexpected error. A failure of one batch or callback never stops the others.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from kafka_sink.client.connection.network_client import NetworkClient
from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.errors import KafkaError
from kafka_sink.common.model import TopicPartition
from kafka_sink.producer.batching.accumulator import RecordAccumulator
from kafka_sink.producer.batching.producer_batch import ProducerBatch
from kafka_sink.producer.metrics import ProducerContext
from kafka_sink.producer.sending.in_flight_batches import InFlightBatches
from kafka_sink.producer.sending.produce_request_sender import ProduceRequestSender
from kafka_sink.producer.sending.transactional_request_sender import TransactionalRequestSender

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
        # The pause after an unexpected error; a forced close ends it.
        self._pause = threading.Condition()
        self._last_uncaught: type[Exception] | None = None

    # --- the thread --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until closed, then send the remaining batches and abort an open transaction. A forced close fails the
        batches.
        """
        try:
            while self._running:
                self._step()
            # An append that began before the close may still add its batch.
            self._accumulator.await_appends()
            while not self._force_close and self._accumulator.has_incomplete:
                self._step()
            while not self._force_close and self._has_transaction_to_abort():
                self._step()
        except BaseException as error:
            # Errors do not end a step: another thread or code of the user's has raised it here.
            self._why_closed = f"{type(error).__name__} ended the sender thread"
            raise
        finally:
            # However this thread ends: no other thread can complete the remaining batches, and nothing may be added to
            # them.
            self._running = False
            self._accumulator.close()
            self._accumulator.await_appends()
            self._warn_of_lost(self._in_flight.give_up(self._reason_for_giving_up))
            if self._transactional is not None:
                self._transactional.close()
            self._close_client()

    def _has_transaction_to_abort(self) -> bool:
        return self._transactional is not None and self._transactional.abort_open_transaction()

    def _reason_for_giving_up(self, batch: ProducerBatch) -> Exception:
        if batch.was_sent:
            return KafkaError(f"{self._why_closed} before this record was acknowledged; it was sent, and may be stored")
        return KafkaError(f"{self._why_closed} before this record was sent")

    def _warn_of_lost(self, batches: Sequence[ProducerBatch]) -> None:
        if batches:
            lost = "; ".join(
                f"{what}: {_places(given_up)}"
                for what, was_sent in (("never sent", False), ("sent, and possibly stored", True))
                if (given_up := [batch for batch in batches if batch.was_sent is was_sent])
            )
            self._log.warning("%s, and not all records were acknowledged: %s", self._why_closed, lost)

    def _close_client(self) -> None:
        try:
            self._client.close()
        except Exception:
            self._log.exception("closing the network client failed")

    def _step(self) -> None:
        try:
            self.run_once()
        except Exception as error:
            self._note_uncaught(error)
            self._wait_after_uncaught()
        else:
            self._last_uncaught = None

    def _note_uncaught(self, error: Exception) -> None:
        """Log *error*, unless the previous step failed in the same way."""
        if type(error) is not self._last_uncaught:
            self._last_uncaught = type(error)
            self._log.exception("uncaught error in the sender thread; the thread continues")

    def _wait_after_uncaught(self) -> None:
        # A step that fails before its poll has not waited, and the next one may fail as fast.
        with self._pause:
            if not self._force_close:
                self._clock.wait(self._pause, max(self._config.retry_backoff_ms, 1))

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
