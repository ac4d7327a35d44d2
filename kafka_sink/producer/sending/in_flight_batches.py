"""The batches in flight: drained batches that have no outcome yet, and how each of them ends.

Runs on the sender thread only. A batch is stored, sent again, split, refused, or expired; each ends here once. This
module never performs I/O, and handles the answers for batches, not requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from kafka_sink.client.factory import ClientNetwork
from kafka_sink.common.errors import ApiError, BatchRefusedError, ErrorCode, KafkaError, KafkaTimeoutError, error_for
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, TopicPartition
from kafka_sink.common.remedies import Situation, remedy
from kafka_sink.producer.batching.accumulator import RecordAccumulator
from kafka_sink.producer.batching.batch_drain import BatchDrain
from kafka_sink.producer.batching.partition_queues import IncompleteBatches
from kafka_sink.producer.batching.producer_batch import ProducerBatch
from kafka_sink.producer.futures import NO_RECORD_ERRORS
from kafka_sink.producer.metrics import ProducerContext
from kafka_sink.producer.topic_limits import MAX_MESSAGE_BYTES
from kafka_sink.producer.transactions.manager import TransactionManager
from kafka_sink.protocol.messages.produce import PartitionProduceResponse

#: The batch as a whole exceeds a limit of the topic; its records, or some of them, may not.
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class InFlightBatches:
    """The drained batches, by partition.

    :param transactions: None for a producer that is not idempotent.
    """

    def __init__(
        self,
        context: ProducerContext,
        network: ClientNetwork,
        accumulator: RecordAccumulator,
        drain: BatchDrain,
        incomplete: IncompleteBatches,
        transactions: TransactionManager | None,
    ) -> None:
        self._config = context.config
        self._clock = context.clock
        self._metrics = context.metrics
        self._log = context.log
        self._metadata = network.metadata
        self._connection_failures = network.client.connection_failures
        self._accumulator = accumulator
        self._drain = drain
        #: The topics of batches that were split; each is logged once as a warning.
        self._split_topics: set[str] = set()
        self._incomplete = incomplete
        self._transactions = transactions
        self._idempotence = None if transactions is None else transactions.sequences
        self._guarantee_order = self._config.max_in_flight_requests_per_connection == 1
        self._batches: dict[TopicPartition, list[ProducerBatch]] = {}
        #: No batch expires before this time, monotonic ms.
        self.next_expiry_ms = 0

    def track(self, drained: dict[int, list[ProducerBatch]]) -> None:
        """Add batches that are about to be sent, by node."""
        for batches in drained.values():
            self._metrics.drained(batches)
            for batch in batches:
                self._batches.setdefault(batch.topic_partition, []).append(batch)
                if self._guarantee_order:
                    self._drain.mute(batch.topic_partition)

    def expire(self, now_ms: int) -> None:
        """Fail the batches that have waited longer than delivery.timeout.ms, queued or in flight."""
        if now_ms < self.next_expiry_ms:
            return
        expired, next_expiry_ms = self._drain.expired_batches(now_ms)
        timeout_ms = self._config.delivery_timeout_ms
        for batch in (batch for batches in self._batches.values() for batch in batches):
            if batch.has_reached_delivery_timeout(timeout_ms, now_ms):
                expired.append(batch)
            else:
                next_expiry_ms = min(next_expiry_ms, batch.created_ms + timeout_ms)
        # Batches that are appended from now on have their whole time-out ahead, so no check is needed until then.
        self.next_expiry_ms = min(next_expiry_ms, now_ms + timeout_ms)
        for batch in expired:
            error = KafkaTimeoutError(
                f"expiring {batch.record_count} record(s) for {batch.topic_partition}: {now_ms - batch.created_ms} ms "
                f"have passed since the batch was created ({self._config.option('delivery.timeout.ms')}={timeout_ms})"
                + (f"; its last attempt: {batch.last_failure}" if batch.last_failure else "")
                + self._missing_leader(batch.topic_partition)
                + "".join(f"; {each.host}:{each.port}: {each.cause}" for each in self._connection_failures())
            )
            self.fail(batch, error.of_option(self._config.option("delivery.timeout.ms")))

    def _missing_leader(self, partition: TopicPartition) -> str:
        info = self._metadata.fetch().partition(partition)
        if info is None or info.leader is not None:
            return ""
        return f"; {partition} has no leader: start the brokers that have its replicas"

    def complete(self, batch: ProducerBatch, answer: PartitionProduceResponse, now_ms: int) -> None:
        """Handle the answer for one batch: it is stored, sent again, split, or failed."""
        code = ErrorCode.of(answer.error_code)
        if batch.is_done:
            # The batch expired while this answer was outstanding; from now on no request refers to its memory.
            self._incomplete.deallocate(batch)
        elif code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._succeed(batch, answer)
        elif code in _TOO_LARGE and batch.record_count > 1:
            self._split(batch, code)
        elif self._can_retry(batch, code, answer.log_start_offset, now_ms):
            self._retry(batch, code, answer.error_message, now_ms)
        else:
            self._refuse(batch, code, answer)
        if code.is_invalid_metadata:
            self._metadata.request_update()
        if self._guarantee_order:
            self._drain.unmute(batch.topic_partition)

    def _can_retry(self, batch: ProducerBatch, code: ErrorCode, log_start_offset: int, now_ms: int) -> bool:
        if batch.has_reached_delivery_timeout(self._config.delivery_timeout_ms, now_ms):
            return False
        if batch.attempts >= self._config.retries:
            return False
        if self._idempotence is not None:
            return self._idempotence.can_retry(batch, code, log_start_offset)
        return code.is_retriable

    def _retry(self, batch: ProducerBatch, code: ErrorCode, message: str | None, now_ms: int) -> None:
        self._log.warning(
            "batch of %d records for %s failed with %s%s; it will be sent again (attempt %d)",
            batch.record_count,
            batch.topic_partition,
            code.name,
            f" ({message})" if message else "",
            batch.attempts + 2,
        )
        batch.last_failure = f"{code.name}: {message}" if message else code.name
        self._metrics.retried(batch.topic_partition.topic, batch.record_count, now_ms)
        self._forget(batch)
        self._drain.reenqueue(batch, now_ms)

    def _split(self, batch: ProducerBatch, code: ErrorCode) -> None:
        self._forget(batch)
        try:
            # The following batches of the topic are limited to this size.
            most_bytes = self._accumulator.limit_batches(batch.topic_partition.topic, batch.size_bytes // 2)
            self._drain.split_and_reenqueue(batch, most_bytes)
        except Exception as error:
            self._log.exception("a batch of %s could not be split", batch.topic_partition)
            self.fail(batch, error_for(code, f"{self._explain(batch, code, None)} (not split: {error!r})"))
            return
        self._metrics.split(self._clock.monotonic_ms())
        topic = batch.topic_partition.topic
        self._log.log(
            logging.DEBUG if topic in self._split_topics else logging.WARNING,
            "a batch of %d records for %s (%d bytes) was refused with %s; it is split and sent again, and batches of "
            "topic %s become smaller until they are accepted; consider a smaller %s, or a larger %s of the topic",
            batch.record_count,
            batch.topic_partition,
            batch.size_bytes,
            code.name,
            topic,
            self._config.option("batch.size"),
            MAX_MESSAGE_BYTES,
        )
        self._split_topics.add(topic)

    def _succeed(self, batch: ProducerBatch, answer: PartitionProduceResponse) -> None:
        if self._idempotence is not None:
            self._idempotence.completed(batch, answer.base_offset)
        self._forget(batch)
        batch.done(answer.base_offset, answer.log_append_time_ms, None)
        self._incomplete.deallocate(batch)

    def _refuse(self, batch: ProducerBatch, code: ErrorCode, answer: PartitionProduceResponse) -> None:
        """Fail *batch*, which the broker refused because of all its records, or of those that the answer names
        (KIP-467)."""
        named: dict[int, ApiError] = {}
        # One code cannot describe the errors of several records, as in Kafka's Java client.
        named_code = answer.error_code if len(answer.record_errors) == 1 else int(ErrorCode.INVALID_RECORD)
        for record in answer.record_errors:
            message = record.batch_index_error_message or answer.error_message
            what = f"record {record.batch_index} of {batch.record_count} in its batch for {batch.topic_partition}"
            named[record.batch_index] = error_for(named_code, f"{what} was refused{self._hint(code, message)}")
        error: Exception = error_for(answer.error_code, self._explain(batch, code, answer.error_message))
        if named:
            error = BatchRefusedError(named[min(named)])
        self.fail(batch, error, named)

    def fail(
        self, batch: ProducerBatch, error: Exception, record_errors: Mapping[int, Exception] = NO_RECORD_ERRORS
    ) -> None:
        """Fail *batch* without a retry; :meth:`ProducerBatch.done` describes the parameters."""
        if self._idempotence is not None:
            self._idempotence.failed(batch)
        if self._transactions is not None:
            self._transactions.batch_failed(error)
        self._forget(batch)
        self._metrics.failed(batch.topic_partition.topic, batch.record_count, self._clock.monotonic_ms())
        batch.done(NO_OFFSET, NO_TIMESTAMP, error, record_errors)
        self._incomplete.deallocate(batch)

    def not_sent(self, batches: Iterable[ProducerBatch], error: Exception) -> None:
        """Fail drained batches, because their request could not be sent."""
        for batch in batches:
            reason = KafkaError(f"{batch.record_count} record(s) for {batch.topic_partition} not sent: {error!r}")
            self.fail(batch, reason)
            self._drain.unmute(batch.topic_partition)

    def abort_all(self, error: Exception) -> None:
        """Fail every batch, queued or in flight."""
        aborted = self._drain.abort_batches(lambda _: error)
        if self._idempotence is not None:
            for batch in aborted:
                # Batches that stay in flight there would block their partition after an error that is not fatal.
                self._idempotence.failed(batch)
        self._count_failed(aborted)
        self._batches.clear()

    def abort_undrained(self, error: Exception) -> None:
        """Fail the batches that were never drained."""
        self._count_failed(self._drain.abort_undrained(error))

    def give_up(self, reason_for: Callable[[ProducerBatch], Exception]) -> list[ProducerBatch]:
        """Fail every batch at the end of the producer, and return them."""
        given_up = self._drain.abort_batches(reason_for)
        self._count_failed(given_up)
        return given_up

    def _count_failed(self, batches: Iterable[ProducerBatch]) -> None:
        now_ms = self._clock.monotonic_ms()
        for batch in batches:
            self._metrics.failed(batch.topic_partition.topic, batch.record_count, now_ms)

    def _explain(self, batch: ProducerBatch, code: ErrorCode, message: str | None) -> str:
        size = f" of {batch.wire_bytes} bytes in a batch" if code in _TOO_LARGE else ""
        what = f"{batch.record_count} record(s){size} for {batch.topic_partition} were refused"
        return f"{what}{self._hint(code, message)}"

    def _hint(self, code: ErrorCode, message: str | None) -> str:
        """The broker's message, and a remedy."""
        detail = f" ({message})" if message else ""
        what_to_do = remedy(Situation.RECORDS, code, prefix=self._config.option_prefix)
        return f"{detail}; {what_to_do}" if what_to_do else detail

    def _forget(self, batch: ProducerBatch) -> None:
        batches = [other for other in self._batches.pop(batch.topic_partition, ()) if other is not batch]
        if batches:
            self._batches[batch.topic_partition] = batches
