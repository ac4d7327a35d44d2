"""The tasks' half: transactions that one process writes rows in, and that the driver ends.

In processes that run tasks, one task at a time. An id is this process's alone for as long as it lives, and is taken
again once nobody can ask about its last transaction any more: so brokers do not collect ids, and no attempt at a task
can disturb another's transaction.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from kafka_sink.common.errors import KafkaTimeoutError
from kafka_sink.common.threads import at_fork
from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.exactly_once.model import Flow, Transaction
from kafka_sink.exactly_once.names import PROCESS_BYTES, writer_id
from kafka_sink.exactly_once.sink import Plan
from kafka_sink.producer.kafka_producer import ClientNetwork, KafkaProducer

#: Ids whose answer was lost before it is given up.
_ATTEMPTS: Final = 5

#: How many ids are looked at to find one that is free.
_LOOKED_AT: Final = 20


class WriterTransactions:
    """The ids of this process, for all sinks that it writes for."""

    def __init__(self) -> None:
        self._forked()
        at_fork(self, WriterTransactions._forked)

    def _forked(self) -> None:
        self._process = os.urandom(PROCESS_BYTES)
        self._numbers = 0
        #: Sink → id → the version that it was used for last.
        self._used: dict[str, dict[str, int]] = {}
        #: Sink → ids of those whose last transaction is known to be over: it stays so, as nobody else begins another.
        self._over: dict[str, list[str]] = {}

    def begin(self, client: CoordinatorClient, plan: Plan, version: int) -> Transaction:
        """A transaction for rows of *version*; nothing is written in it yet.

        :raises ApiError: the coordinator refused.
        :raises KafkaTimeoutError: no answer, again and again.
        """
        used = self._used.setdefault(plan.sink, {})
        for _ in range(_ATTEMPTS):
            name = self._free(client, plan, used, self._over.setdefault(plan.sink, [])) or self._fresh(plan.sink)
            used.pop(name, None)
            transaction = client.run(client.init_own_producer_id(name, plan.timeout_ms))
            if transaction is not None:
                used[name] = version
                return transaction
        raise KafkaTimeoutError(f"no transactional id was given out in {_ATTEMPTS} attempts: each answer was lost")

    def _fresh(self, sink: str) -> str:
        self._numbers += 1
        return writer_id(sink, self._process, self._numbers)

    @staticmethod
    def _free(client: CoordinatorClient, plan: Plan, used: Mapping[str, int], over: list[str]) -> str | None:
        """An id that was used before the version whose transactions are in the progress: nobody will end that again.

        Many are looked at together, as each look may go to as many coordinators: what is found *over* is for the next
        tasks.
        """
        if plan.progress is None or not plan.progress.transactions:
            return None
        version = plan.progress.version
        if not any(used[name] < version for name in over):
            settled = [name for name, last in used.items() if last < version and name not in over][:_LOOKED_AT]
            if not settled:
                return None
            described = client.run(client.describe(settled))
            # What the brokers have forgotten (transactional.id.expiration.ms) is over as well.
            over += [name for name in settled if name not in described or described[name].is_over]
        found = next((name for name in over if used[name] < version), None)
        if found is not None:
            over.remove(found)
        return found


def open_producer(
    properties: Mapping[str, Any],
    transaction: Transaction,
    flow: Flow,
    *,
    option_prefix: str = "",
    network: ClientNetwork | None = None,
) -> KafkaProducer:
    """A producer that writes in *transaction*; closing it ends nothing. *network* as for :class:`KafkaProducer`."""
    producer = KafkaProducer(
        {**properties, "transactional.id": transaction.transactional_id},
        option_prefix=option_prefix,
        network=network,
    )
    try:
        producer.join_transaction(transaction.producer_id, transaction.epoch, transaction_version=flow.value)
    except BaseException:
        producer.close(0)
        raise
    return producer
