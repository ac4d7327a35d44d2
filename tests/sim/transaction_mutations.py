"""Rules of transactions broken on purpose, in producer, coordinator and log: does the simulator notice?

Counted by ``python -m tests.sim.mutations``, like those of :mod:`tests.sim.mutations`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from kafka_sink.broker.coordinator.group_coordinator import GroupCoordinator
from kafka_sink.broker.coordinator.store import TransactionStore
from kafka_sink.broker.coordinator.transaction_coordinator import TransactionCoordinator
from kafka_sink.broker.coordinator.transaction_state import TransactionMetadata, TransactionState
from kafka_sink.broker.log.partition_log import PartitionLog
from kafka_sink.broker.log.producer_state import ProducerStateManager
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import ProducerIdAndEpoch
from kafka_sink.producer.transactions.idempotence import IdempotenceManager
from kafka_sink.producer.transactions.manager import TransactionManager
from kafka_sink.producer.transactions.state_machine import TransactionalResult
from tests.sim.coordination import SlowMarkers
from tests.sim.mutations import Mutation
from tests.sim.transaction_plan import TransactionPlan, make_transaction_plan
from tests.sim.transaction_simulation import TransactionSimulation


@dataclass(frozen=True, slots=True)
class TransactionMutation(Mutation):
    """A broken rule that matters with transactions."""

    focus: Callable[[Any], None] = lambda plan: None

    def run(self, seed: int) -> None:
        plan: TransactionPlan = make_transaction_plan(seed)
        self.focus(plan)
        TransactionSimulation(seed, plan=plan).run()


def _do_not_wait_for_batches(true: Any, self: TransactionManager, **options: Any) -> Any:
    return true(self, has_incomplete=False)


def _done_at_once(true: Any, self: TransactionManager) -> TransactionalResult:
    result: TransactionalResult = true(self)
    result.done()
    return result


def _sequences_go_on(true: Any, self: IdempotenceManager, partition: Any) -> None:
    state = self._state(partition)
    state.identity = self._identity


def _every_epoch(true: Any, *args: Any) -> None:
    """Let producers with older epochs write, too."""


def _opposite(true: Any, self: SlowMarkers, metadata: TransactionMetadata) -> Any:
    opposite = TransactionState.PREPARE_ABORT if metadata.state.is_commit else TransactionState.PREPARE_COMMIT
    return true(self, replace(metadata, state=opposite))


def _none_aborted(true: Any, self: PartitionLog, *args: Any) -> tuple[()]:
    return ()


def _to_the_end(true: Any, self: PartitionLog) -> int:
    return self._segments.end_offset


def _knows_nothing(true: Any, self: TransactionStore) -> Any:
    list(true(self))
    return iter(())


def _offsets_always_count(true: Any, self: GroupCoordinator, producer_id: int, groups: Any, committed: bool) -> None:
    true(self, producer_id, groups, True)


def _never_again(true: Any, self: TransactionCoordinator) -> None:
    """Never retry the markers of participants that did not get them."""


def _admit_older(
    true: Any, self: TransactionCoordinator, transactional_id: str, producer: ProducerIdAndEpoch, *args: Any
) -> None:
    known = self.find(transactional_id)
    if known is not None and known.producer_id == producer.producer_id:
        producer = producer._replace(epoch=known.producer_epoch)
    true(self, transactional_id, producer, *args)


def _fence_the_early(
    true: Any, self: TransactionCoordinator, transactional_id: str, producer: ProducerIdAndEpoch, *args: Any, **to: Any
) -> ProducerIdAndEpoch:
    known = self.find(transactional_id)
    if known is not None and known.state.is_deciding and known.producer_epoch == producer.epoch:
        raise ApiError("the last transaction has not completed yet", ErrorCode.PRODUCER_FENCED)
    after: ProducerIdAndEpoch = true(self, transactional_id, producer, *args, **to)
    return after


def _zombies_that_go_on(plan: TransactionPlan) -> None:
    plan.writers, plan.lives, plan.transactions, plan.actions = 1, 3, 6, 6
    plan.crash_share, plan.zombie_share, plan.zombie_sleeps_ms = 0.3, 1.0, 100
    plan.transaction_version = 2
    plan.base.broker["transaction_version"] = 2


def _admit_all(true: Any, *args: Any) -> None:
    """Accept every write as part of a transaction."""


TRANSACTION_MUTATIONS: tuple[Mutation, ...] = (
    TransactionMutation(
        "EndTxn leaves before the batches are acknowledged",
        TransactionManager,
        "next_request",
        _do_not_wait_for_batches,
    ),
    TransactionMutation("commit returns before it is answered", TransactionManager, "begin_commit", _done_at_once),
    TransactionMutation(
        "a new epoch goes on with the old sequences",
        IdempotenceManager,
        "_start_sequences_at_beginning",
        _sequences_go_on,
        2,
    ),
    TransactionMutation(
        "an older epoch may write",
        ProducerStateManager,
        "_check_epoch",
        _every_epoch,
        7,
        _zombies_that_go_on,
        also=(Mutation("", TransactionCoordinator, "admit_produce", _admit_older),),
    ),
    TransactionMutation(
        "nobody asks the coordinator who may write", TransactionCoordinator, "admit_produce", _admit_all
    ),
    TransactionMutation("markers say the opposite", SlowMarkers, "write", _opposite),
    TransactionMutation("readers are not told what was aborted", PartitionLog, "_aborted_in", _none_aborted, 2),
    TransactionMutation("readers see open transactions", PartitionLog, "_last_stable_offset", _to_the_end, 2),
    TransactionMutation("a coordinator that starts knows nothing", TransactionStore, "load", _knows_nothing, 16),
    TransactionMutation(
        "an abort that comes before the last markers is fenced",
        TransactionCoordinator,
        "end_transaction",
        _fence_the_early,
        83,
    ),
    TransactionMutation("markers are tried only once", TransactionCoordinator, "_retry_markers", _never_again),
    TransactionMutation(
        "offsets of aborted transactions count", GroupCoordinator, "complete_transaction", _offsets_always_count, 1
    ),
)
