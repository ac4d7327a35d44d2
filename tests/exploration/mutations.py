"""Rules of exactly-once writes that are broken intentionally, in the sink and in the brokers, for the exploration."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest import mock

from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import TransactionVersion
from kafka_sink.exactly_once import accepting, writing
from kafka_sink.exactly_once.accepting import Standing
from kafka_sink.exactly_once.model import BatchNumbering, Memories, Plan
from kafka_sink.exactly_once.planning import Planner
from kafka_sink.exactly_once.progress import ProgressStore
from kafka_sink.exactly_once.sink_driver import SinkDriver
from kafka_sink.exactly_once.situation import Batch, End, Situation
from kafka_sink.exactly_once.transactions import Transaction
from tests.exploration.drivers import Client, Settings
from tests.exploration.explore import Explorer, Faults, ViolationError
from tests.exploration.model import Entry, Model

MOST_STATES: Final = 400_000
#: Only coordinators and leaders are replaced.
_REPLACED: Final = Faults(1, 0, group=1, transactions=1, leaders=1, deaths=0, late=0, answers=0, time_outs=0, ends=0)
_DEATH: Final = Faults(1, 0, answers=0, time_outs=0, ends=0)
_NOTHING: Final = Faults(0, 0)
_DEATHS: Final = Faults(2, 0, late=0, answers=0, time_outs=0, ends=0)
#: Only the faults of Settings.others.
_OTHERS: Final = Faults(1, 0, deaths=0, late=0, answers=0, time_outs=0, ends=0)
_ANSWER: Final = Faults(1, 0, deaths=0, late=0, time_outs=0, ends=0)
_END: Final = Faults(1, 0, deaths=0, late=0, answers=0, time_outs=0)
#: The smallest world in which a batch was once written twice: a lost end, and a replaced coordinator.
_SMALLEST: Final = Faults(2, 0, group=1, transactions=1, leaders=1, deaths=0, late=0, answers=0, time_outs=0, ends=1)
_PARALLEL_1 = Settings("parallel", TransactionVersion.V1, two_phase=False, batches=1)
_PARALLEL_2 = Settings("parallel", TransactionVersion.V2, two_phase=False, batches=1)
_ATOMIC_1 = Settings("atomic", TransactionVersion.V1, two_phase=False, batches=1)
_PARALLEL_1_TWICE = _PARALLEL_1._replace(batches=2)
_PARALLEL_2_TWICE = _PARALLEL_2._replace(batches=2)
_ATOMIC_2_TWICE = Settings("atomic", TransactionVersion.V2, two_phase=False, batches=2)
_ATOMIC_2 = Settings("atomic", TransactionVersion.V2, two_phase=False, batches=1)


@dataclass(frozen=True)
class Mutation:
    """A broken rule: *broken*, which gets the true function and its arguments, replaces the method or property *method*
    of *owner*; *settings* and *faults* are sufficient to detect it."""

    name: str
    owner: Any
    method: str
    broken: Callable[..., Any]
    settings: Settings
    faults: Faults
    drivers: int = 2

    def caught(self) -> str | None:
        """Return the violation that the exploration finds; None if it finds none."""
        named = getattr(self.owner, self.method)
        true = named.fget if isinstance(named, property) else named

        def broken(*args: Any, **kwargs: Any) -> Any:
            return self.broken(true, *args, **kwargs)

        with ExitStack() as patched:
            patched.callback(logging.disable, logging.NOTSET)
            logging.disable(logging.WARNING)
            instead = property(broken) if isinstance(named, property) else broken
            patched.enter_context(mock.patch.object(self.owner, self.method, instead))
            try:
                Explorer(self.settings, self.faults, most_states=MOST_STATES, drivers=self.drivers).run()
            except ViolationError as error:
                return str(error).splitlines()[0]
        return None


# --- brokers ---------------------------------------------------------------------------------------------------------


def _older_may_write(true: Any, model: Model, transaction: Any, partition: int, value: str) -> Any:
    known = dict(model.ids)[transaction.transactional_id]
    return true(model, replace(transaction, epoch=known.producer_epoch), partition, value)


def _anybody_may_write(true: Any, model: Model, transaction: Any, partition: int, value: str) -> Any:
    entry = Entry(transaction.producer_id, transaction.epoch, value)
    return model.with_log(partition, (*model.logs[partition], entry)), len(model.logs[partition])


def _opposite(true: Any, model: Model, name: str, **options: Any) -> Model:
    before = model.logs
    after: Model = true(model, name, **options)
    for partition, log in enumerate(after.logs):
        new = tuple(each._replace(commit=not each.commit) for each in log[len(before[partition]) :])
        after = after.with_log(partition, log[: len(before[partition])] + new)
    return after


def _all_rows(true: Any, model: Model) -> list[str]:
    return [entry.value for log in model.logs for entry in log if entry.value is not None]


def _nothing_known(true: Any, model: Model, names: Any) -> Any:
    return model, ()


def _offsets_always_count(true: Any, model: Model, decided: Any) -> Model:
    ended = {each for pid, each in model.pending if pid == decided.producer_id}
    after: Model = true(model, decided)
    return replace(after, committed=frozenset(ended) or after.committed)


def _fence_the_early(true: Any, model: Model, transaction: Any, commit: bool) -> Any:
    if dict(model.ids)[transaction.transactional_id].state.is_deciding:
        return model, ErrorCode.PRODUCER_FENCED
    return true(model, transaction, commit)


# --- the sink --------------------------------------------------------------------------------------------------------


async def _done_at_once(true: Any, client: Any, transactions: Any, version: Any, *, commit: bool) -> Any:
    return dict.fromkeys(transactions, ErrorCode.NONE)


def _whenever(*ends: End) -> Callable[..., End]:
    """Take the driver's last transaction for ended in all states of *ends*."""

    def broken(true: Any, s: Situation) -> End:
        found: End = true(s)
        return End.ENDED if found in ends else found

    return broken


