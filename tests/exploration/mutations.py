"""Rules of exactly-once writes broken on purpose, in the sink and in the brokers: does the exploration notice?"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest import mock

from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import TransactionVersion
from kafka_sink.exactly_once import accepting, planning, writing
from kafka_sink.exactly_once.accepting import Standing
from kafka_sink.exactly_once.driver_steps import DriverSteps, Ending, Look
from kafka_sink.exactly_once.lost_ends import DriverEnd, LostEnds
from kafka_sink.exactly_once.model import BatchNumbering, Memories, OutdatedProgressError, Transaction
from kafka_sink.exactly_once.names import driver_id
from kafka_sink.exactly_once.plan import Plan
from kafka_sink.exactly_once.progress import ProgressStore
from kafka_sink.exactly_once.transaction_description import TransactionDescription
from tests.exploration.drivers import TIMEOUT_MS, Client, Settings
from tests.exploration.explore import Explorer, Faults, ViolationError
from tests.exploration.model import Entry, Model

MOST_STATES: Final = 400_000
#: Only coordinators are replaced.
_REPLACED: Final = Faults(1, 0, coordinators=1, deaths=0, late=0, answers=0, time_outs=0, ends=0)
_DEATH: Final = Faults(1, 0, answers=0, time_outs=0, ends=0)
_NOTHING: Final = Faults(0, 0)
_DEATHS: Final = Faults(2, 0, late=0, answers=0, time_outs=0, ends=0)
#: Only what is within Settings.others.
_OTHERS: Final = Faults(1, 0, deaths=0, late=0, answers=0, time_outs=0, ends=0)
_ANSWER: Final = Faults(1, 0, deaths=0, late=0, time_outs=0, ends=0)
_END: Final = Faults(1, 0, deaths=0, late=0, answers=0, time_outs=0)
_PARALLEL_1 = Settings("parallel", TransactionVersion.V1, two_phase=False, batches=1)
_PARALLEL_2 = Settings("parallel", TransactionVersion.V2, two_phase=False, batches=1)
_ATOMIC_1 = Settings("atomic", TransactionVersion.V1, two_phase=False, batches=1)
_PARALLEL_1_TWICE = _PARALLEL_1._replace(batches=2)
_PARALLEL_2_TWICE = _PARALLEL_2._replace(batches=2)
_ATOMIC_2_TWICE = Settings("atomic", TransactionVersion.V2, two_phase=False, batches=2)
_ATOMIC_2 = Settings("atomic", TransactionVersion.V2, two_phase=False, batches=1)


@dataclass(frozen=True)
class Mutation:
    """The method or property *method* of *owner* becomes *broken*, which gets the true one and its arguments; seen
    with *settings* within *faults*."""

    name: str
    owner: Any
    method: str
    broken: Callable[..., Any]
    settings: Settings
    faults: Faults

    def caught(self) -> str | None:
        """What the exploration says; None if it notices nothing."""
        true = getattr(self.owner, self.method)

        def broken(*args: Any, **kwargs: Any) -> Any:
            return self.broken(true, *args, **kwargs)

        with ExitStack() as patched:
            patched.callback(logging.disable, logging.NOTSET)
            logging.disable(logging.WARNING)
            instead = property(broken) if isinstance(true, property) else broken
            patched.enter_context(mock.patch.object(self.owner, self.method, instead))
            try:
                Explorer(self.settings, self.faults, most_states=MOST_STATES).run()
            except ViolationError as error:
                return str(error).splitlines()[0]
        return None


# --- brokers ---------------------------------------------------------------------------------------------------------


def _older_may_write(true: Any, model: Model, transaction: Any, partition: int, value: str) -> Any:
    known = dict(model.ids)[transaction.transactional_id]
    return true(model, replace(transaction, epoch=known.producer_epoch), partition, value)


def _anybody_may_write(true: Any, model: Model, transaction: Any, partition: int, value: str) -> Any:
    entry = Entry(transaction.producer_id, transaction.epoch, value)
    return model.with_log(partition, (*model.logs[partition], entry)), None


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


async def _settled_at_once(true: Any, ends: Any, found: DriverEnd, *args: Any, **options: Any) -> Any:
    return found.described


async def _never_again(true: Any, *args: Any, **options: Any) -> None:
    pass


def _nothing_to_finish(true: Any, *args: Any) -> Ending:
    return Ending.COMMITTED


async def _own_epoch_again(true: Any, steps: DriverSteps, look: Look, *args: Any) -> Any:
    last = steps.remembered.driver
    return None if last is None else TransactionDescription(last, "CompleteCommit", frozenset(), TIMEOUT_MS)


async def _whatever_happened(true: Any, steps: DriverSteps, look: Look, *args: Any) -> Any:
    return None if look.driver is None or look.known is None else look.driver.described


async def _without_own(true: Any, steps: DriverSteps, look: Look, *args: Any) -> Any:
    described = await steps.client.describe([driver_id(steps.id)])
    return described.get(driver_id(steps.id)) if look.known is not None else None


def _abort_of_all(true: Any, ends: Any, known: TransactionDescription, *args: Any) -> bool:
    return False


def _commit_of_all(true: Any, ends: Any, known: TransactionDescription, *args: Any) -> bool:
    return True


def _believed(true: Any, *args: Any) -> bool:
    return True


def _proven_anyway(true: Any, *args: Any) -> None:
    with suppress(OutdatedProgressError):
        true(*args)


async def _nobody(true: Any, *args: Any, **options: Any) -> list[Any]:
    return []


def _commit_losers(true: Any, steps: DriverSteps, losers: Any, version: TransactionVersion) -> None:
    steps.client.run(steps.client.end(losers, version, commit=True))


def _never(true: Any, transaction: Transaction) -> bool:
    return False


def _forgets_nothing(true: Any, memories: Memories, cluster_id: str | None) -> None:
    """Addresses always lead to the same cluster."""


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


def _forgotten_is(ending: Ending) -> Callable[..., Ending]:
    def broken(true: Any, *args: Any) -> Ending:
        found: Ending = true(*args)
        return ending if found is Ending.FORGOTTEN else found

    return broken


def _any_batch(true: Any, *args: Any) -> None:
    """Nothing speaks against it."""


async def _as_seen_before(true: Any, steps: DriverSteps) -> Standing:
    found: Standing = await true(steps)
    seen = mock.Mock(progress=found.progress)
    seen.against.return_value = None
    return seen


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
    Mutation("markers are tried only once", LostEnds, "_write_end", _never_again, _ATOMIC_2, Faults(1, 0)),
    Mutation("a fence does not wait for ends", LostEnds, "settle_driver", _settled_at_once, _ATOMIC_1, Faults(2, 0)),
    Mutation("a lost commit is aborted", LostEnds, "_is_commit", _abort_of_all, _ATOMIC_2, _END),
    Mutation("a lost abort is committed", LostEnds, "_is_commit", _commit_of_all, _ATOMIC_2, Faults(2, 0)),
    Mutation("a decision is not finished", DriverSteps, "finish", _nothing_to_finish, _PARALLEL_2, Faults(1, 0)),
    Mutation("nothing begins an epoch", DriverSteps, "following", _own_epoch_again, _ATOMIC_2_TWICE, Faults(1, 0)),
    Mutation("a stranger needs no fence", DriverSteps, "following", _without_own, _ATOMIC_2_TWICE, Faults(1, 0)),
    Mutation("nothing can have happened", DriverSteps, "following", _whatever_happened, _ATOMIC_2_TWICE, _END),
    Mutation("progress is not read again", ProgressStore, "_is_as_read", _believed, _ATOMIC_2, _REPLACED),
    Mutation(
        "nothing is proven before aborts",
        DriverSteps,
        "prove",
        _proven_anyway,
        _PARALLEL_2,
        _REPLACED._replace(most=2, deaths=1),
    ),
    Mutation("any progress is the latest", ProgressStore, "_is_as_read", _believed, _PARALLEL_1, Faults(0, 1)),
    Mutation(
        "attempts that lost stay open",
        DriverSteps,
        "left_open",
        _nobody,
        _PARALLEL_1._replace(others="copies"),
        Faults(0, 0),
    ),
    Mutation(
        "attempts that lost are committed",
        DriverSteps,
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
        _PARALLEL_1._replace(others="apart"),
        Faults(0, 1),
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
        planning,
        "_ending",
        _forgotten_is(Ending.COMMITTED),
        _PARALLEL_2._replace(others="expired"),
        _DEATHS,
    ),
    Mutation(
        "forgotten ends were aborts",
        planning,
        "_ending",
        _forgotten_is(Ending.ABORTED),
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
