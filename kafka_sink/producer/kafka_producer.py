"""KafkaProducer: the public class of the producer.

Any number of the caller's threads may call its methods. Each instance owns one daemon sender thread. It stages records
and never performs I/O itself. A producer belongs to the process that created it: it can neither be pickled nor be used
after a fork in the child process. Arguments are checked before anything is staged, once per call and in constant time.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, NoReturn, ParamSpec, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_sink.client.factory import ClientNetwork
from kafka_sink.client.metadata.cluster import PartitionInfo
from kafka_sink.columns.record_columns import ColumnChunk
from kafka_sink.common import config as c
from kafka_sink.common.errors import (
    ApiError,
    ConfigError,
    KafkaError,
    KafkaTimeoutError,
    RowError,
    TransactionStateError,
)
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.metrics import Metric
from kafka_sink.common.model import ConsumerGroupMetadata, OffsetAndMetadata, RecordMetadata, TopicPartition
from kafka_sink.common.threads import at_fork
from kafka_sink.producer import config as producer_config
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.futures import ColumnsFuture, DeliveryCallback, DeliveryFuture, PartlyStagedError, limit_ms
from kafka_sink.producer.pipeline import Pipeline, make_network
from kafka_sink.producer.plugins.loading import GivenPlugins, make_plugins
from kafka_sink.producer.producer_record import NO_HEADERS, Headers, ProducerRecord
from kafka_sink.producer.staging.arrow_rows import parts_to_send
from kafka_sink.producer.staging.topic_metadata import ANY_PARTITION
from kafka_sink.producer.transactions.manager import TransactionManager
from kafka_sink.producer.transactions.state_machine import TransactionalResult

P = ParamSpec("P")


def says_what_options_are(init: Callable[P, None]) -> Callable[P, None]:
    """Wrap the constructor *init*: its TypeError for unknown keyword arguments explains how options are passed."""
    parameters = inspect.signature(init).parameters

    @functools.wraps(init)
    def checked(*args: P.args, **kwargs: P.kwargs) -> None:
        unknown = [name for name in kwargs if name not in parameters]
        if unknown:
            raise TypeError(
                "options are passed as one mapping with Kafka's names, as in KafkaProducer({'bootstrap.servers': "
                "'localhost:9092'}), and not as keyword arguments: "
                + ", ".join(f"{name}{c.hint(ProducerConfig, name, '')}" for name in unknown)
            )
        init(*args, **kwargs)

    return checked


def _record_of(first: object, others: tuple[Any, ...]) -> ProducerRecord:
    """The ProducerRecord *first*, which the fields *others* of ``send`` may not repeat.

    :raises ValueError: if it is no ProducerRecord, or fields are given in addition.
    """
    if not isinstance(first, ProducerRecord):
        raise ValueError(
            f"send takes a topic, or a ProducerRecord, got {type(first).__name__} ({first!r:.50}); "
            "write send(topic, value, key)"
        )
    if any(field is not None for field in others):
        raise ValueError("send takes a ProducerRecord or the fields of a record, not both: write record._replace(…)")
    return first


def check_rows(rows: object, partitions: Any, on_delivery: object) -> None:
    """:raises ValueError: if an argument of ``send_columns`` has the wrong type or length."""
    if not isinstance(rows, pa.RecordBatch | pa.Table | ColumnChunk):
        raise ValueError(
            f"the rows must be a pyarrow Table or RecordBatch, got {type(rows).__name__}; "
            "pyarrow.table({'value': …}) makes one, and pyarrow.Table.from_pandas"
        )
    if partitions is not None:
        _check_partitions(partitions, rows.num_rows)
    check_callback(on_delivery)


def _check_partitions(partitions: Any, rows: int) -> None:
    if not isinstance(partitions, np.ndarray) or partitions.dtype.kind not in "iu" or partitions.ndim != 1:
        seen = f"{partitions.dtype}{list(partitions.shape)}" if isinstance(partitions, np.ndarray) else ""
        raise ValueError(
            f"the partitions must be a numpy array of integers, one for each row, got {type(partitions).__name__} "
            f"{seen}; write numpy.array(…, dtype=numpy.int32)"
        )
    if len(partitions) != rows:
        raise ValueError(
            f"got {len(partitions)} partitions for {rows} rows; give one for each row, and ANY_PARTITION where the "
            "partitioner is to choose"
        )


def check_callback(on_delivery: object) -> None:
    """:raises ValueError: if *on_delivery* is not callable."""
    if on_delivery is not None and not callable(on_delivery):
        raise ValueError(f"on_delivery must be a function of a Delivery, got {type(on_delivery).__name__}")


__all__ = ["ANY_PARTITION", "KafkaProducer", "PartlyStagedError", "ProducerRecord"]

_producer_numbers = itertools.count(1)

#: The replacements of methods of confluent-kafka, kafka-python and aiokafka.
_OF_OTHER_CLIENTS: Final = {
    "produce": "send(topic, value, key) returns a future, and takes on_delivery too",
    "poll": "a thread of the producer calls the callbacks, so nothing has to be called for them",
    "list_topics": "kafka_sink.admin.AdminClient lists topics, and partitions_for(topic) has its partitions",
    "send_and_wait": "await send(topic, value), or send(topic, value).result()",
    "start": "the constructor starts the producer",
    "stop": "call close()",
}

_STUCK: Final = (
    "the sender thread is in a delivery callback or a plugin that does not return, and ends when it does; records that "
    "were not acknowledged end then, too"
)

#: After a forced close the sender thread ends within milliseconds, unless user code blocks it.
LAST_STEP_S = 3.0


class KafkaProducer:
    """A producer with the property names and the semantics of Kafka's Java client (apache/kafka ``KafkaProducer``).

    :param properties: see the table in docs/options.md, for example ``{"bootstrap.servers": "127.0.0.1:9092"}``.
        Serializers, interceptors and the partitioner may be named there or be passed as objects. A property that is
        None is not set.
    :param option_prefix: the prefix of the names of *properties* as the user wrote them, for messages.
    :param network: the network to use instead of a new one, with its clock and its thread. This producer owns it from
        then on.
    :raises ConfigError: if an option is unknown, a value is wrong, or options contradict each other.
    :raises KafkaError: if the producer could not be created; everything that was opened is closed again.
    """

    @says_what_options_are
    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        key_serializer: Any = None,
        value_serializer: Any = None,
        interceptors: Sequence[Any] | None = None,
        partitioner: Any = None,
        option_prefix: str = "",
        network: ClientNetwork | None = None,
    ) -> None:
        properties = c.without_none(properties)
        plugins = GivenPlugins(key_serializer, value_serializer, interceptors, partitioner)
        of_plugins = producer_config.names_for_plugins(properties, are_given=plugins.are_any)
        config = producer_config.read(properties, prefix=option_prefix, passed_over=of_plugins)
        self._open(config, properties, of_plugins, plugins, network)

    def _open(
        self,
        config: ProducerConfig,
        properties: Mapping[str, Any],
        of_plugins: Collection[str],
        plugins: GivenPlugins,
        network: ClientNetwork | None,
    ) -> None:
        """Start the producer with *config*. Plugins receive *properties*, of which *of_plugins* are their own names."""
        self._config = config
        self.client_id = config.client_id or f"producer-{config.transactional_id or next(_producer_numbers)}"
        self._log = ContextLogger(__name__, f"producer client.id={self.client_id}")
        if of_plugins:
            names = ", ".join(sorted(of_plugins))
            self._log.warning("options that are not Kafka's are passed to the plugins only: %s", names)
        self._was_forked = False
        # False once the producer is closed, and in processes that were forked from the one that created it.
        self._is_usable = True
        at_fork(self, KafkaProducer._forked)
        try:
            with ExitStack() as undo:
                self._start({**c.as_properties(self._config), **properties}, plugins, network, undo)
                undo.pop_all()
        except BaseException as error:
            # Also after an interrupt, when the thread may be running already: the caller has no producer to close.
            if hasattr(self, "_sender"):
                self._sender.force_close()
            if not isinstance(error, Exception):
                raise
            kind = ConfigError if isinstance(error, ConfigError) else KafkaError
            raise kind(f"Failed to construct kafka producer: {error}") from error

    def _start(
        self, configs: Mapping[str, Any], plugins: GivenPlugins, network: ClientNetwork | None, undo: ExitStack
    ) -> None:
        """:param undo: closes what was opened, if the producer cannot be created."""
        configs = c.with_values({**configs, "client.id": self.client_id}, self._config)
        self._plugins = make_plugins(self._config, configs, plugins, self._log, undo)
        self._network = make_network(self._config, self.client_id) if network is None else network
        undo.callback(self._network.client.close)
        self._clock = self._network.clock
        self._pipeline = Pipeline(
            self._config, self._network, self._plugins, self.client_id, self._log, self._interrupted
        )
        self._calls = self._pipeline.calls
        # Bound once, because a lookup would cost time for every record.
        self._records, self._transactions = self._pipeline.records, self._pipeline.transactions
        self._sender = self._pipeline.sender
        self._thread = self._network.start_thread(f"kafka-producer-network-thread | {self.client_id}", self._pipeline)

    def send(
        self,
        topic: str | ProducerRecord,
        value: Any = None,
        key: Any = None,
        *,
        headers: Headers = NO_HEADERS,
        partition: int | None = None,
        timestamp: int | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> DeliveryFuture[RecordMetadata]:
        """Stage a record and return its future; waits at most max.block.ms for metadata and memory together.

        Errors of the cluster (unknown topic, no memory in time, record too large) complete the future, and
        *on_delivery* is called with them on this thread, with partition −1 if the record had none yet. Misuse raises an
        exception.

        :param topic: the name of a topic; or a :class:`ProducerRecord`, which has all other fields of the record.
        :param value: bytes or None, or an object that the serializer accepts; so is *key*.
        :param headers: a mapping, or pairs of a name and bytes, text or None.
        :param partition: without it the partitioner chooses.
        :param timestamp: ms since the epoch; by default now.
        :param on_delivery: called with the :class:`Delivery` of the record, on the sender thread.
        :raises SerializationError: if the key, the value or a header cannot be serialized.
        :raises ValueError: if an argument has the wrong type or is out of range.
        :raises KafkaError: if the producer is closed, or a call of it was interrupted.
        :raises TransactionStateError: if there is a transactional.id and no transaction is open.
        :raises TransactionAbortableError: if the open transaction can only be aborted.
        """
        if not self._is_usable:
            self._check_usable()
        if type(topic) is not str:
            others = value, key, headers or None, partition, timestamp
            topic, value, key, partition, timestamp, headers = _record_of(topic, others)
        if on_delivery is not None:
            check_callback(on_delivery)
        try:
            if self._transactions is not None:
                self._transactions.check_can_send()
            return self._records.stage(topic, value, key, headers, partition, timestamp, on_delivery)
        except BaseException as error:
            self._calls.ended_by(error, "send")
            raise

    def send_columns(
        self,
        topic: str,
        rows: pa.RecordBatch | pa.Table | ColumnChunk,
        partitions: NDArray[np.int32] | None = None,
        *,
        on_delivery: DeliveryCallback | None = None,
    ) -> ColumnsFuture:
        """Stage all of *rows*: the bulk path, without a Python object per row.

        :param rows: Arrow rows with the column ``value`` and, optionally, ``key``, ``headers``, ``partition`` and
            ``timestamp`` (types: :data:`~kafka_sink.producer.staging.arrow_rows.COLUMNS`); or a chunk that was made of
            such rows.
        :param partitions: int32[rows]; :data:`ANY_PARTITION` (or no array) lets the partitioner choose. Only allowed if
            *rows* has no column ``partition``.
        :param on_delivery: called on the sender thread once per batch that received some of these rows.
        :returns: a future that is complete when the outcome of every row is known.
        :raises SerializationError: if a column is missing, has an unknown name, or has a type that cannot be written.
        :raises RowError: if rows cannot be written: no row is staged, a transaction stays as it is, and ``rows`` of the
            error are all rows with this problem, so that the others can be sent without them. It is a
            RowTooLargeError (max.request.size, buffer.memory), a RowPartitionError (the topic has no such partition),
            or a RowSerializationError (a negative partition, a timestamp before 1970, a header without a key).
        :raises ValueError: if *topic* is not a topic name, another argument has the wrong type, or the partitions are
            given twice or are not as many as the rows.
        :raises ApiError: if there is no metadata or no memory within max.block.ms; no row is staged.
        :raises PartlyStagedError: if memory ran out, a partitioner failed or the producer was closed after some of the
            rows were staged: those are sent, and the error names the rest. Within a transaction, which has to be
            aborted then, the cause itself is raised.
        :raises KafkaError: if the producer has interceptors, which only support single records, is closed, or was
            interrupted in a call.
        :raises TransactionStateError: if there is a transactional.id and no transaction is open.
        :raises TransactionAbortableError: if the open transaction can only be aborted.
        """
        self._check_usable()
        check_rows(rows, partitions, on_delivery)
        try:
            return self._stage_rows(topic, rows, partitions, on_delivery)
        except BaseException as error:
            self._calls.ended_by(error, "send_columns")
            raise

    def _stage_rows(
        self,
        topic: str,
        rows: pa.RecordBatch | pa.Table | ColumnChunk,
        partitions: NDArray[np.int32] | None,
        on_delivery: DeliveryCallback | None,
    ) -> ColumnsFuture:
        if self._transactions is not None:
            self._transactions.check_can_send()
        if self._plugins.interceptors is not None:
            raise KafkaError(
                "interceptors process single records, and send_columns creates none; use send, or remove "
                "interceptor.classes"
            )
        wall_ms = self._clock.wall_ms()
        parts = parts_to_send(rows, partitions, wall_ms)
        future = ColumnsFuture(
            topic, sum(part.chunk.num_rows for part in parts), self._clock, on_delivery, self._calls.check_may_wait
        )
        try:
            self._pipeline.columns.stage(topic, parts, wall_ms, future.delivered)
        except PartlyStagedError as error:
            if self._transactions is not None:
                self._transactions.staging_failed(error)
                raise (error.__cause__ or error) from None
            future.ends_with(error.rows_staged)
            error.staged = future
            raise
        except RowError:
            # Nothing was staged, and the caller has the error: the transaction may continue with other rows.
            raise
        except ApiError as error:
            if self._transactions is not None:
                self._transactions.staging_failed(error)
            raise
        return future

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """The partitions of *topic*, which are fetched if they are unknown.

        :raises ApiError: if they are not known within max.block.ms; the text gives the reason.
        :raises ValueError: if *topic* is not a topic name.
        """
        self._check_usable()
        return self._pipeline.topics.wait_for(topic).partitions_for_topic(topic)

    def init_transactions(self, *, timeout: float | None = None) -> None:
        """Initialize the transactional.id: call it once, before the first transaction.

        Older producers with this id are fenced; a transaction that one of them left open is aborted first.

        :param timeout: seconds, max.block.ms by default; after a time-out, call the method again.
        :raises KafkaTimeoutError: if the brokers did not answer in time.
        :raises ApiError: if the brokers refused the request; after granting a missing permission, the call may be
            repeated.
        :raises TransactionStateError: if the id is initialized already, or there is no transactional.id.
        """
        self._finish("init_transactions", self._transactional("init_transactions").initialize, timeout)

    def begin_transaction(self) -> None:
        """Begin a transaction: all records that are sent in it become visible together, or not at all.

        :raises TransactionStateError: if a transaction is open, or :meth:`init_transactions` was not called.
        :raises ProducerFencedError: if a newer producer has this transactional.id.
        """
        self._calls.during("begin_transaction", self._transactional("begin_transaction").begin)

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: ConsumerGroupMetadata | str,
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit *offsets* (of the next record to read) of a consumer group with the transaction, and wait for the
        result.

        With a complete :class:`ConsumerGroupMetadata`, the coordinator refuses a member that the group has removed.

        :raises TransactionAbortableError: if the offsets were refused; the transaction can only be aborted.
        :raises ValueError: if an offset is negative or too large, or *group* is of another type.
        :raises KafkaTimeoutError: if there is no result after *timeout* seconds (max.block.ms by default); abort
            the transaction.
        """
        transactions = self._transactional("send_offsets_to_transaction")
        if not offsets:
            return
        to_commit = {
            partition: offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
            for partition, offset in offsets.items()
        }
        for partition, position in to_commit.items():
            if not 0 <= position.offset < 1 << 63:
                raise ValueError(f"expected an offset from 0 to 2**63 - 1, got {position.offset} of {partition}")
        metadata = ConsumerGroupMetadata(group) if isinstance(group, str) else group
        if not isinstance(metadata, ConsumerGroupMetadata):
            raise ValueError(f"the group is its name or a ConsumerGroupMetadata, got a {type(group).__name__}")
        self._finish("send_offsets_to_transaction", partial(transactions.send_offsets, to_commit, metadata), timeout)

    def commit_transaction(self, *, timeout: float | None = None) -> None:
        """Send all staged records, wait until they are stored, and commit the transaction.

        :raises TransactionAbortableError: if a record was not stored; abort, and begin a new transaction.
        :raises ProducerFencedError: if a newer producer has this transactional.id. Nothing was committed, unless the
            brokers' answer to an earlier attempt was lost.
        :raises KafkaTimeoutError: if the outcome is unknown after *timeout* seconds (max.block.ms by default): call
            again.
        """
        self._finish("commit_transaction", self._transactional("commit_transaction").begin_commit, timeout)

    def abort_transaction(self, *, timeout: float | None = None) -> None:
        """Abort the transaction: records that are still staged fail, and records that are already stored stay
        invisible.

        :raises ProducerFencedError: if a newer producer has this transactional.id; it has aborted the transaction.
        :raises KafkaTimeoutError: if the outcome is unknown after *timeout* seconds (max.block.ms by default): call
            again.
        """
        self._finish("abort_transaction", self._transactional("abort_transaction").begin_abort, timeout)

    def _transactional(self, operation: str) -> TransactionManager:
        self._check_usable()
        if self._transactions is None:
            raise TransactionStateError(f"{operation} needs a producer with a transactional.id")
        return self._transactions

    def _finish(self, operation: str, start: Callable[[], TransactionalResult], timeout: float | None) -> None:
        timeout_ms = self._config.max_block_ms if timeout is None else limit_ms(timeout)
        self._calls.check_may_wait(operation)
        self._calls.during(operation, self._start_and_wait, start, timeout_ms)

    def _start_and_wait(self, start: Callable[[], TransactionalResult], timeout_ms: int) -> None:
        result = start()
        self._sender.wakeup()
        try:
            result.await_outcome(timeout_ms)
        except KafkaTimeoutError as error:
            failures = self._network.client.connection_failures()
            if result.is_done or not failures:
                raise
            unreachable = ", ".join(f"{failure.host}:{failure.port} ({failure.cause})" for failure in failures)
            raise KafkaTimeoutError(f"{error}; unreachable: {unreachable}") from None

    def flush(self, *, timeout: float | None = None) -> None:
        """Send all staged records, and wait until each of them is acknowledged or has failed.

        :raises KafkaTimeoutError: if this takes longer than *timeout* seconds. The outcomes of the records are in their
            futures.
        :raises KafkaError: if it is called from a delivery callback, or the producer is closed.
        """
        self._check_usable()
        started_ms = self._clock.monotonic_ms()
        try:
            self._pipeline.accumulator.flush(limit_ms(timeout), self._sender.wakeup)
        finally:
            self._pipeline.metrics.flushed(self._clock.monotonic_ms() - started_ms)

    def metrics(self) -> dict[str, float]:
        """The current values of ``producer-metrics`` by Kafka's names; NaN if nothing was measured yet.

        Rates, averages and maxima cover the last ``metrics.num.samples`` × ``metrics.sample.window.ms``.
        """
        return self._pipeline.metrics.snapshot(self._clock.monotonic_ms())

    def all_metrics(self) -> list[Metric]:
        """:meth:`metrics` and the metrics of each node and each topic, with their groups and tags."""
        return self._pipeline.metrics.metrics(self._clock.monotonic_ms())

    def prometheus(self) -> str:
        """:meth:`all_metrics` as OpenMetrics, the response to a scrape."""
        # Programs that show no metrics start without it.
        from kafka_sink.common.exposition import OPENMETRICS, rendered

        return rendered(self.all_metrics(), OPENMETRICS)[0]

    def close(self, *, timeout: float | None = None) -> None:
        """Send all staged records, then end the sender thread. After *timeout* seconds the rest fails, and the thread
        is ended. A callback that does not return does not delay the close beyond that.

        An interrupted producer also sends its staged records, and aborts its open transaction.
        A producer that is still open when its program ends is closed with a time-out of 0. In a delivery callback,
        close does not wait. A second close does nothing.

        :raises KafkaTimeoutError: after all this, if records were given up before they were acknowledged. The text
            counts them, and the future of each says whether it was sent. A ``with`` block that an exception ends
            does not wait, and logs this instead.
        :raises ValueError: if *timeout* is negative, or no number.
        """
        timeout_ms = limit_ms(timeout)
        if self._was_forked:
            return
        if threading.current_thread() is not self._thread:
            self._calls.check_may_wait("close")
        try:
            self._calls.during("close", self._close, timeout_ms)
        finally:
            self._plugins.close()

    def _close(self, timeout_ms: int) -> None:
        self._is_usable = False
        on_sender_thread = threading.current_thread() is self._thread
        if timeout_ms > 0 and not on_sender_thread:
            self._sender.initiate_close()
            self._thread.join(min(timeout_ms / 1000, threading.TIMEOUT_MAX))
        if self._thread.is_alive():
            self._sender.force_close()
            if not on_sender_thread:
                self._thread.join(LAST_STEP_S)
                if self._thread.is_alive():
                    self._log.warning(_STUCK)
                    raise KafkaTimeoutError(_STUCK)
        lost = self._sender.take_lost()
        if lost:
            raise KafkaTimeoutError(f"{lost}; the future of each record says whether it was sent")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # After an error, which is raised, do not wait; the log has the records that are given up.
        with nullcontext() if kind is None else suppress(KafkaTimeoutError):
            self.close(timeout=None if kind is None else 0)

    def __getattr__(self, name: str) -> NoReturn:
        advice = _OF_OTHER_CLIENTS.get(name)
        raise AttributeError(
            f"KafkaProducer has no attribute {name!r}" + (f": {advice} (docs/from-python-clients.md)" if advice else "")
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a KafkaProducer cannot be pickled: it owns sockets and a thread; create one in the process that sends"
        )

    def _forked(self) -> None:
        self._was_forked = True
        self._is_usable = False

    def _interrupted(self) -> None:
        """Refuse further records, and send those that are staged."""
        self._is_usable = False
        self._pipeline.accumulator.close()
        self._sender.wakeup()

    def _check_usable(self) -> None:
        if self._was_forked:
            raise KafkaError(
                "this producer was created before a fork, and its thread runs in the parent process; create a "
                "producer in this process"
            )
        if self._calls.interruption is not None:
            transaction = ", and aborts an open transaction" if self._transactions is not None else ""
            raise KafkaError(
                f"this producer can only be closed, because {self._calls.interruption}: acknowledged records are "
                "stored, and whether the interrupted call has taken effect is unknown; close() sends or fails the "
                f"other records, as their futures say{transaction}; create a new producer"
            )
        if not self._sender.is_running:
            raise KafkaError("cannot perform this operation after the producer has been closed")
