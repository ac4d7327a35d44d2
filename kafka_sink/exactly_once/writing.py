"""The task side: one process writes rows in these transactions, and the driver ends them.

Used in processes that run tasks, by one task at a time. An id belongs to this process for the process's lifetime. It is
reused once its last transaction is committed in every partition and no driver can query it any more, so ids do not
accumulate on the brokers, and an attempt of a task cannot disturb the transaction of another. After any other outcome
an id is not used again: rows that brokers left open under it (see :mod:`sink_driver`) would be ended by the marker of
its next transaction.
"""

from __future__ import annotations

import os
import weakref
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

#: The number of ids with a lost response after which :meth:`WriterTransactions.begin` gives up.
_ATTEMPTS: Final = 5

#: The maximum number of ids checked to find a free one.
MAX_IDS_CHECKED: Final = 20

#: The fewest ids of a process in version 2, which then checks all but the last of them together: with one task, in one
#: of seven batches, and not in each. Version 1 sends InitProducerId for each transaction anyway, and needs fewer ids.
FEWEST_IDS: Final = 8

#: The maximum age of a description from which the next transaction may start, ms: later the brokers may have forgotten
#: the id.
_RECENT_MS: Final = 60_000


@dataclass(slots=True)
class _Used:
    """The last use of an id: the version and the transaction. *ends* are the offsets after its rows, in each
    partition; None until all rows are acknowledged. *over* is the description that shows it as committed in every
    partition, and the clock's ms before that request. It stays valid, because only this process begins transactions
    with the id."""

    version: int
    transaction: Transaction
    ends: Mapping[TopicPartition, int] | None = None
    over: tuple[TransactionDescription, int] | None = None


class WriterTransactions:
    """The transactional ids of this process, for all sinks that it writes to. They are kept for each client, because
    sinks of other clusters may have the same name."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._forked()
        at_fork(self, WriterTransactions._forked)

    def _forked(self) -> None:
        self._process = os.urandom(PROCESS_BYTES)
        self._numbers = 0
        #: The ids by client, sink and name.
        self._used: weakref.WeakKeyDictionary[CoordinatorClient, defaultdict[str, dict[str, _Used]]]
        self._used = weakref.WeakKeyDictionary()

    def begin(self, client: CoordinatorClient, plan: Plan, version: int) -> Transaction:
        """Begin a transaction for rows of *version*; it does not contain any rows yet.

        :raises ExactlyOnceError: if this principal may not use the id; the text names the missing permission.
        :raises ApiError: if the coordinator refused for another reason.
        :raises KafkaTimeoutError: if the responses of all attempts were lost.
        """
        used = self._used.setdefault(client, defaultdict(dict))[plan.sink]
        lost: DisconnectError | None = None
        for _ in range(_ATTEMPTS):
            name = self._free(client, plan, used) or self._fresh(plan.sink)
            last = used.pop(name, None)
            try:
                with explained(plan.sink):
                    transaction = (last and self._next(last, plan)) or _request(client, name, plan)
            except DisconnectError as error:
                lost = error
                continue
            used[name] = _Used(version, transaction)
            return transaction
        raise KafkaTimeoutError(
            f"no transactional id was acquired in {_ATTEMPTS} attempts: each response was lost; the last error: {lost}"
        ) from lost

    def wrote(self, sink: str, transaction: Transaction, ends: Mapping[TopicPartition, int]) -> None:
        """Note that all rows of *transaction* are acknowledged; *ends* are the offsets after them. Without this, the
        id is not used again."""
        for sinks in self._used.values():
            if transaction.transactional_id in sinks.get(sink, ()):
                sinks[sink][transaction.transactional_id].ends = ends

    def _fresh(self, sink: str) -> str:
        self._numbers += 1
        return writer_id(sink, self._process, self._numbers)

    def _next(self, last: _Used, plan: Plan) -> Transaction | None:
        """The transaction that the end of *last* has begun: in version 2 the end gives the id its next epoch, and a
        producer continues with it as it does after its own commit (KIP-890). None if InitProducerId is needed."""
        if plan.transaction_version is not TransactionVersion.V2:
            return None
        assert last.over is not None
        description, at_ms = last.over
        following = description.transaction
        # A commit in version 1 has begun no epoch.
        is_new = following.epoch > last.transaction.epoch
        is_recent = self._clock.monotonic_ms() - at_ms <= _RECENT_MS
        is_usable = is_new and is_recent and not following.is_reserved
        return following if is_usable and description.timeout_ms == plan.tasks_timeout_ms else None

    def _free(self, client: CoordinatorClient, plan: Plan, used: dict[str, _Used]) -> str | None:
        """An id that was last used for a version before the one whose transactions are in the progress: no driver will
        end that transaction again. It is committed, and has no open rows in any partition.

        Many ids are checked together, as each request may involve many brokers.
        """
        if plan.progress is None or not plan.progress.transactions:
            return None
        version = plan.progress.version
        earlier = [name for name, use in used.items() if use.version < version]
        if not any(used[name].over for name in earlier):
            is_early = plan.transaction_version is TransactionVersion.V2 and len(used) < FEWEST_IDS
            if is_early or not earlier:
                return None
            self._find_committed(client, plan, earlier[:MAX_IDS_CHECKED], used)
        return next((name for name in earlier if name in used and used[name].over), None)

    def _find_committed(
        self, client: CoordinatorClient, plan: Plan, names: Sequence[str], used: dict[str, _Used]
    ) -> None:
        """Note which of *names* have a last transaction that is committed everywhere; drop others that have ended."""
        ends: dict[TopicPartition, int] = {}
        for name in names:
            for partition, end in (used[name].ends or {}).items():
                ends[partition] = max(end, ends.get(partition, end))
        now_ms = self._clock.monotonic_ms()
        try:
            described, opened = client.together(client.describe(names), client.leaders.open_before(ends))
            open_ids = _producer_ids(opened)
            if open_ids & {used[name].transaction.producer_id for name in names}:
                # Read after the description: rows still open under an ended transaction have lost their marker.
                described = client.run(client.describe(names))
                open_ids = _producer_ids(client.run(client.leaders.open_before(ends)))
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            # A transaction is open, and without READ on the topic its producer id is not known.
            for name in names:
                del used[name]
            return
        for name in names:
            description, last = described.get(name), used[name]
            if description is not None and not description.is_over:
                continue
            is_acknowledged = last.ends is not None and last.transaction.producer_id not in open_ids
            if is_acknowledged and description and description.is_commit_of(last.transaction, plan.transaction_version):
                last.over = description, now_ms
            else:
                del used[name]


def may_write(attempt_number: int) -> bool:
    """Whether the attempt of a task with this number (Spark's, from 0 on) may write in the driver's transaction: only
    the first one. Brokers could not distinguish the rows of another one from duplicates of the first one's."""
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
    return {txn.producer_id for transactions in opened.values() for txn in transactions}
