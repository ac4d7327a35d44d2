"""The task side: one process writes rows in these transactions, and the driver ends them.

Used in processes that run tasks, by one task at a time. An id belongs to this process for the process's lifetime. It is
reused once no driver can ask about its last transaction any more, so ids do not accumulate on the brokers, and an
attempt of a task cannot disturb the transaction of another.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kafka_sink.common.clock import SYSTEM_CLOCK, Clock
from kafka_sink.common.errors import KafkaTimeoutError
from kafka_sink.common.model import TransactionVersion
from kafka_sink.common.threads import at_fork
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.exactly_once.model import Transaction
from kafka_sink.exactly_once.names import PROCESS_BYTES, writer_id
from kafka_sink.exactly_once.plan import Plan
from kafka_sink.exactly_once.transaction_description import TransactionDescription
from kafka_sink.producer.kafka_producer import ClientNetwork, KafkaProducer

#: The number of ids with a lost answer after which :meth:`WriterTransactions.begin` gives up.
_ATTEMPTS: Final = 5

#: The maximum number of ids checked to find a free one.
MAX_IDS_CHECKED: Final = 20

#: The maximum age of a description from which the next transaction may start: after a longer time the brokers may have
#: forgotten the id.
_RECENT_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class _Over:
    """An id whose last transaction is over, with its description; None if the brokers have forgotten the id."""

    name: str
    described: TransactionDescription | None
    at_ms: int


class WriterTransactions:
    """The transactional ids of this process, for all sinks that it writes to."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._forked()
        at_fork(self, WriterTransactions._forked)

    def _forked(self) -> None:
        self._process = os.urandom(PROCESS_BYTES)
        self._numbers = 0
        #: Sink → id → the version and transaction that the id was last used for.
        self._used: dict[str, dict[str, tuple[int, Transaction]]] = {}
        #: Sink → ids whose last transaction is known to be over. They stay so, as only this process begins transactions
        #: with them.
        self._over: dict[str, list[_Over]] = {}

    def begin(self, client: CoordinatorClient, plan: Plan, version: int) -> Transaction:
        """Begin a transaction for rows of *version*; it does not contain any rows yet.

        :raises ApiError: if the coordinator refused.
        :raises KafkaTimeoutError: if the answers of all attempts were lost.
        """
        used = self._used.setdefault(plan.sink, {})
        for _ in range(_ATTEMPTS):
            over = self._take_over(client, plan, used)
            name = self._fresh(plan.sink) if over is None else over.name
            _, last = used.pop(name, (version, None))
            transaction = self._next(over, last, plan) or client.run(client.init_own_producer_id(name, plan.timeout_ms))
            if transaction is not None:
                used[name] = version, transaction
                return transaction
        raise KafkaTimeoutError(f"no transactional id was acquired in {_ATTEMPTS} attempts: each response was lost")

    def _fresh(self, sink: str) -> str:
        self._numbers += 1
        return writer_id(sink, self._process, self._numbers)

    def _next(self, over: _Over | None, last: Transaction | None, plan: Plan) -> Transaction | None:
        """The transaction that the end of *last* has begun: in version 2 the end gives the id its next epoch, and a
        producer continues with it as it does after its own commit (KIP-890). None if it must be requested instead."""
        if (
            plan.transaction_version is not TransactionVersion.V2
            or over is None
            or over.described is None
            or last is None
        ):
            return None
        described = over.described
        is_new = described.transaction.producer_id != last.producer_id or described.transaction.epoch > last.epoch
        is_recent = self._clock.monotonic_ms() - over.at_ms <= _RECENT_MS
        return described.transaction if is_new and is_recent and described.timeout_ms == plan.timeout_ms else None

    def _take_over(
        self, client: CoordinatorClient, plan: Plan, used: Mapping[str, tuple[int, Transaction]]
    ) -> _Over | None:
        """An id that was last used for a version before the one whose transactions are in the progress: no driver will
        end that transaction again.

        Many ids are described together, as each request may involve many coordinators. Other free ids that are found
        are kept for the next tasks.
        """
        if plan.progress is None or not plan.progress.transactions:
            return None
        version = plan.progress.version
        over = self._over.setdefault(plan.sink, [])
        if not any(used[each.name][0] < version for each in over):
            known = {each.name for each in over}
            settled = [name for name, (last, _) in used.items() if last < version and name not in known]
            if not settled:
                return None
            settled = settled[:MAX_IDS_CHECKED]
            described = client.run(client.describe(settled))
            now_ms = self._clock.monotonic_ms()
            # An id that the brokers have forgotten (transactional.id.expiration.ms) is over as well.
            found = [_Over(name, described.get(name), now_ms) for name in settled]
            over += [each for each in found if each.described is None or each.described.is_over]
        chosen = next((each for each in over if used[each.name][0] < version), None)
        if chosen is not None:
            over.remove(chosen)
        return chosen


def open_producer(
    properties: Mapping[str, Any],
    transaction: Transaction,
    transaction_version: TransactionVersion,
    *,
    option_prefix: str = "",
    network: ClientNetwork | None = None,
) -> KafkaProducer:
    """A producer that writes in *transaction*; closing it does not end the transaction. *network* as for
    :class:`KafkaProducer`.
    """
    producer = KafkaProducer(
        {**properties, "transactional.id": transaction.transactional_id},
        option_prefix=option_prefix,
        network=network,
    )
    try:
        producer.join_transaction(
            transaction.producer_id, transaction.epoch, transaction_version=transaction_version.value
        )
    except BaseException:
        producer.close(0)
        raise
    return producer