def _as_if(seen: End, taken_for: End) -> Callable[..., End]:
    def broken(true: Any, s: Situation) -> End:
        found: End = true(s)
        return taken_for if found is seen else found

    return broken


async def _never_again(true: Any, *args: Any, **options: Any) -> None:
    pass


def _batch_is(seen: Batch, taken_for: Batch) -> Callable[..., Batch]:
    def broken(true: Any, s: Situation) -> Batch:
        found: Batch = true(s)
        return taken_for if found is seen else found

    return broken


def _believed(true: Any, *args: Any) -> bool:
    return True


def _proven_anyway(true: Any, planner: Planner, s: Situation) -> Situation:
    return replace(s, is_proven=True)


async def _nobody(true: Any, *args: Any, **options: Any) -> list[Any]:
    return []


def _commit_losers(true: Any, steps: SinkDriver, losers: Any, version: TransactionVersion) -> None:
    steps.client.run(steps.client.end(losers, version, commit=True))


def _never(true: Any, transaction: Transaction) -> bool:
    return False


def _forgets_nothing(true: Any, memories: Memories, cluster_id: str | None) -> None:
    """Forget nothing, as if addresses always led to the same cluster."""


class _OfOne(dict[Any, Any]):
    def setdefault(self, client: Any, default: Any = None) -> Any:
        return super().setdefault("every client", default)


def _one_cluster(true: Any) -> _OfOne:
    return _OfOne()


def _every_attempt(true: Any, attempt_number: int) -> bool:
    return True


def _without_progress(true: Any, plan: Plan, version: int, writer: str, numbers: BatchNumbering) -> Any:
    is_lost = plan.progress is None and numbers is BatchNumbering.OF_A_QUERY
    return true(plan, version, writer, BatchNumbering.OF_A_QUERY_UNDER_WAY if is_lost else numbers)


def _any_batch(true: Any, *args: Any) -> None:
    """Accept any batch."""


class _Unopposed(Standing):
    def against(self, version: int, writer: str | None) -> str | None:
        return None


async def _as_seen_before(true: Any, steps: SinkDriver) -> Standing:
    return _Unopposed(**vars(await true(steps)))


