"""Sender: the one thread per producer that talks to the brokers.

:meth:`Sender.run` is the thread; :meth:`Sender.run_once` is one bounded step of it, which a simulator can drive
alone. It owns the NetworkClient, the drain side of the accumulator and the idempotence state. It never waits but in
the client's poll, and never lets one bad batch or callback stop the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_sink.client.metadata import Metadata
from kafka_sink.client.network_client import ClientResponse, NetworkClient
from kafka_sink.common.clock import FOREVER_MS, Clock
from kafka_sink.common.errors import ErrorCode, KafkaError, KafkaTimeoutError, error_for
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, Node, TopicPartition
from kafka_sink.producer.accumulator import RecordAccumulator
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.idempotence import IdempotenceManager
from kafka_sink.producer.metrics import ProducerMetrics
from kafka_sink.producer.producer_batch import ProducerBatch
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafka_sink.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

#: The newest Produce version that names topics by name; later ones need topic ids.
_PRODUCE_MAX_VERSION = 12


class Sender:
    """Turns queued batches into produce requests and their answers into outcomes (apache/kafka ``Sender``)."""

    def __init__(
        self,
        *,
        client: NetworkClient,
        metadata: Metadata,
        accumulator: RecordAccumulator,
        idempotence: IdempotenceManager | None,
        config: ProducerConfig,
        metrics: ProducerMetrics,
        clock: Clock,
        log: ContextLogger,
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._accumulator = accumulator
        self._idempotence = idempotence
        self._config = config
        self._metrics = metrics
        self._clock = clock
        self._log = log
        self._guarantee_order = config.max_in_flight_requests_per_connection == 1
        self._in_flight: dict[TopicPartition, list[ProducerBatch]] = {}
        #: Nothing expires before.
        self._next_expiry_ms = 0
        self._producer_id_requested = False
        self._producer_id_retry_at_ms = 0
        self._running = True
        self._force_close = False

    # --- the thread --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until closed, then send what is left; forced, fail it instead."""
        try:
            while self._running:
                self._step()
            # An append that was let in before the close may still add its batch.
            self._accumulator.await_appends()
            while not self._force_close and self._accumulator.has_incomplete:
                self._step()
        finally:
            # However this thread ends: nobody else could complete what is left, and nothing may be added to it.
            self._running = False
            self._accumulator.close()
            reason = KafkaError("the producer was closed before this record was acknowledged")
            self._metrics.record_error_total += self._accumulator.abort_incomplete(reason)
            self._close_client()

    def _close_client(self) -> None:
        try:
            self._client.close()
        except Exception:
            self._log.exception("closing the network client failed")

    def _step(self) -> None:
        try:
            self.run_once()
        except Exception:
            self._log.exception("uncaught error in the sender thread; it goes on")

    def run_once(self) -> None:
        """One iteration: expiry, identity, sends, then at most one wait for the network.

        In this order: what expires is never drained in the same pass, and what that or an answer did to the sequences
        is settled before anything is drained, so a partition never sleeps on a question that could be answered now.
        """
        now_ms = self._clock.monotonic_ms()
        self._expire(now_ms)
        wait_ms = FOREVER_MS if self._idempotence is None else self._prepare_identity(self._idempotence, now_ms)
        poll_ms = min(self._send_producer_data(now_ms), wait_ms)
        self._client.poll(poll_ms, self._clock.monotonic_ms())

    def initiate_close(self) -> None:
        """Stop after what is queued has been sent. Any thread."""
        self._accumulator.close()
        self._running = False
        self.wakeup()

    def force_close(self) -> None:
        """Stop now; what is not acknowledged fails. Any thread."""
        self._force_close = True
        self.initiate_close()

    def wakeup(self) -> None:
        """End the sender's wait. Any thread."""
        self._client.wakeup()

    @property
    def is_running(self) -> bool:
        return self._running

    # --- producer id -------------------------------------------------------------------------------------------------

    def _prepare_identity(self, idempotence: IdempotenceManager, now_ms: int) -> int:
        """Settle sequences and fetch a producer id where one is missing; how long the next poll may last, ms."""
        idempotence.resolve_sequences()
        idempotence.bump_epoch_if_required()
        if idempotence.fatal_error is not None:
            self._fail_everything(idempotence.fatal_error)
            return FOREVER_MS
        if idempotence.identity.is_valid or self._producer_id_requested:
            return FOREVER_MS
        if now_ms < self._producer_id_retry_at_ms:
            return self._producer_id_retry_at_ms - now_ms
        node = self._client.least_loaded_node(now_ms)
        if node is None:
            return self._config.retry_backoff_ms
        if not self._client.ready(node, now_ms):
            return min(self._client.poll_delay_ms(node, now_ms), self._config.retry_backoff_ms)
        request = self._client.new_request(
            node,
            ApiKey.INIT_PRODUCER_ID,
            lambda version: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1),
            now_ms,
            callback=self._handle_producer_id,
        )
        self._client.send(request, now_ms)
        self._producer_id_requested = True
        return FOREVER_MS

    def _handle_producer_id(self, response: ClientResponse) -> None:
        self._producer_id_requested = False
        if self._idempotence is None:
            raise RuntimeError("a producer id arrived although none was asked for")
        code = ErrorCode.NETWORK_EXCEPTION if response.version_mismatch is None else ErrorCode.UNSUPPORTED_VERSION
        if isinstance(response.body, InitProducerIdResponse):
            code = ErrorCode.of(response.body.error_code)
            if code is ErrorCode.NONE:
                self._idempotence.assign_producer_id(response.body.producer_id, response.body.producer_epoch)
                return
        if code.is_retriable:
            self._producer_id_retry_at_ms = response.received_ms + self._config.retry_backoff_ms
            return
        remedy = _PRODUCER_ID_REMEDIES.get(code, "see the brokers' logs")
        self._idempotence.fatal_error = error_for(
            code, f"no producer id was given out, so nothing can be sent: {remedy}, or set enable.idempotence=false"
        )

    def _fail_everything(self, error: Exception) -> None:
        self._metrics.record_error_total += self._accumulator.abort_batches(error)
        self._in_flight.clear()

    # --- sending -----------------------------------------------------------------------------------------------------

    def _send_producer_data(self, now_ms: int) -> int:
        """Send every batch that is ready; how long the poll after it may last, ms."""
        cluster = self._metadata.fetch()
        ready = self._accumulator.ready(cluster, now_ms)
        if ready.unknown_leader_topics:
            for topic in ready.unknown_leader_topics:
                # The topic may have expired from the metadata while its leader was unknown.
                self._metadata.add(topic, now_ms)
            self._metadata.request_update()
        not_ready_timeout_ms = FOREVER_MS
        nodes: list[Node] = []
        # In a fixed order, so that a run can be repeated from its seed.
        for node in sorted(ready.ready_nodes, key=lambda node: node.id):
            if self._client.ready(node, now_ms):
                nodes.append(node)
            else:
                not_ready_timeout_ms = min(not_ready_timeout_ms, self._client.poll_delay_ms(node, now_ms))
        drained = self._accumulator.drain(cluster, nodes, self._config.max_request_size_bytes, now_ms)
        self._track(drained)
        for node_id, batches in drained.items():
            if batches:
                self._send_produce_request(node_id, batches, now_ms)
        if any(drained.values()):
            return 0
        until_expiry_ms = self._next_expiry_ms - now_ms
        return max(min(ready.next_ready_check_delay_ms, not_ready_timeout_ms, until_expiry_ms), 0)

    def _track(self, drained: dict[int, list[ProducerBatch]]) -> None:
        for batches in drained.values():
            self._metrics.drained(batches)
            for batch in batches:
                self._in_flight.setdefault(batch.topic_partition, []).append(batch)
                if self._guarantee_order:
                    self._accumulator.mute(batch.topic_partition)

    def _expire(self, now_ms: int) -> None:
        """Fail what has waited longer than delivery.timeout.ms, queued or in flight."""
        if now_ms < self._next_expiry_ms:
            return
        expired, next_expiry_ms = self._accumulator.expired_batches(now_ms)
        timeout_ms = self._config.delivery_timeout_ms
        for batch in (batch for batches in self._in_flight.values() for batch in batches):
            if batch.has_reached_delivery_timeout(timeout_ms, now_ms):
                expired.append(batch)
            else:
                next_expiry_ms = min(next_expiry_ms, batch.created_ms + timeout_ms)
        # What is appended from now on has all of its time before it, so until then nothing has to be looked at.
        self._next_expiry_ms = min(next_expiry_ms, now_ms + timeout_ms)
        for batch in expired:
            error = KafkaTimeoutError(
                f"expiring {batch.record_count} record(s) for {batch.topic_partition}: {now_ms - batch.created_ms} ms "
                f"have passed since the batch was created (delivery.timeout.ms={timeout_ms}){self._what_failed()}"
            )
            self._fail(batch, error, may_be_stored=True)

    def _what_failed(self) -> str:
        failures = self._client.connection_failures()
        return "; " + "; ".join(f"{f.host}:{f.port}: {f.cause}" for f in failures) if failures else ""

    def _send_produce_request(self, node_id: int, batches: Sequence[ProducerBatch], now_ms: int) -> None:
        by_partition = {batch.topic_partition: batch for batch in batches}
        request = self._client.new_request(
            str(node_id),
            ApiKey.PRODUCE,
            lambda version: self._produce_request(batches),
            now_ms,
            max_version=_PRODUCE_MAX_VERSION,
            expect_response=self._config.acks_code != 0,
            timeout_ms=self._config.request_timeout_ms,
            callback=lambda response: self._handle_produce_response(response, by_partition),
        )
        try:
            self._client.send(request, now_ms)
        except Exception as error:
            # A defect, not the network: the other nodes' batches still go out, and these must not wait for an answer.
            self._log.exception("a produce request to node %s could not be sent", node_id)
            for batch in batches:
                reason = KafkaError(f"{batch.record_count} record(s) for {batch.topic_partition} not sent: {error!r}")
                self._fail(batch, reason, may_be_stored=batch.attempts > 0)
                self._accumulator.unmute(batch.topic_partition)
            return
        for batch in batches:
            batch.unanswered_sends += 1

    def _produce_request(self, batches: Sequence[ProducerBatch]) -> ProduceRequest:
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            topic, partition = batch.topic_partition
            data = topics.setdefault(topic, TopicProduceData(name=topic, partition_data=[]))
            data.partition_data.append(PartitionProduceData(index=partition, records=batch.wire))
        return ProduceRequest(
            transactional_id=None,
            acks=self._config.acks_code,
            timeout_ms=self._config.request_timeout_ms,
            topic_data=list(topics.values()),
        )

    # --- answers -----------------------------------------------------------------------------------------------------

    def _handle_produce_response(self, response: ClientResponse, sent: dict[TopicPartition, ProducerBatch]) -> None:
        for batch in sent.values():
            batch.unanswered_sends -= 1
        self._metrics.answered(response.latency_ms)
        now_ms = self._clock.monotonic_ms()
        if isinstance(response.body, ProduceResponse):
            self._handle_answer(response.body, sent, now_ms)
            return
        if response.version_mismatch is not None:
            answer = PartitionProduceResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=str(response.version_mismatch)
            )
        elif response.disconnected:
            answer = PartitionProduceResponse(error_code=ErrorCode.NETWORK_EXCEPTION, error_message=response.cause)
        else:
            answer = PartitionProduceResponse(base_offset=NO_OFFSET, log_append_time_ms=NO_TIMESTAMP)
        for batch in sent.values():
            self._complete(batch, answer, now_ms)

    def _handle_answer(self, body: ProduceResponse, sent: dict[TopicPartition, ProducerBatch], now_ms: int) -> None:
        unanswered = dict(sent)
        for topic in body.responses:
            for answer in topic.partition_responses:
                batch = unanswered.pop(TopicPartition(topic.name, answer.index), None)
                if batch is None:
                    self._log.warning("the broker answered for %s-%d, which was not asked", topic.name, answer.index)
                else:
                    self._complete(batch, answer, now_ms)
        for batch in unanswered.values():
            missing = PartitionProduceResponse(
                error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_message="the broker's answer leaves this partition out"
            )
            self._complete(batch, missing, now_ms)

    def _complete(self, batch: ProducerBatch, answer: PartitionProduceResponse, now_ms: int) -> None:
        """Settle one batch: stored, to be sent again, or failed."""
        code = ErrorCode.of(answer.error_code)
        if batch.is_done:
            # It expired while this answer was under way; only now is its memory free of the request.
            self._accumulator.deallocate(batch)
        elif code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._succeed(batch, answer)
        elif self._can_retry(batch, code, answer.log_start_offset, now_ms):
            self._retry(batch, code, answer.error_message, now_ms)
        else:
            error = error_for(answer.error_code, self._explain(batch, code, answer.error_message))
            # The refusal of a first attempt is certain. Of a later one it is not: an earlier one may have been stored.
            self._fail(batch, error, may_be_stored=code.is_retriable or batch.attempts > 0)
        if code.is_invalid_metadata:
            self._metadata.request_update()
        if self._guarantee_order:
            self._accumulator.unmute(batch.topic_partition)

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
        self._metrics.record_retry_total += batch.record_count
        self._forget_in_flight(batch)
        self._accumulator.reenqueue(batch, now_ms)

    def _succeed(self, batch: ProducerBatch, answer: PartitionProduceResponse) -> None:
        if self._idempotence is not None:
            self._idempotence.completed(batch)
        self._forget_in_flight(batch)
        batch.done(answer.base_offset, answer.log_append_time_ms, None)
        self._accumulator.deallocate(batch)

    def _fail(self, batch: ProducerBatch, error: Exception, *, may_be_stored: bool) -> None:
        if self._idempotence is not None:
            self._idempotence.failed(batch, error, may_be_stored=may_be_stored)
        self._forget_in_flight(batch)
        self._metrics.record_error_total += batch.record_count
        batch.done(NO_OFFSET, NO_TIMESTAMP, error)
        self._accumulator.deallocate(batch)

    def _explain(self, batch: ProducerBatch, code: ErrorCode, message: str | None) -> str:
        what = f"{batch.record_count} record(s) for {batch.topic_partition} were refused"
        said = f" ({message})" if message else ""
        return f"{what}{said}{_REMEDIES.get(code, '')}"

    def _forget_in_flight(self, batch: ProducerBatch) -> None:
        batches = self._in_flight.get(batch.topic_partition)
        if batches is not None:
            batches = [other for other in batches if other is not batch]
            if batches:
                self._in_flight[batch.topic_partition] = batches
            else:
                del self._in_flight[batch.topic_partition]


_REMEDIES: dict[ErrorCode, str] = {
    ErrorCode.MESSAGE_TOO_LARGE: "; lower batch.size or max.request.size, or raise the topic's max.message.bytes",
    ErrorCode.RECORD_LIST_TOO_LARGE: "; lower batch.size, or raise the topic's segment.bytes",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "; grant WRITE on the topic to this principal",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "; grant IDEMPOTENT_WRITE on the cluster, or set enable.idempotence=false",
    ErrorCode.INVALID_RECORD: "; the broker's validation refused it (a compacted topic needs keys, for example)",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "; choose another compression.type",
    ErrorCode.NOT_ENOUGH_REPLICAS: "; fewer replicas are in sync than min.insync.replicas asks for",
}

_PRODUCER_ID_REMEDIES: dict[ErrorCode, str] = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (
        "grant WRITE on the topic to this principal (before Kafka 2.8: IDEMPOTENT_WRITE on the cluster)"
    ),
    ErrorCode.UNSUPPORTED_VERSION: "idempotent writes need brokers of version 0.11 or newer; upgrade them",
}
