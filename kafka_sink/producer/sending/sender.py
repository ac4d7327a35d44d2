"""Sender: the thread of a producer that communicates with the brokers.

:meth:`Sender.run` is the thread; :meth:`Sender.run_once` is one bounded step of it, which a simulator can drive alone.
The sender owns the NetworkClient, the drain side of the accumulator and the idempotence state. It waits only in the
client's poll, and after an unexpected error. A failure of one batch or callback never stops the others.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from kafka_sink.client.metadata import Metadata
from kafka_sink.client.network_client import ClientResponse, NetworkClient
from kafka_sink.client.snapshot import NewLeader
from kafka_sink.common.clock import FOREVER_MS, Clock
from kafka_sink.common.errors import (
    ErrorCode,
    KafkaError,
    TransactionAbortableError,
    UnsupportedVersionError,
)
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, Node, TopicPartition
from kafka_sink.producer.batching.accumulator import RecordAccumulator
from kafka_sink.producer.batching.producer_batch import ProducerBatch
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.metrics import ProducerMetrics
from kafka_sink.producer.sending.batch_drain import BatchDrain
from kafka_sink.producer.sending.in_flight_batches import InFlightBatches
from kafka_sink.producer.sending.partition_loads import PartitionLoads
from kafka_sink.producer.sending.transactional_request_sender import TransactionalRequestSender
from kafka_sink.producer.transactions.manager import TransactionManager
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

#: The newest Produce version that identifies topics by name; newer versions need topic ids.
_PRODUCE_MAX_VERSION = 12

#: The maximum number of partitions in the message about records that were not acknowledged.
_PARTITIONS_NAMED = 10

#: From this version on, Produce adds its partitions to the transaction implicitly (transaction version 2, KIP-890).
_PRODUCE_TRANSACTION_VERSION_2 = 12

#: From this version on, brokers accept zstd (KIP-110).
_PRODUCE_ZSTD = 7


class Sender:
    """Sends queued batches in produce requests and completes them with the answers (apache/kafka ``Sender``).

    :param loads: None if the partitioner does not use the queue lengths.
    """

    def __init__(
        self,
        *,
        client: NetworkClient,
        metadata: Metadata,
        accumulator: RecordAccumulator,
        drain: BatchDrain,
        loads: PartitionLoads | None = None,
        transactions: TransactionManager | None,
        config: ProducerConfig,
        metrics: ProducerMetrics,
        clock: Clock,
        log: ContextLogger,
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._accumulator = accumulator
        self._drain = drain
        self._loads = loads
        self._transactions = transactions
        self._config = config
        self._metrics = metrics
        self._clock = clock
        self._log = log
        self._in_flight = InFlightBatches(
            metadata=metadata,
            accumulator=accumulator,
            drain=drain,
            transactions=transactions,
            config=config,
            metrics=metrics,
            clock=clock,
            log=log,
            connection_failures=client.connection_failures,
        )
        self._requests = None
        if transactions is not None:
            self._requests = TransactionalRequestSender(
                client=client,
                metadata=metadata,
                accumulator=accumulator,
                transactions=transactions,
                config=config,
                log=log,
            )
        self._running = True
        self._force_close = False
        self._keeps_network = False
        self._why_closed = "the producer was closed"
        # The pause after an unexpected error; a forced close ends it.
        self._pause = threading.Condition()
        self._last_uncaught: str | None = None

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
            self._abort_open_transaction()
        finally:
            # However this thread ends: no other thread can complete the remaining batches, and nothing may be added to
            # them.
            self._running = False
            self._accumulator.close()
            self._give_up(self._accumulator.abort_incomplete(self._reason_for_giving_up))
            if self._transactions is not None:
                self._transactions.close()
            self._close_client()

    def _abort_open_transaction(self) -> None:
        """Abort a transaction that can no longer be committed. Otherwise brokers and readers would wait for its
        time-out.
        """
        transactions = self._transactions
        while transactions is not None and transactions.has_ongoing_transaction and not self._force_close:
            if not transactions.is_completing:
                self._log.info("aborting the open transaction, because the producer is closed")
                try:
                    transactions.begin_abort()
                except KafkaError:
                    self._log.exception("the open transaction could not be aborted")
                    return
            self._step()

    def _reason_for_giving_up(self, batch: ProducerBatch) -> Exception:
        if batch.was_sent:
            return KafkaError(f"{self._why_closed} before this record was acknowledged; it was sent, and may be stored")
        return KafkaError(f"{self._why_closed} before this record was sent")

    def _give_up(self, batches: Sequence[ProducerBatch]) -> None:
        self._count_failed(batches)
        if batches:
            lost = "; ".join(
                f"{what}: {_places(given_up)}"
                for what, was_sent in (("never sent", False), ("sent, and maybe stored", True))
                if (given_up := [batch for batch in batches if batch.was_sent is was_sent])
            )
            self._log.warning("%s, and not all records were acknowledged: %s", self._why_closed, lost)

    def _close_client(self) -> None:
        if self._keeps_network and not self._force_close and not self._client.has_in_flight_requests():
            return
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
        kind = repr(error)
        if kind != self._last_uncaught:
            self._last_uncaught = kind
            self._log.exception("uncaught error in the sender thread; it goes on")

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
        wait_ms = FOREVER_MS if self._transactions is None else self._prepare_identity(self._transactions, now_ms)
        poll_ms = min(self._send_producer_data(now_ms), wait_ms)
        self._client.poll(poll_ms, self._clock.monotonic_ms())

    def initiate_close(self) -> None:
        """Stop after the queued batches have been sent. Any thread."""
        self._accumulator.close()
        self._running = False
        self.wakeup()

    def keep_network(self) -> None:
        """Leave the connections open at the end, unless a request is in flight. Any thread, before a close."""
        self._keeps_network = True

    def force_close(self) -> None:
        """Stop now; batches that are not acknowledged fail. Any thread."""
        self._force_close = True
        self.initiate_close()
        with self._pause:
            self._pause.notify_all()

    def end_with_program(self) -> None:
        """Close a producer that is still open when the program ends; report what was not sent. The exiting thread."""
        self._why_closed = "the program ended without flush() or close() of this producer"
        self.force_close()

    def wakeup(self) -> None:
        """End the sender's wait. Any thread."""
        self._client.wakeup()

    @property
    def is_running(self) -> bool:
        return self._running

    # --- producer id and transactions --------------------------------------------------------------------------------

    def _prepare_identity(self, transactions: TransactionManager, now_ms: int) -> int:
        """Resolve sequences, and send the next request for the id or the transaction; returns the limit of the poll,
        ms.
        """
        with_gap = transactions.sequences.resolve_sequences()
        if with_gap and transactions.is_transactional:
            transactions.sequences_have_gap(with_gap)
        if transactions.has_fatal_error:
            self._fail_everything(self._reason(transactions))
            return FOREVER_MS
        denied = transactions.take_denial()
        if denied is not None:
            self._fail_everything(denied)
        if transactions.is_given_up:
            self._count_failed(self._accumulator.abort_undrained(self._reason(transactions)))
        transactions.ensure_producer_id(is_needed=self._accumulator.has_incomplete, now_ms=now_ms)
        return self._requests.run_once(now_ms) if self._requests is not None else FOREVER_MS

    @staticmethod
    def _reason(transactions: TransactionManager) -> Exception:
        return transactions.last_error or TransactionAbortableError("the transaction was aborted")

    def _fail_everything(self, error: Exception) -> None:
        aborted = self._accumulator.abort_batches(lambda _: error)
        if self._transactions is not None:
            for batch in aborted:
                # Batches that stay in flight there would block their partition after an error that is not fatal.
                self._transactions.sequences.failed(batch)
        self._count_failed(aborted)
        self._in_flight.clear()

    def _count_failed(self, batches: Iterable[ProducerBatch]) -> None:
        now_ms = self._clock.monotonic_ms()
        for batch in batches:
            self._metrics.failed(batch.topic_partition.topic, batch.record_count, now_ms)

    # --- sending -----------------------------------------------------------------------------------------------------

    def _send_producer_data(self, now_ms: int) -> int:
        """Send every batch that is ready; returns how long the following poll may last, ms."""
        cluster = self._metadata.fetch()
        ready = self._drain.ready(cluster, now_ms)
        if ready.unknown_leader_topics:
            for topic in ready.unknown_leader_topics:
                # The topic may have expired from the metadata while its leader was unknown.
                self._metadata.add(topic, now_ms)
            self._metadata.request_update()
        not_ready_timeout_ms = FOREVER_MS
        nodes: list[Node] = []
        if self._loads is not None:
            self._loads.report(cluster, now_ms)
        # Sorted by id, so that the order is the same in every run, whatever the hashes of the host names are.
        for node in sorted(ready.ready_nodes, key=lambda node: node.id):
            can_take = self._client.ready(node, now_ms)
            if self._loads is not None:
                self._loads.note_node(node.id, now_ms, can_take=can_take)
            if can_take:
                nodes.append(node)
            else:
                not_ready_timeout_ms = min(not_ready_timeout_ms, self._client.poll_delay_ms(node, now_ms))
        drained = self._drain.drain(cluster, nodes, self._config.max_request_size_bytes, now_ms)
        self._in_flight.track(drained)
        for node_id, batches in drained.items():
            if batches:
                self._send_produce_request(node_id, batches, now_ms)
        if any(drained.values()):
            return 0
        until_expiry_ms = self._in_flight.next_expiry_ms - now_ms
        return max(min(ready.next_ready_check_delay_ms, not_ready_timeout_ms, until_expiry_ms), 0)

    def _send_produce_request(self, node_id: int, batches: Sequence[ProducerBatch], now_ms: int) -> None:
        by_partition = {batch.topic_partition: batch for batch in batches}
        request = self._client.new_request(
            str(node_id),
            ApiKey.PRODUCE,
            lambda version: self._produce_request(batches, version),
            now_ms,
            max_version=self._produce_max_version,
            expect_response=self._config.acks_code != 0,
            timeout_ms=self._config.request_timeout_ms,
            callback=lambda response: self._handle_produce_response(response, by_partition),
        )
        try:
            self._client.send(request, now_ms)
        except Exception as error:
            # This is a defect, not a network error: the other nodes' batches are still sent, and these would get no
            # answer.
            self._log.exception("a produce request to node %s could not be sent", node_id)
            for batch in batches:
                reason = KafkaError(f"{batch.record_count} record(s) for {batch.topic_partition} not sent: {error!r}")
                self._in_flight.fail(batch, reason)
                self._drain.unmute(batch.topic_partition)
            return
        for batch in batches:
            batch.unanswered_sends += 1

    @property
    def _produce_max_version(self) -> int:
        if self._transactions is None or not self._transactions.is_transactional or self._transactions.is_version_2:
            return _PRODUCE_MAX_VERSION
        return _PRODUCE_TRANSACTION_VERSION_2 - 1

    def _produce_request(self, batches: Sequence[ProducerBatch], version: int) -> ProduceRequest:
        transactional_id = None if self._transactions is None else self._transactions.transactional_id
        if (
            transactional_id is not None
            and self._produce_max_version >= _PRODUCE_TRANSACTION_VERSION_2
            and version < _PRODUCE_TRANSACTION_VERSION_2
        ):
            raise UnsupportedVersionError(
                f"the cluster runs transaction.version 2, but this broker knows PRODUCE up to {version} only"
            )
        if self._config.compression_type == "zstd" and version < _PRODUCE_ZSTD:
            raise UnsupportedVersionError(
                f"zstd needs PRODUCE {_PRODUCE_ZSTD} (Kafka 2.1), and this broker knows it up to {version}; choose "
                f"another {self._config.option('compression.type')}, or upgrade the brokers"
            )
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            topic, partition = batch.topic_partition
            data = topics.setdefault(topic, TopicProduceData(name=topic, partition_data=[]))
            data.partition_data.append(PartitionProduceData(index=partition, records=batch.wire))
        return ProduceRequest(
            transactional_id=transactional_id,
            acks=self._config.acks_code,
            timeout_ms=self._config.request_timeout_ms,
            topic_data=list(topics.values()),
        )

    # --- answers -----------------------------------------------------------------------------------------------------

    def _handle_produce_response(self, response: ClientResponse, sent: dict[TopicPartition, ProducerBatch]) -> None:
        for batch in sent.values():
            batch.unanswered_sends -= 1
        now_ms = self._clock.monotonic_ms()
        self._metrics.answered(response.request.destination, response.latency_ms, now_ms)
        if isinstance(response.body, ProduceResponse):
            self._metrics.throttled(response.body.throttle_time_ms, now_ms)
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
            self._in_flight.complete(batch, answer, now_ms)

    def _handle_answer(self, body: ProduceResponse, sent: dict[TopicPartition, ProducerBatch], now_ms: int) -> None:
        unanswered = dict(sent)
        self._learn_leaders(body)
        for topic in body.responses:
            for answer in topic.partition_responses:
                batch = unanswered.pop(TopicPartition(topic.name, answer.index), None)
                if batch is None:
                    self._log.warning("the broker answered for %s-%d, which was not asked", topic.name, answer.index)
                else:
                    self._in_flight.complete(batch, answer, now_ms)
        for batch in unanswered.values():
            missing = PartitionProduceResponse(
                error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_message="the broker's answer leaves this partition out"
            )
            self._in_flight.complete(batch, missing, now_ms)

    def _learn_leaders(self, body: ProduceResponse) -> None:
        """Use the current leaders that a broker names, from version 10 on, for partitions that it does not lead
        (KIP-951).
        """
        leaders = {
            TopicPartition(topic.name, answer.index): NewLeader(
                answer.current_leader.leader_id, answer.current_leader.leader_epoch
            )
            for topic in body.responses
            for answer in topic.partition_responses
            if answer.error_code in _LEADER_MOVED
            and answer.current_leader.leader_id >= 0
            and answer.current_leader.leader_epoch >= 0
        }
        if leaders:
            nodes = [Node(node.node_id, node.host, node.port, node.rack) for node in body.node_endpoints]
            self._metadata.update_leaders(leaders, nodes)


def _places(batches: Iterable[ProducerBatch]) -> str:
    """The number of records of each partition, as text."""
    counts: dict[TopicPartition, int] = {}
    for batch in batches:
        counts[batch.topic_partition] = counts.get(batch.topic_partition, 0) + batch.record_count
    named = [f"{partition} ({count})" for partition, count in sorted(counts.items())[:_PARTITIONS_NAMED]]
    if len(counts) > _PARTITIONS_NAMED:
        named.append(f"and {len(counts) - _PARTITIONS_NAMED} more partitions")
    return f"{sum(counts.values())} record(s) for {', '.join(named)}"


_LEADER_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
