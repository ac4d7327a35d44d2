"""The task side: one process writes rows in these transactions, and the driver ends them.

Used in processes that run tasks, by one task at a time. An id belongs to this process for the process's lifetime. It is
reused once its last transaction is committed in every partition and no driver can ask about it any more, so ids do not
accumulate on the brokers, and an attempt of a task cannot disturb the transaction of another. After anything but such a
commit an id is given up: rows that brokers left open under it (see :mod:`sink_driver`) would share the end of its next
transaction.
"""

from __future__ import annotations

import os
import weakref
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from kafka_sink.client.blocking.leader_requests import LogTransaction
from kafka_sink.common.clock import SYSTEM_CLOCK, Clock
from kafka_sink.common.errors import ApiError, DisconnectError, ErrorCode, KafkaTimeoutError
from kafka_sink.common.model import TopicPartition, TransactionVersion
from kafka_sink.common.threads import at_fork
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.exactly_once.model import Plan, explained
from kafka_sink.exactly_once.transactions import (
    PROCESS_BYTES,
    RESERVED_EPOCHS,
    Transaction,
    TransactionDescription,
    writer_id,
)
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.task_producer import TaskProducer

#: The number of ids with a lost answer after which :meth:`WriterTransactions.begin` gives up.
_ATTEMPTS: Final = 5

#: The maximum number of ids checked to find a free one.
MAX_IDS_CHECKED: Final = 20

#: A process with few tasks in a batch has so many ids, and then asks about all but the last of them at once: with only
#: two ids it would ask in every batch. In version 1, where each transaction asks for its id anyway, it has fewer.
FEWEST_IDS: Final = 8

#: The maximum age of a description from which the next transaction may start: after a longer time the brokers may have
#: forgotten the id.
_RECENT_MS: Final = 60_000


@dataclass(slots=True)
class _Used:
    """The last use of an id: the version and the transaction. *ends* are the offsets behind its rows, in each
    partition; None until all rows are acknowledged."""

    version: int
    transaction: Transaction
    ends: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True)
class _Over:
    """An id whose last transaction is committed, in every partition, with its description of *at_ms*."""

    name: str
    described: TransactionDescription
    at_ms: int


@dataclass(slots=True)
class _Ids:
    """The ids of a sink. The last transactions of those that are *over* stay so, as only this process begins
    transactions with them."""

    used: dict[str, _Used] = field(default_factory=dict)
    over: list[_Over] = field(default_factory=list)