MUTATIONS: Final = (
    Mutation("an older epoch may write", Model, "_write", _older_may_write, _ATOMIC_2, _DEATH),
    Mutation("nobody asks who may write", Model, "_write", _anybody_may_write, _PARALLEL_1, Faults(2, 1)),
    Mutation("markers say the opposite", Model, "complete", _opposite, _PARALLEL_2, Faults(0, 0)),
    Mutation("readers are not told what was aborted", Model, "visible", _all_rows, _ATOMIC_2, Faults(1, 0)),
    Mutation("a coordinator that starts knows nothing", Model, "_describe", _nothing_known, _PARALLEL_1, Faults(1, 1)),
    Mutation("an end before the last markers is fenced", Model, "_end", _fence_the_early, _PARALLEL_2, _ANSWER),
    Mutation(
        "offsets of aborted transactions count",
        Model,
        "with_ended_offsets",
        _offsets_always_count,
        _ATOMIC_2,
        Faults(1, 0),
    ),
    Mutation("commits are not waited for", Client, "end", _done_at_once, _PARALLEL_2, Faults(0, 0)),
    Mutation("lost ends are not written again", SinkDriver, "write_end_again", _never_again, _ATOMIC_2, _END),
    Mutation(
        "a fence does not wait for ends",
        Situation,
        "end",
        _whenever(End.OPEN, End.ENDING, End.APPLYING, End.LOST_ABORT, End.LOST_COMMIT),
        _ATOMIC_1,
        Faults(2, 0),
    ),
    Mutation("a lost commit is aborted", Situation, "end", _as_if(End.LOST_COMMIT, End.LOST_ABORT), _ATOMIC_2, _END),
    Mutation(
        "a lost abort is committed", Situation, "end", _as_if(End.LOST_ABORT, End.LOST_COMMIT), _ATOMIC_2, Faults(2, 0)
    ),
    Mutation(
        "a decision is not finished",
        Situation,
        "batch",
        _batch_is(Batch.UNKNOWN, Batch.COMMITTED),
        _PARALLEL_2,
        Faults(1, 0),
    ),
    Mutation(
        "what was begun and lost is not looked at again",
        Situation,
        "end",
        _as_if(End.REPAIR, End.ENDED),
        _ATOMIC_2_TWICE,
        _END._replace(most=2, deaths=1),
    ),
    Mutation(
        "the progress is that of the last commit, whoever says so",
        Situation,
        "is_in_progress",
        _believed,
        _PARALLEL_2._replace(width=1),
        _SMALLEST,
        drivers=1,
    ),
    Mutation(
        "progress is not read again",
        ProgressStore,
        "_is_as_read",
        _believed,
        _ATOMIC_1._replace(batches=2, width=1),
        _REPLACED._replace(most=2, leaders=0),
    ),
    Mutation(
        "nothing is proven before aborts",
        Planner,
        "_prove",
        _proven_anyway,
        _PARALLEL_1,
        _REPLACED._replace(most=3, leaders=0, deaths=1),
    ),
    Mutation(
        "attempts that lost stay open",
        SinkDriver,
        "left_open",
        _nobody,
        _PARALLEL_1._replace(others="copies"),
        Faults(0, 0),
    ),
    Mutation(
        "attempts that lost are committed",
        SinkDriver,
        "abort",
        _commit_losers,
        _PARALLEL_2._replace(others="copies"),
        Faults(0, 0),
    ),
    Mutation(
        "the last epochs of a producer id begin transactions",
        Transaction,
        "is_reserved",
        _never,
        _ATOMIC_2_TWICE._replace(others="last epochs"),
        _END,
    ),
    Mutation(
        "a committer believes its planner",
        ProgressStore,
        "_is_as_read",
        _believed,
        _PARALLEL_1_TWICE._replace(others="apart", width=1),
        _REPLACED._replace(most=2, leaders=0),
    ),
    Mutation(
        "a client remembers what another cluster said",
        Memories,
        "belong_to",
        _forgets_nothing,
        _ATOMIC_2._replace(others="moved"),
        Faults(2, 1, answers=0, time_outs=0, ends=0),
    ),
    Mutation(
        "a worker's ids are those of every cluster",
        weakref,
        "WeakKeyDictionary",
        _one_cluster,
        _PARALLEL_2_TWICE._replace(batches=3, others="two clusters"),
        _NOTHING,
    ),
    Mutation("a copy writes, too", writing, "may_write", _every_attempt, _ATOMIC_1._replace(others="copies"), _NOTHING),
    Mutation(
        "a query goes on without its progress",
        Plan,
        "must_write",
        _without_progress,
        _PARALLEL_1._replace(others="expired"),
        _OTHERS,
    ),
    Mutation(
        "forgotten ends were commits",
        Situation,
        "batch",
        _batch_is(Batch.FORGOTTEN, Batch.COMMITTED),
        _PARALLEL_2._replace(others="expired"),
        _DEATHS,
    ),
    Mutation(
        "forgotten ends were aborts",
        Situation,
        "batch",
        _batch_is(Batch.FORGOTTEN, Batch.ABORTED),
        _PARALLEL_1._replace(others="expired"),
        _DEATHS,
    ),
    Mutation(
        "an operator may accept any batch",
        Standing,
        "against",
        _any_batch,
        _PARALLEL_2_TWICE._replace(others="accepted"),
        _NOTHING,
    ),
    Mutation(
        "an operator's command does not look again",
        accepting,
        "standing",
        _as_seen_before,
        _PARALLEL_2_TWICE._replace(others="accepted"),
        Faults(0, 1),
    ),
)
