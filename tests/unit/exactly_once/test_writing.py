"""Reuse of transactional ids by a process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from kafka_sink.client.blocking.leader_requests import LogTransaction
from kafka_sink.common.errors import ApiError, DisconnectError, ErrorCode, KafkaTimeoutError, error_for
from kafka_sink.common.model import LAST_PRODUCER_EPOCH, TopicPartition, TransactionVersion
from kafka_sink.exactly_once import writing
from kafka_sink.exactly_once.model import Plan, Progress
from kafka_sink.exactly_once.transactions import RESERVED_EPOCHS, Transaction, TransactionDescription
from kafka_sink.exactly_once.writing import WriterTransactions, may_write
from tests.fakes.clock import FakeClock
from tests.fakes.immediate import ImmediateClient, immediate

ENDS = {TopicPartition("t", 0): 7}
DECIDED = Progress(3, "query", TransactionVersion.V2, 0, (Transaction("s/t.000000000000.9", 1, 1),))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids are reused as soon as they may be."""
    monkeypatch.setattr(writing, "FEWEST_IDS", 0)


@dataclass(eq=False)
class Coordinators(ImmediateClient):
    """The last transaction of every id is in *state*; InitProducerId returns the first epoch of a new id."""

    state: str | None
    asked: list[list[str]] = field(default_factory=list)
    #: The next producer id and epoch of an id after its last transaction; by default producer id 1 with the next epoch.
    after: dict[str, Transaction] = field(default_factory=dict)
    epochs: Counter[str] = field(default_factory=Counter)
    initialized: list[str] = field(default_factory=list)
    #: The producer id of a transaction that is open in the logs.
    open_id: int | None = None
    #: The same, for the first requests.
    open_at: list[int | None] = field(default_factory=list)

    @property
    def leaders(self) -> Coordinators:
        return self

    @immediate
    def open_before(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, list[LogTransaction]]:
        open_id = self.open_at.pop(0) if self.open_at else self.open_id
        opened = [] if open_id is None else [LogTransaction(open_id, 0, 3, 0, 0)]
        return {place: opened for place in ends if opened}

    @immediate
    def describe(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        state = self.state
        transactional_ids = list(transactional_ids)
        self.asked.append(transactional_ids)
        self.epochs.update(transactional_ids)
        return (
            {}
            if state is None
            else {
                n: TransactionDescription(
                    self.after.get(n, Transaction(n, 1, self.epochs[n])), state, frozenset(), 20_000
                )
                for n in transactional_ids
            }
        )

    @immediate
    def init_producer_id(self, name: str, timeout_ms: int, *, two_phase: bool, repeat_lost: bool) -> Transaction:
        # A request that is repeated after a lost response could abort a transaction that has begun.
        assert not repeat_lost
        self.initialized.append(name)
        return Transaction(name, 1, 0)


@pytest.mark.behaviour("Exactly once: parallel", "Ids that one cluster knows are not used in another cluster")
def test_sinks_of_one_name_in_two_clusters_have_ids_of_their_own() -> None:
    ids, plan = (
        WriterTransactions(),
        Plan("s/t", Transaction("s/t.driver", 8, 0), TransactionVersion.V2, 20_000, 0, DECIDED, 1),
    )
    one, two = Coordinators("CompleteCommit"), Coordinators("CompleteCommit")
    first = [written(ids, each, plan, 1).transactional_id for each in (one, two)]
    assert len(set(first)) == 2
    # Each cluster reuses only its own ids, the last one first.
    assert [written(ids, each, plan, 3).transactional_id for each in (two, one)] == first[::-1]
    assert not any(set(names) - {first[0]} for names in one.asked)
    assert not any(set(names) - {first[1]} for names in two.asked)


@pytest.mark.behaviour("Exactly once: parallel", "A task whose ids are all lost names the broker and the reason")
def test_task_whose_ids_are_lost_tells_the_reason() -> None:
    @immediate
    def lose(name: str, timeout_ms: int, *, two_phase: bool, repeat_lost: bool) -> Transaction:
        coordinators.initialized.append(name)
        raise DisconnectError("broker 1 at kafka:29092: connection reset by the other side")

    coordinators = Coordinators(None)
    coordinators.init_producer_id = lose  # type: ignore[method-assign]
    plan = Plan("s/t", Transaction("s/t.driver", 8, 0), TransactionVersion.V2, 20_000, 0, None, 1)
    with pytest.raises(KafkaTimeoutError, match=r"in 5 attempts: .*: broker 1 at kafka:29092: connection reset"):
        WriterTransactions().begin(coordinators, plan, 1)  # type: ignore[arg-type]
    assert len(set(coordinators.initialized)) == 5


def written(ids: WriterTransactions, coordinators: Coordinators, plan: Plan, version: int) -> Transaction:
    """A transaction with rows, all of them acknowledged."""
    begun = ids.begin(coordinators, plan, version)  # type: ignore[arg-type]
    ids.wrote(plan.sink, begun, ENDS)
    return begun


@pytest.mark.behaviour(
    "Exactly once: parallel", "Ids are used again when nobody may end their last transaction any more"
)
@pytest.mark.parametrize(
    ("state", "version", "again"),
    [
        ("CompleteCommit", 1, True),
        ("CompleteAbort", 1, False),
        ("Empty", 1, False),
        (None, 1, False),
        ("Ongoing", 1, False),
        ("PrepareCommit", 1, False),
        ("PrepareAbort", 1, False),
        ("CompleteCommit", 2, False),
    ],
)
def test_id_is_reused_only_when_nobody_will_end_its_transaction(state: str | None, version: int, again: bool) -> None:
    ids, coordinators = WriterTransactions(), Coordinators(state)
    plan = Plan("s/t", Transaction("s/t.driver", 8, 0), TransactionVersion.V2, 20_000, 0, DECIDED, 1)
    used = written(ids, coordinators, plan, version)
    following = ids.begin(coordinators, plan, 3)  # type: ignore[arg-type]
    assert (following.transactional_id == used.transactional_id) is again


@pytest.mark.behaviour(
    "Exactly once: lost ends", "An id is given up after anything but a commit that is in every partition"
)
@pytest.mark.parametrize("given_up", ["rows not acknowledged", "end lost"])
def test_id_is_given_up_after_anything_but_a_commit_everywhere(given_up: str) -> None:
    ids, coordinators = WriterTransactions(), Coordinators("CompleteCommit")
    plan = Plan("s/t", Transaction("s/t.driver", 8, 0), TransactionVersion.V2, 20_000, 0, DECIDED, 1)
    if given_up == "end lost":
        coordinators.open_id = 1
        used = written(ids, coordinators, plan, 1)
        # Each description shows its commit.
        coordinators.after[used.transactional_id] = replace(used, epoch=used.epoch + 1)
    else:
        used = ids.begin(coordinators, plan, 1)  # type: ignore[arg-type]
    assert ids.begin(coordinators, plan, 3).transactional_id != used.transactional_id  # type: ignore[arg-type]
    # Permanently: the transaction may end later, and the process does not learn of it.
    coordinators.open_id = None
    assert ids.begin(coordinators, plan, 3).transactional_id != used.transactional_id  # type: ignore[arg-type]


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_id_is_given_up_if_nobody_may_read_what_is_open(code: ErrorCode) -> None:
    @immediate
    def refuse(ends: object) -> dict[TopicPartition, list[LogTransaction]]:
        raise error_for(code, "refused")

    ids, coordinators = WriterTransactions(), Coordinators("CompleteCommit")
    coordinators.open_before = refuse  # type: ignore[method-assign]
    plan = Plan("s/t", Transaction("s/t.driver", 8, 0), TransactionVersion.V2, 20_000, 0, DECIDED, 1)
    used = written(ids, coordinators, plan, 1)
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        assert ids.begin(coordinators, plan, 3).transactional_id != used.transactional_id  # type: ignore[arg-type]
    else:
        with pytest.raises(ApiError, match="refused"):
            ids.begin(coordinators, plan, 3)  # type: ignore[arg-type]


def test_what_is_open_before_the_description_is_asked_again() -> None:
    ids, coordinators = WriterTransactions(), Coordinators("CompleteCommit")
    plan = Plan("s/t", Transaction("s/t.driver", 8, 0), TransactionVersion.V2, 20_000, 0, DECIDED, 1)
    used = written(ids, coordinators, plan, 1)
    coordinators.after[used.transactional_id] = replace(used, epoch=used.epoch + 1)
    coordinators.open_at = [1, None]
    assert ids.begin(coordinators, plan, 3).transactional_id == used.transactional_id  # type: ignore[arg-type]
    assert len(coordinators.asked) == 2


def test_tasks_of_a_batch_share_one_description_of_their_ids() -> None:
    ids, coordinators = WriterTransactions(), Coordinators("CompleteCommit")
    first = Plan("s/t", Transaction("s/t.driver", 8, 0), TransactionVersion.V2, 20_000, 0, None, 1)
    names = [written(ids, coordinators, first, 0).transactional_id for _ in range(5)]
    for version in (2, 4):
        plan = replace(first, progress=replace(DECIDED, next_version=version))
        again = [written(ids, coordinators, plan, version).transactional_id for _ in range(7)]
        # An id that this batch uses is not free any more: the others are new, and all are free in the next batch.
        assert set(names) <= set(again) and len(set(again)) == 7
        assert coordinators.asked.pop(0) == names
        names = again
    assert coordinators.asked == []


@pytest.mark.behaviour("Exactly once: parallel", "Ids are few, and are asked about many at a time")
@pytest.mark.parametrize(
    ("transaction_version", "ids", "looks"), [(TransactionVersion.V1, 2, 38), (TransactionVersion.V2, 8, 5)]
)
def test_worker_with_few_tasks_asks_about_many_ids_at_a_time(
    transaction_version: TransactionVersion, ids: int, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    worker, coordinators = WriterTransactions(FakeClock()), Coordinators("CompleteCommit")
    first = Plan("s/t", Transaction("s/t.driver", 8, 0), transaction_version, 20_000, 0, None, 1)
    names = set()
    for version in range(40):
        progress = replace(DECIDED, next_version=version) if version else None
        begun = written(worker, coordinators, replace(first, progress=progress), version)
        name = begun.transactional_id
        names.add(name)
        ended = begun.epoch + (transaction_version is TransactionVersion.V2)
        coordinators.after[name] = replace(begun, epoch=ended)
    assert len(names) == ids
    assert len(coordinators.asked) == looks


def test_id_seen_as_finished_is_not_reused_with_older_progress() -> None:
    ids, coordinators = WriterTransactions(), Coordinators("CompleteCommit")
    plan = Plan("s/t", Transaction("s/t.driver", 8, 0), TransactionVersion.V2, 20_000, 0, DECIDED, 1)
    used = {written(ids, coordinators, plan, 1).transactional_id for _ in range(2)}
    assert ids.begin(coordinators, plan, 3).transactional_id in used  # type: ignore[arg-type]
    older = replace(plan, progress=replace(DECIDED, next_version=2))
    assert ids.begin(coordinators, older, 3).transactional_id not in used  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("transaction_version", "state", "producer_id", "epoch", "timeout_ms", "later_ms", "goes_on"),
    [
        (TransactionVersion.V2, "CompleteCommit", 1, 1, 20_000, 0, True),
        (TransactionVersion.V1, "CompleteCommit", 1, 0, 20_000, 0, False),
        (TransactionVersion.V2, "CompleteCommit", 1, 1, 30_000, 0, False),
        (TransactionVersion.V2, "CompleteCommit", 1, 1, 20_000, 60_000, True),
        (TransactionVersion.V2, "CompleteCommit", 1, 1, 20_000, 60_001, False),
    ],
)
def test_transaction_continues_from_the_epoch_the_last_end_began(
    transaction_version: TransactionVersion,
    state: str,
    producer_id: int,
    epoch: int,
    timeout_ms: int,
    later_ms: int,
    goes_on: bool,
) -> None:
    clock = FakeClock()
    ids, coordinators = WriterTransactions(clock), Coordinators(state)
    plan = Plan("s/t", Transaction("s/t.driver", 8, 0), transaction_version, timeout_ms, 0, DECIDED, 1)
    # Two ids are described together; the second description is older when it is used.
    first = replace(plan, progress=None)
    names = [written(ids, coordinators, first, 1).transactional_id for _ in range(2)]
    coordinators.after = {name: Transaction(name, producer_id, epoch) for name in names}
    ids.begin(coordinators, plan, 3)  # type: ignore[arg-type]
    coordinators.initialized.clear()
    clock.advance(later_ms)
    last = ids.begin(coordinators, plan, 3)  # type: ignore[arg-type]
    assert last.transactional_id in names and len(coordinators.asked) == 1
    if goes_on:
        assert last == coordinators.after[last.transactional_id]
    assert coordinators.initialized == ([] if goes_on else [last.transactional_id])


@pytest.mark.parametrize("later", TransactionVersion)
@pytest.mark.parametrize("earlier", TransactionVersion)
def test_epoch_continues_only_within_version_2(earlier: TransactionVersion, later: TransactionVersion) -> None:
    """The brokers' version may change between two tasks of a batch that share one description."""
    ids, coordinators = WriterTransactions(FakeClock()), Coordinators("CompleteCommit")
    plan = Plan("s/t", Transaction("s/t.driver", 8, 0), earlier, 20_000, 0, DECIDED, 1)
    for name in [written(ids, coordinators, replace(plan, progress=None), 1).transactional_id for _ in range(2)]:
        coordinators.after[name] = Transaction(name, 1, int(earlier is TransactionVersion.V2))
    ids.begin(coordinators, plan, 3)  # type: ignore[arg-type]
    coordinators.initialized.clear()
    ids.begin(coordinators, replace(plan, transaction_version=later), 3)  # type: ignore[arg-type]
    goes_on = earlier is later is TransactionVersion.V2
    assert len(coordinators.initialized) == (not goes_on)


def test_ids_of_a_process_are_numbered_from_one() -> None:
    ids, coordinators = WriterTransactions(), Coordinators(None)
    plan = Plan("s/t", Transaction("s/t.driver", 8, 0), TransactionVersion.V2, 20_000, 0, None, 1)
    begun = [ids.begin(coordinators, plan, 1) for _ in range(3)]  # type: ignore[arg-type]
    assert [txn.transactional_id.rpartition(".")[2] for txn in begun] == ["1", "2", "3"]


def test_one_description_is_of_at_most_twenty_ids() -> None:
    ids, coordinators = WriterTransactions(), Coordinators("CompleteCommit")
    plan = Plan("s/t", Transaction("s/t.driver", 8, 0), TransactionVersion.V2, 20_000, 0, None, 1)
    names = [written(ids, coordinators, plan, 1).transactional_id for _ in range(25)]
    ids.begin(coordinators, replace(plan, progress=DECIDED), 3)  # type: ignore[arg-type]
    assert coordinators.asked == [names[:20]]


def test_id_is_not_reused_after_a_decision_without_transactions() -> None:
    ids, coordinators = WriterTransactions(), Coordinators("CompleteCommit")
    decided = replace(DECIDED, transactions=())
    plan = Plan("s/t", Transaction("s/t.driver", 8, 0), TransactionVersion.V2, 20_000, 0, decided, 1)
    used = written(ids, coordinators, plan, 1)
    assert ids.begin(coordinators, plan, 3).transactional_id != used.transactional_id  # type: ignore[arg-type]
    assert coordinators.asked == []


def test_id_asks_for_each_reserved_epoch_and_no_more() -> None:
    @immediate
    def init(name: str, timeout_ms: int, *, two_phase: bool, repeat_lost: bool) -> Transaction:
        coordinators.initialized.append(name)
        return Transaction(name, 1, LAST_PRODUCER_EPOCH)

    ids, coordinators = WriterTransactions(), Coordinators(None)
    coordinators.init_producer_id = init  # type: ignore[method-assign]
    plan = Plan("s/t", Transaction("s/t.driver", 8, 0), TransactionVersion.V2, 20_000, 0, None, 1)
    ids.begin(coordinators, plan, 1)  # type: ignore[arg-type]
    assert len(coordinators.initialized) == RESERVED_EPOCHS + 1


def test_only_the_first_attempt_of_a_task_may_write() -> None:
    assert [may_write(number) for number in range(3)] == [True, False, False]


@pytest.mark.behaviour(
    "Exactly once: ids and versions", "The last epoch of an id is passed by drivers, and by ids that are used again"
)
@pytest.mark.parametrize("transaction_version", TransactionVersion)
@pytest.mark.parametrize("epochs_left", range(6))
def test_task_ids_do_not_use_the_reserved_epochs(transaction_version: TransactionVersion, epochs_left: int) -> None:
    @immediate
    def init(name: str, timeout_ms: int, *, two_phase: bool, repeat_lost: bool) -> Transaction:
        last = coordinators.after.get(name, Transaction(name, 1, LAST_PRODUCER_EPOCH - epochs_left))
        coordinators.after[name] = _after(last)
        return coordinators.after[name]

    ids, coordinators = WriterTransactions(FakeClock()), Coordinators("CompleteCommit")
    coordinators.init_producer_id = init  # type: ignore[method-assign]
    plan = Plan("s/t", Transaction("s/t.driver", 8, 0), transaction_version, 20_000, 0, DECIDED, 1)
    begun = []
    for version in range(1, 15, 2):
        progress = replace(DECIDED, next_version=version)
        begun.append(written(ids, coordinators, replace(plan, progress=progress), version))
        if transaction_version is TransactionVersion.V2:
            # In version 2, the end of a transaction gives its id the next epoch.
            coordinators.after[begun[-1].transactional_id] = _after(begun[-1])
    assert len({each.transactional_id for each in begun}) == 1
    assert len({each.producer for each in begun}) == len(begun)
    assert not any(each.is_reserved for each in begun)
    assert begun[-1].producer_id == 2


def _after(last: Transaction) -> Transaction:
    """The next producer id and epoch after *last*: the next epoch, or the first epoch of another producer id."""
    if last.epoch == LAST_PRODUCER_EPOCH:
        return replace(last, producer_id=last.producer_id + 1, epoch=0)
    return replace(last, epoch=last.epoch + 1)