class WriterTransactions:
    """The transactional ids of this process, for all sinks that it writes to. What it knows of an id, it knows from one
    client: sinks of other clusters may have the same name."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._forked()
        at_fork(self, WriterTransactions._forked)

    def _forked(self) -> None:
        self._process = os.urandom(PROCESS_BYTES)
        self._numbers = 0
        #: By client and sink.
        self._ids: weakref.WeakKeyDictionary[CoordinatorClient, defaultdict[str, _Ids]] = weakref.WeakKeyDictionary()

    def begin(self, client: CoordinatorClient, plan: Plan, version: int) -> Transaction:
        """Begin a transaction for rows of *version*; it does not contain any rows yet.

        :raises ExactlyOnceError: if this principal may not have it; the text says what to grant.
        :raises ApiError: if the coordinator refused for another reason.
        :raises KafkaTimeoutError: if the answers of all attempts were lost.
        """
        ids = self._ids.setdefault(client, defaultdict(_Ids))[plan.sink]
        used = ids.used
        lost: DisconnectError | None = None
        for _ in range(_ATTEMPTS):
            over = self._take_over(client, plan, ids)
            name = self._fresh(plan.sink) if over is None else over.name
            last = used.pop(name, None)
            try:
                with explained(plan.sink):
                    transaction = self._next(over, last, plan) or _request(client, name, plan)
            except DisconnectError as error:
                lost = error
                continue
            used[name] = _Used(version, transaction)
            return transaction
        raise KafkaTimeoutError(
            f"no transactional id was acquired in {_ATTEMPTS} attempts: each response was lost, at last: {lost}"
        ) from lost

    def wrote(self, sink: str, transaction: Transaction, ends: Mapping[TopicPartition, int]) -> None:
        """Note that all rows of *transaction* are acknowledged; *ends* are the offsets behind them. Without this, the
        id is not used again."""
        for sinks in self._ids.values():
            if sink in sinks and transaction.transactional_id in sinks[sink].used:
                sinks[sink].used[transaction.transactional_id].ends = ends

    def _fresh(self, sink: str) -> str:
        self._numbers += 1
        return writer_id(sink, self._process, self._numbers)

    def _next(self, over: _Over | None, last: _Used | None, plan: Plan) -> Transaction | None:
        """The transaction that the end of *last* has begun: in version 2 the end gives the id its next epoch, and a
        producer continues with it as it does after its own commit (KIP-890). None if it must be requested instead."""
        if plan.transaction_version is not TransactionVersion.V2 or over is None or last is None:
            return None
        described, before = over.described, last.transaction
        if described.transaction.is_reserved:
            return None
        is_new = described.transaction.producer_id != before.producer_id or described.transaction.epoch > before.epoch
        is_recent = self._clock.monotonic_ms() - over.at_ms <= _RECENT_MS
        return described.transaction if is_new and is_recent and described.timeout_ms == plan.tasks_timeout_ms else None

    def _take_over(self, client: CoordinatorClient, plan: Plan, ids: _Ids) -> _Over | None:
        """An id that was last used for a version before the one whose transactions are in the progress: no driver will
        end that transaction again. It is committed, and nothing of it is open in any partition.

        Many ids are looked at together, as each request may involve many brokers. Other free ids that are found are
        kept for the next tasks.
        """
        if plan.progress is None or not plan.progress.transactions:
            return None
        version = plan.progress.version
        used, over = ids.used, ids.over
        if not any(used[each.name].version < version for each in over):
            if plan.transaction_version is TransactionVersion.V2 and len(used) < FEWEST_IDS:
                return None
            known = {each.name for each in over}
            settled = [name for name, each in used.items() if each.version < version and name not in known]
            if not settled:
                return None
            over += self._committed(client, plan, settled[:MAX_IDS_CHECKED], used)
        chosen = next((each for each in over if used[each.name].version < version), None)
        if chosen is not None:
            over.remove(chosen)
        return chosen

    def _committed(
        self, client: CoordinatorClient, plan: Plan, names: Sequence[str], used: dict[str, _Used]
    ) -> list[_Over]:
        """The ids of *names* whose last transaction is committed everywhere. Ids that ended otherwise are given up."""
        ends: dict[TopicPartition, int] = {}
        for name in names:
            for partition, end in (used[name].ends or {}).items():
                ends[partition] = max(end, ends.get(partition, 0))
        now_ms = self._clock.monotonic_ms()
        try:
            described, opened = client.together(client.describe(names), client.leaders.open_before(ends))
            open_ids = _producer_ids(opened)
            if open_ids & {used[name].transaction.producer_id for name in names}:
                # Now after a description: what an id at rest has open there was lost.
                described = client.run(client.describe(names))
                open_ids = _producer_ids(client.run(client.leaders.open_before(ends)))
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            # Something is open, and without READ on the topic nobody can tell whose.
            for name in names:
                del used[name]
            return []
        over: list[_Over] = []
        for name in names:
            known, last = described.get(name), used[name]
            if known is not None and not known.is_over:
                continue
            is_committed = known is not None and known.is_commit_of(last.transaction, plan.transaction_version)
            if known is None or not is_committed or last.ends is None or last.transaction.producer_id in open_ids:
                del used[name]
            else:
                over.append(_Over(name, known, now_ms))
        return over


def may_write(attempt_number: int) -> bool:
    """Whether the attempt of a task with this number (Spark's, from 0 on) may write in the driver's transaction: only
    the first one. Brokers could not tell the rows of another one from its duplicates, and nothing takes them back."""
    return attempt_number == 0


def _request(client: CoordinatorClient, name: str, plan: Plan) -> Transaction:
    """The next transaction of the id, or the first one of its next producer id if only reserved epochs are left."""
    for _ in range(RESERVED_EPOCHS + 1):
        transaction = client.run(
            client.init_producer_id(name, plan.timeout_ms, two_phase=plan.two_phase, repeat_lost=False)
        )
        if not transaction.is_reserved:
            break
    return transaction


def _producer_ids(opened: Mapping[TopicPartition, Sequence[LogTransaction]]) -> set[int]:
    return {each.producer_id for transactions in opened.values() for each in transactions}


def open_producer(
    config: ProducerConfig,
    transaction: Transaction,
    transaction_version: TransactionVersion,
    *,
    plugin_options: Mapping[str, str] = MappingProxyType({}),
    kept: TaskProducer | None = None,
) -> TaskProducer:
    """A producer that writes in *transaction*; closing it does not end the transaction. *kept* is a producer with the
    same configuration that has written in other transactions. See :class:`TaskProducer` for *plugin_options*.
    """
    producer = kept or TaskProducer(replace(config, transactional_id=transaction.transactional_id), plugin_options)
    try:
        producer.join_transaction(
            transaction.producer_id,
            transaction.epoch,
            transaction_version=transaction_version.value,
            transactional_id=transaction.transactional_id,
        )
    except BaseException:
        producer.close(0)
        raise
    return producer
