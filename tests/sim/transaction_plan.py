"""The plan of a seed for a run with transactions: a plan as any other, and the transactional producers."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from kafka_sink.common.model import LAST_PRODUCER_EPOCH
from tests.sim.plan import Plan, make_plan


@dataclass(slots=True)
class TransactionPlan:
    base: Plan
    transaction_version: int
    #: Transactional ids that write to the same partitions at the same time.
    writers: int
    #: Successive producers of one id.
    lives: int
    #: Transactions of one life, and actions in one transaction.
    transactions: int
    actions: int
    abort_share: float
    offsets_share: float
    #: The probability that a producer crashes within a transaction, and the next one begins.
    crash_share: float
    #: The probability that the crashed producer continues all the same.
    zombie_share: float
    #: The longest pause of a zombie before it continues.
    zombie_sleeps_ms: int
    #: The epoch of each id at the beginning; −1 = it is new.
    first_epoch: int
    #: The application blocks in the producer until an outcome; otherwise it repeats the call with time-out 0.
    waits: bool

    @property
    def has_short_timeout(self) -> bool:
        return int(self.base.properties["transaction.timeout.ms"]) < 10_000


def make_transaction_plan(seed: int) -> TransactionPlan:
    rng = Random(f"transactions {seed}")
    base = make_plan(seed)
    version = rng.choice([1, 2])
    base.blocking = True
    base.ending = "quiet"
    base.first_epoch = 0
    base.burst = rng.choice([1, 3, 8])
    base.produce_quota = 0
    base.broker = {"transaction_version": version, "transaction_abort_timed_out_transaction_cleanup_interval_ms": 50}
    base.properties.update(
        {
            "enable.idempotence": True,
            "acks": "all",
            "max.block.ms": rng.choice([300, 3000]),
            "transaction.timeout.ms": rng.choice([60_000, 60_000, 60_000, 400]),
        }
    )
    if base.properties.get("retries") == 0:
        del base.properties["retries"]
    base.faults.coordinator_refuses = rng.choice([0.0, 0.0, 0.05, 0.3])
    base.faults.markers_wait = rng.choice([0.0, 0.0, 0.1, 0.6])
    return TransactionPlan(
        base=base,
        transaction_version=version,
        writers=rng.choice([1, 1, 2, 3]),
        lives=rng.choice([1, 2, 3]),
        transactions=rng.choice([1, 3, 6]),
        actions=rng.choice([1, 3, 6]),
        abort_share=rng.choice([0.0, 0.2, 0.5]),
        offsets_share=rng.choice([0.0, 0.3, 0.6]),
        crash_share=rng.choice([0.05, 0.2]),
        zombie_share=rng.choice([0.0, 0.5, 1.0]),
        zombie_sleeps_ms=rng.choice([0, 50, 1000]),
        first_epoch=rng.choice([-1, -1, -1, LAST_PRODUCER_EPOCH - 3]),
        waits=rng.random() < 0.5,
    )
