"""The write of one Spark task in a transaction: its own, which the driver ends, or the driver's.

Runs in a Spark Python worker. A failed attempt aborts its own transaction, which was not reported to the driver.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark import TaskContext

from kafka_sink.common.errors import KafkaError, SinkWriteError
from kafka_sink.exactly_once.model import Plan, Skipped
from kafka_sink.exactly_once.transactions import OpenTransaction, Transaction
from kafka_sink.exactly_once.writing import WriterTransactions, may_write
from kafka_sink.producer.task_producer import TaskProducer
from kafka_sink.spark.errors import told
from kafka_sink.spark.task.shared_client import shared_client
from kafka_sink.spark.task.task_outcome import TaskOutcome, TaskTransaction
from kafka_sink.spark.task.task_writer import task_config, write_task
from kafka_sink.spark.task.worker_process import abandoned_worker
from kafka_sink.spark.write_spec import WriteSpec

_log = logging.getLogger(__name__)

#: The transactions of this worker process.
WRITER_TRANSACTIONS: Final = WriterTransactions()


def write_in_transaction(
    batches: Iterator[pa.RecordBatch], spec: WriteSpec, plan: Plan, version: int, writer: str
) -> TaskOutcome:
    """Write *batches* in a transaction of this attempt, which begins at the first row and stays open.

    :raises SinkWriteError: if a row was not acknowledged; the transaction is aborted.
    """
    opened: list[Transaction] = []

    def open_own(kept: TaskProducer | None) -> TaskProducer:
        transaction = WRITER_TRANSACTIONS.begin(shared_client(spec.producer), plan, version)
        opened.append(transaction)
        return _joined(spec, transaction, plan, kept)

    try:
        outcome = write_task(batches, spec, open_own)
    except BaseException:
        # Also after an interrupt: otherwise the transaction stays open until the next batch.
        try:
            client = shared_client(spec.producer)
            client.run(client.end(opened, plan.transaction_version, commit=False))
        except KafkaError as error:
            _log.warning("the transaction of this attempt stays open until the next batch ends it: %s", error)
        raise
    written = OpenTransaction(opened[0], frozenset(outcome.ranges)) if outcome.ranges else None
    if written is not None:
        next_offsets = {partition: rows.last_offset + 1 for partition, rows in outcome.ranges.items()}
        WRITER_TRANSACTIONS.wrote(plan.sink, written.transaction, next_offsets)
    return replace(outcome, transaction=TaskTransaction(writer, version, plan.without_transactions(), written))


def write_in_drivers_transaction(
    batches: Iterator[pa.RecordBatch], spec: WriteSpec, plan: Plan, *, with_copies: bool = False
) -> TaskOutcome:
    """Write *batches* in the driver's transaction of the plan; no other task may have rows of the same partitions.

    :param with_copies: Spark may run a speculative copy of this task. A copy writes nothing and waits until Spark ends
        it; the driver ends all attempts if the first one fails.
    :raises SinkWriteError: if a row was not acknowledged; or if this is not the first attempt of the task: rows of an
        earlier attempt cannot be distinguished from duplicates, so the whole batch must be retried.
    """
    context = TaskContext.get()
    if context is not None and not may_write(context.attemptNumber()):
        if with_copies:
            _log.info("this attempt waits for the first one, which alone may write")
            with abandoned_worker.ended_during_task():
                # As long as the transaction can be open; usually Spark ends this process before.
                threading.Event().wait(plan.timeout_ms / 1000)
        raise told(
            SinkWriteError(
                "this is a second attempt at a task of an atomic write, which can only be retried as a whole; the log "
                "of Spark's driver says how the first one ended"
            )
        )

    return write_task(batches, spec, partial(_joined, spec, plan.driver, plan))


def _joined(spec: WriteSpec, transaction: Transaction, plan: Plan, kept: TaskProducer | None) -> TaskProducer:
    """A producer that writes in *transaction*: *kept*, or a new one. Closing it does not end the transaction."""
    name = transaction.transactional_id
    producer = kept or TaskProducer(replace(task_config(spec), transactional_id=name), spec.producer.plugin_options)
    try:
        producer.join_transaction(transaction.producer, plan.transaction_version, name)
    except BaseException:
        producer.abandon()
        raise
    return producer


def drain(batches: Iterator[pa.RecordBatch], writer: str, skipped: Skipped) -> TaskOutcome:
    """Consume all rows without writing them, because their version is *skipped*."""
    for _ in batches:
        pass
    return TaskOutcome(transaction=TaskTransaction(writer, skipped.version, skipped=skipped))
