"""Sends produce requests: drains the batches of nodes that are ready, and completes them with the answers.

It is one part of the sender thread's step, and never waits. :class:`InFlightBatches` decides how each batch ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafka_sink.client.connection.network_client import ClientResponse
from kafka_sink.client.factory import ClientNetwork
from kafka_sink.client.metadata.cluster import NewLeader
from kafka_sink.common.clock import FOREVER_MS
from kafka_sink.common.errors import ErrorCode, UnsupportedVersionError
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, Node, TopicPartition, TransactionVersion
from kafka_sink.producer.batching.batch_drain import BatchDrain
from kafka_sink.producer.batching.producer_batch import ProducerBatch
from kafka_sink.producer.metrics import ProducerContext
from kafka_sink.producer.plugins.built_in_partitioner import PartitionLoads
from kafka_sink.producer.sending.in_flight_batches import InFlightBatches
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

#: From this version on, Produce adds its partitions to the transaction implicitly (transaction version 2, KIP-890).
_PRODUCE_TRANSACTION_VERSION_2 = 12

#: From this version on, brokers accept zstd (KIP-110).
_PRODUCE_ZSTD = 7

_LEADER_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class ProduceRequestSender:
    """See the module.

    :param transactions: None for a producer that is not idempotent.
    :param loads: None if the partitioner does not use the queue lengths.
    """

    def __init__(
        self,
        context: ProducerContext,
        network: ClientNetwork,
        drain: BatchDrain,
        in_flight: InFlightBatches,
        transactions: TransactionManager | None,
        loads: PartitionLoads | None,
    ) -> None:
        self._config = context.config
        self._clock = context.clock
        self._metrics = context.metrics
        self._log = context.log
        self._client = network.client
        self._metadata = network.metadata
        self._drain = drain
        self._in_flight = in_flight
        self._transactions = transactions
        self._loads = loads

    def run_once(self, now_ms: int) -> int:
        """Send every batch that is ready; returns how long the following poll may last, ms."""
        cluster = self._metadata.fetch()
        ready = self._drain.ready(cluster, now_ms)
        if ready.unknown_leader_topics:
            for topic in ready.unknown_leader_topics:
                # The topic may have expired from the metadata while its leader was unknown.
                self._metadata.add(topic, now_ms)
            self._metadata.request_update()
        if self._loads is not None:
            self._loads.report(cluster, now_ms)
        nodes, not_ready_timeout_ms = self._connected(ready.ready_nodes, now_ms)
        drained = self._drain.drain(cluster, nodes, self._config.max_request_size_bytes, now_ms)
        self._in_flight.track(drained)
        for node_id, batches in drained.items():
            if batches:
                self._send_produce_request(node_id, batches, now_ms)
        if any(drained.values()) and self._drain.has_queued:
            return 0
        until_expiry_ms = self._in_flight.next_expiry_ms - now_ms
        return max(min(ready.next_ready_check_delay_ms, not_ready_timeout_ms, until_expiry_ms), 0)

    def _connected(self, ready_nodes: Iterable[Node], now_ms: int) -> tuple[list[Node], int]:
        """(the nodes that can take a request now, how long the others need at least, ms)."""
        nodes: list[Node] = []
        delay_ms = FOREVER_MS
        # Sorted by id, so that the order does not depend on the hashes of host names, which change with each run.
        for node in sorted(ready_nodes, key=lambda node: node.id):
            can_take = self._client.ready(node, now_ms)
            if self._loads is not None:
                self._loads.note_node(node.id, now_ms, can_take=can_take)
            if can_take:
                nodes.append(node)
            else:
                delay_ms = min(delay_ms, self._client.poll_delay_ms(node, now_ms))
        return nodes, delay_ms

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
            self._in_flight.not_sent(batches, error)
            return
        for batch in batches:
            batch.unanswered_sends += 1

    @property
    def _produce_max_version(self) -> int:
        transactions = self._transactions
        if transactions is None or not transactions.is_transactional:
            return _PRODUCE_MAX_VERSION
        if transactions.transaction_version is TransactionVersion.V2:
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
                f"the cluster runs transaction.version 2, but this broker supports PRODUCE only up to version {version}"
            )
        if self._config.compression_type == "zstd" and version < _PRODUCE_ZSTD:
            raise UnsupportedVersionError(
                f"zstd needs PRODUCE {_PRODUCE_ZSTD} (Kafka 2.1), and this broker supports PRODUCE only up to "
                f"version {version}; choose another {self._config.option('compression.type')}, or upgrade the "
                "brokers"
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
                    self._log.warning(
                        "the broker's response contains %s-%d, which the request did not", topic.name, answer.index
                    )
                else:
                    self._in_flight.complete(batch, answer, now_ms)
        for batch in unanswered.values():
            missing = PartitionProduceResponse(
                error_code=ErrorCode.UNKNOWN_SERVER_ERROR,
                error_message="the broker's response does not contain this partition",
            )
            self._in_flight.complete(batch, missing, now_ms)

    def _learn_leaders(self, body: ProduceResponse) -> None:
        """Use the current leaders that a broker names, from version 10 on, for partitions that it does not lead
        (KIP-951)."""
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
