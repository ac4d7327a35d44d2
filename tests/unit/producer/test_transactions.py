"""The transactional producer: the order of its states, its requests to the brokers, and the effects of errors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from kafka_sink.client.requests.transactional_requests import EndTxn, InitProducerId
from kafka_sink.common.errors import (
    ApiError,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionStateError,
    UnsupportedVersionError,
)
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.model import ConsumerGroupMetadata, OffsetAndMetadata, ProducerIdAndEpoch, TransactionVersion
from kafka_sink.producer.batching.producer_batch import ProducerBatch
from kafka_sink.producer.transactions.manager import TransactionManager
from kafka_sink.producer.transactions.request_queue import QueuedRequest
from kafka_sink.producer.transactions.state_machine import (
    TRANSITIONS,
    State,
    TransactionalResult,
    TransactionStateMachine,
)
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.transactions import EndTxnResponse, InitProducerIdResponse
from tests.fakes.brokers import SILENCE, FakeBrokers
from tests.fakes.clock import FakeClock
from tests.fakes.producing import TOPIC, queued, tp
from tests.fakes.sender_world import SenderWorld
from tests.fakes.transacting import LAST_EPOCH, PRODUCER_ID, TransactionalBrokers, TransactionalWorld
from tests.support.cases import with_each

FIND, INIT, PARTITIONS, OFFSETS, COMMIT, END, PRODUCE = (
    ApiKey.FIND_COORDINATOR,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
    ApiKey.PRODUCE,
)
S = State
GROUP = ConsumerGroupMetadata("readers", 3, "member", "instance")
OFFSET = {tp(0): OffsetAndMetadata(5, "note", 2)}


def make_world(level: int = 2, **properties: Any) -> TransactionalWorld:
    return TransactionalWorld(TransactionalBrokers(level, leaders=(1, 1, 1)), **properties)


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def world(request: pytest.FixtureRequest) -> TransactionalWorld:
    """A producer that is ready for its first transaction, at either transaction version."""
    made = make_world(request.param)
    made.finish(made.manager.initialize())
    return made


def is_version_2(world: TransactionalWorld) -> bool:
    return world.brokers.level == 2


# --- states ----------------------------------------------------------------------------------------------------------

#: Transitions of Kafka's State.isTransitionValid, except those that only Kafka's internal steps take.
ALLOWED = {
    S.UNINITIALIZED: {S.INITIALIZING},
    S.INITIALIZING: {S.READY, S.UNINITIALIZED},
    S.READY: {S.IN_TRANSACTION, S.UNINITIALIZED},
    S.IN_TRANSACTION: {S.COMMITTING_TRANSACTION, S.ABORTING_TRANSACTION, S.ABORTABLE_ERROR},
    S.COMMITTING_TRANSACTION: {S.READY, S.INITIALIZING, S.ABORTABLE_ERROR},
    S.ABORTING_TRANSACTION: {S.READY, S.INITIALIZING},
    S.ABORTABLE_ERROR: {S.ABORTING_TRANSACTION},
}


@pytest.mark.behaviour("Transactions", "The producer's transaction states change as Kafka's do, and in no other way")
@with_each("target", S)
@with_each("source", S)
def test_every_transition(source: State, target: State) -> None:
    machine = TransactionStateMachine("orders-writer", FakeClock(), ContextLogger(__name__, ""))
    machine.state = source
    allowed = target in ALLOWED.get(source, ()) or (target is S.FATAL_ERROR and source is not S.FATAL_ERROR)
    assert (target in TRANSITIONS[source]) is allowed
    if allowed:
        machine.transition(target, KafkaError("why"))
        assert machine.state is target
    else:
        with pytest.raises(TransactionStateError, match="cannot become"):
            machine.transition(target)
        assert machine.state is source


def call(manager: TransactionManager, name: str, send: Callable[[], Any] = lambda: None) -> Any:
    calls: dict[str, Callable[[], Any]] = {
        "initialize": manager.initialize,
        "begin": manager.begin,
        "commit": manager.begin_commit,
        "abort": manager.begin_abort,
        "send": send,
        "offsets": lambda: manager.send_offsets(OFFSET, GROUP),
    }
    return calls[name]()


CALLS = ("initialize", "begin", "commit", "abort", "send", "offsets")


@with_each("name", CALLS)
@with_each(
    ("state", "possible"),
    [
        (S.UNINITIALIZED, {"initialize"}),
        (S.READY, {"begin"}),
        (S.IN_TRANSACTION, {"commit", "abort", "send", "offsets"}),
        (S.ABORTABLE_ERROR, {"abort"}),
        (S.FATAL_ERROR, set()),
    ],
)
def test_calls_in_the_wrong_state_raise_and_change_nothing(state: State, possible: set[str], name: str) -> None:
    world = make_world()
    if state is not S.UNINITIALIZED:
        world.finish(world.manager.initialize())
    if state in (S.IN_TRANSACTION, S.ABORTABLE_ERROR):
        world.begin()
    if state is S.ABORTABLE_ERROR:
        world.manager.staging_failed(KafkaTimeoutError("no metadata"))
    if state is S.FATAL_ERROR:
        world.manager.fail_for_good(KafkaError("broken"))
    assert world.manager.state is state
    if name in possible:
        call(world.manager, name, lambda: world.send(b"v"))
        return
    expected = TransactionAbortableError if state is S.ABORTABLE_ERROR else TransactionStateError
    with pytest.raises(expected):
        call(world.manager, name, lambda: world.send(b"v"))
    assert world.manager.state is state


@with_each("name", ["initialize", "begin", "commit", "abort", "offsets"])
def test_without_a_transactional_id_there_are_no_transactions(name: str) -> None:
    manager = SenderWorld().transactions
    assert manager is not None
    with pytest.raises(TransactionStateError, match=r"needs a producer with a transactional\.id"):
        call(manager, name)


# --- a transaction ---------------------------------------------------------------------------------------------------


def test_version_1_adds_partitions_before_produce() -> None:
    world = make_world(1)
    world.begin()
    world.send(b"a", b"b", partition=0)
    world.send(b"c", partition=2)
    world.commit()
    assert world.order == [FIND, INIT, PARTITIONS, PRODUCE, END]
    assert world.brokers.versions(PARTITIONS) == {3}
    assert world.brokers.versions(PRODUCE) == {11}
    assert world.brokers.versions(END) == {4}
    (added,) = world.brokers.requests(PARTITIONS)
    assert [(topic.name, topic.partitions) for topic in added.v3_and_below_topics] == [(TOPIC, [0, 2])]
    assert world.manager.identity == ProducerIdAndEpoch(PRODUCER_ID, 0)
    assert world.acknowledged == 3


def test_version_2_sends_no_add_partitions_and_bumps_the_epoch() -> None:
    world = make_world(2)
    world.begin()
    world.send(b"a", partition=0)
    world.send(b"c", partition=2)
    world.commit()
    assert world.order == [FIND, INIT, PRODUCE, END]
    assert world.brokers.versions(PRODUCE) == {12}
    assert world.brokers.versions(END) == {5}
    assert world.manager.identity == ProducerIdAndEpoch(PRODUCER_ID, 1), "every transaction has its own epoch"


def test_batches_say_that_they_are_transactional(world: TransactionalWorld) -> None:
    world.transact(b"a")
    (batch,) = world.brokers.batches[0]
    assert batch.is_transactional
    assert (batch.header.producer_id, batch.header.producer_epoch, batch.header.base_sequence) == (PRODUCER_ID, 0, 0)
    (request,) = world.brokers.requests(PRODUCE)
    assert request.transactional_id == "orders-writer"


def test_idempotent_batches_are_not_transactional() -> None:
    world = SenderWorld(FakeBrokers())
    world.sent(b"a")
    assert not world.brokers.batches[0][0].is_transactional


def test_sequences_continue_within_an_epoch_and_restart_in_next(world: TransactionalWorld) -> None:
    for _ in range(2):
        world.transact(b"a", b"b")
    places = [(view.header.producer_epoch, view.header.base_sequence) for view in world.brokers.batches[0]]
    assert places == ([(0, 0), (1, 0)] if is_version_2(world) else [(0, 0), (0, 2)])


def test_a_partition_is_added_once(world: TransactionalWorld) -> None:
    world.begin()
    for value in (b"a", b"b"):
        world.sent(value)
    world.send(b"c", partition=1)
    world.commit()
    added = [topic.partitions for body in world.brokers.requests(PARTITIONS) for topic in body.v3_and_below_topics]
    assert added == ([] if is_version_2(world) else [[0], [1]])


def test_no_batch_leaves_before_its_partition_is_added() -> None:
    world = make_world(1)
    world.begin()
    world.brokers.errors[PARTITIONS].extend([SILENCE] * 3)
    world.sent(b"a")
    assert world.acknowledged == 1
    assert world.order.count(PARTITIONS) == 4
    assert world.order.index(PRODUCE) > max(i for i, api in enumerate(world.order) if api is PARTITIONS)


def test_a_commit_waits_for_what_was_sent(world: TransactionalWorld) -> None:
    world.begin()
    world.brokers.verdicts[0].extend([ErrorCode.NOT_ENOUGH_REPLICAS] * 3)
    world.send(b"a")
    world.commit()
    assert world.order[-1] is END
    assert world.order.count(PRODUCE) == 4
    assert world.acknowledged == 1


def test_a_commit_does_not_wait_for_linger(world: TransactionalWorld) -> None:
    world = make_world(linger_ms=50_000, delivery_timeout_ms=120_000)
    world.begin()
    before_ms = world.clock.now_ms
    world.send(b"a")
    world.commit()
    assert world.clock.now_ms - before_ms < 50_000


@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_empty_transaction_sends_no_end_txn(world: TransactionalWorld, ends: str) -> None:
    world.begin()
    getattr(world, ends)()
    assert END not in world.order
    assert world.manager.state is S.READY


def test_empty_transaction_after_another_sends_no_end_txn(world: TransactionalWorld) -> None:
    world.transact(b"a")
    world.begin()
    world.commit()
    assert world.order.count(END) == 1


def test_abort_drops_records_not_sent_yet(world: TransactionalWorld) -> None:
    world.begin_with(b"a")
    futures = world.send(b"b", b"c")
    world.abort()
    with pytest.raises(TransactionAbortableError):
        futures[0].result(0)
    assert world.brokers.values() == [b"a"]
    assert [body.committed for body in world.brokers.requests(END)] == [False]
    world.assert_memory_is_back()


@pytest.mark.behaviour("Transactions", "A record outside a transaction is refused")
def test_a_record_may_not_be_sent_outside_a_transaction(world: TransactionalWorld) -> None:
    with pytest.raises(TransactionStateError, match="call begin_transaction first"):
        world.send(b"a")
    world.transact(b"a")
    with pytest.raises(TransactionStateError):
        world.send(b"b")


def test_the_first_call_must_be_the_initialization() -> None:
    with pytest.raises(TransactionStateError, match="call init_transactions once"):
        make_world().send(b"a")


def test_an_append_that_is_under_way_holds_the_end_back(world: TransactionalWorld) -> None:
    """A thread whose append was admitted before the commit began still adds its record to this transaction."""
    world.begin_with(b"a")

    def while_appending() -> TransactionalResult:
        result = world.manager.begin_commit()
        world.step(20)
        assert END not in world.order
        return result

    world.finish(world.accumulator.appending(while_appending))
    assert END in world.order


@with_each("fails", [True, False])
def test_the_last_append_wakes_the_sender_for_the_end(world: TransactionalWorld, fails: bool) -> None:
    world.begin_with(b"a")
    results: list[TransactionalResult] = []

    def without_batch() -> None:
        results.append(world.manager.begin_commit())
        world.step(20)
        world.network.woken = False
        if fails:
            raise KafkaError("no memory")

    with pytest.raises(KafkaError) if fails else nullcontext():
        world.accumulator.appending(without_batch)
    assert world.network.woken, "the sender may have looked just before, and sleep until something else happens"
    world.finish(results[0])


# --- offsets ---------------------------------------------------------------------------------------------------------


def test_offsets_are_sent_with_all_group_metadata(world: TransactionalWorld) -> None:
    world.begin()
    world.finish(world.manager.send_offsets(OFFSET, GROUP))
    (sent,) = world.brokers.requests(COMMIT)
    named = (sent.group_id, sent.generation_id, sent.member_id, sent.group_instance_id)
    assert named == ("readers", 3, "member", "instance")
    ((topic,), (place,)) = sent.topics, sent.topics[0].partitions
    assert (topic.name, place.partition_index, place.committed_offset) == (TOPIC, 0, 5)
    assert (place.committed_leader_epoch, place.committed_metadata) == (2, "note")
    world.commit()
    adds = [] if is_version_2(world) else [OFFSETS]
    assert world.order == [FIND, INIT, *adds, FIND, COMMIT, END]
    assert world.brokers.versions(COMMIT) == ({5} if is_version_2(world) else {4})
    assert {body.key_type for body in world.brokers.requests(FIND)} == {0, 1}


def test_offset_commit_is_retried_until_coordinator_takes_it(world: TransactionalWorld) -> None:
    world.begin()
    world.brokers.errors[COMMIT].extend([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR])
    world.finish(world.manager.send_offsets(OFFSET, GROUP))
    assert world.order.count(COMMIT) == 3
    assert world.order.count(FIND) == 3, "the group's coordinator was looked up again"


@pytest.mark.parametrize(
    ("offset", "group"),
    [
        (OffsetAndMetadata(1 << 63), GROUP),
        (OffsetAndMetadata(1, "x" * 40_000), GROUP),
        (OffsetAndMetadata(1), ConsumerGroupMetadata("\ud800")),
    ],
    ids=["number", "text", "surrogate"],
)
def test_offsets_that_cannot_be_encoded_can_be_aborted(
    world: TransactionalWorld, offset: OffsetAndMetadata, group: ConsumerGroupMetadata
) -> None:
    world.begin_with(b"a")
    with pytest.raises(TransactionAbortableError, match="was not sent, because it cannot be encoded: "):
        world.finish(world.manager.send_offsets({tp(0): offset}, group))
    with pytest.raises(TransactionAbortableError):
        world.commit()
    world.abort()
    world.transact(b"b")
    assert [body.committed for body in world.brokers.requests(END)] == [False, True]


def test_closing_ends_the_wait_for_offsets_in_flight(world: TransactionalWorld) -> None:
    world.begin()
    world.brokers.errors[COMMIT].append(SILENCE)
    result = world.manager.send_offsets(OFFSET, GROUP)
    world.until_asked(COMMIT)
    world.sender.force_close()
    world.sender.run()
    with pytest.raises(KafkaError, match="was closed before"):
        result.await_outcome(0)


def test_old_coordinator_gets_offsets_without_member_id() -> None:
    world = make_world(1)
    world.brokers.max_versions[COMMIT] = 2
    world.begin()
    world.finish(world.manager.send_offsets(OFFSET, GROUP))
    assert world.brokers.requests(COMMIT)[0].member_id == ""


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_member_that_was_thrown_out_can_only_abort(world: TransactionalWorld, code: ErrorCode) -> None:
    world.begin()
    world.brokers.errors[COMMIT].append(code)
    with pytest.raises(TransactionAbortableError, match=code.name):
        world.finish(world.manager.send_offsets(OFFSET, GROUP))
    assert world.manager.state is S.ABORTABLE_ERROR
    world.abort()
    assert world.manager.state is S.READY


def test_abort_does_not_wait_for_offsets_refused_so_far(world: TransactionalWorld) -> None:
    world.begin()
    world.brokers.errors[COMMIT].extend([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 1000)
    result = world.manager.send_offsets(OFFSET, GROUP)
    world.step(50)
    assert not result.is_done
    world.abort()
    with pytest.raises(TransactionAbortableError):
        result.await_outcome(0)
    assert world.manager.state is S.READY


def test_abort_drops_requests_that_wait_to_be_retried(world: TransactionalWorld) -> None:
    world.begin()
    world.finish(world.manager.send_offsets({tp(1): OffsetAndMetadata(1)}, GROUP))
    world.brokers.errors[COMMIT].append(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    result = world.manager.send_offsets(OFFSET, GROUP)
    while world.brokers.errors[COMMIT]:
        world.sender.run_once()
    # The response was read: the request waits for its next attempt.
    world.sender.run_once()
    asked = world.order.count(COMMIT)
    aborted = world.manager.begin_abort()
    with pytest.raises(TransactionAbortableError):
        result.await_outcome(0)
    world.finish(aborted)
    assert world.order.count(COMMIT) == asked


# --- errors of requests ----------------------------------------------------------------------------------------------


def provoke(world: TransactionalWorld, api: ApiKey, code: ErrorCode, times: int = 1) -> Any:
    """Let *api* fail with *code*, and make the call that sends it; return the result to wait for."""
    world.brokers.errors[api].extend([code] * times)
    if api is INIT:
        return world.manager.initialize()
    world.begin()
    if api in (OFFSETS, COMMIT):
        return world.manager.send_offsets(OFFSET, GROUP)
    world.send(b"a")
    return world.manager.begin_commit()


REQUESTS = [(1, INIT), (1, PARTITIONS), (1, OFFSETS), (1, COMMIT), (1, END), (2, INIT), (2, COMMIT), (2, END)]


@with_each("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS])
@with_each(("level", "api"), REQUESTS)
def test_retriable_errors_are_retried_with_a_pause(level: int, api: ApiKey, code: ErrorCode) -> None:
    world = make_world(level)
    result = provoke(world, api, code, times=3)
    before_ms = world.clock.now_ms
    world.finish(result)
    assert world.order.count(api) == 4
    # Only a transaction's first AddPartitionsToTxn is retried sooner: the previous transaction may be about to end.
    pause_ms = 20 if api is PARTITIONS and code is ErrorCode.CONCURRENT_TRANSACTIONS else 100
    assert 3 * pause_ms <= world.clock.now_ms - before_ms < 3 * pause_ms + 100


@with_each("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
@with_each(("level", "api"), REQUESTS)
def test_a_coordinator_that_moved_is_looked_for(level: int, api: ApiKey, code: ErrorCode) -> None:
    world = TransactionalWorld(TransactionalBrokers(level, nodes=2))
    result = provoke(world, api, code)
    world.until_asked(api)
    world.brokers.coordinator = 2
    world.finish(result)
    after = world.order[world.order.index(api) + 1 :]
    assert after[0] is FIND
    assert api in after


@with_each("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED])
@with_each(("level", "api"), REQUESTS)
def test_a_fenced_producer_is_at_its_end(level: int, api: ApiKey, code: ErrorCode) -> None:
    world = make_world(level)
    with pytest.raises(ProducerFencedError):
        world.finish(provoke(world, api, code))
    assert world.manager.state is S.FATAL_ERROR
    with pytest.raises(ProducerFencedError, match="cannot continue"):
        world.manager.begin()
    with pytest.raises(ProducerFencedError):
        world.manager.begin_abort()


@with_each("code", [ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING])
@with_each(("level", "api"), REQUESTS)
def test_fatal_errors_leave_only_close(level: int, api: ApiKey, code: ErrorCode) -> None:
    world = make_world(level)
    with pytest.raises(ApiError, match=code.name):
        world.finish(provoke(world, api, code))
    assert world.manager.state is S.FATAL_ERROR
    with pytest.raises(TransactionStateError, match="must be closed"):
        world.manager.begin_abort()


@with_each(("level", "api"), [entry for entry in REQUESTS if entry[1] is not INIT])
def test_abortable_error_can_be_aborted_and_producer_continues(level: int, api: ApiKey) -> None:
    world = make_world(level)
    with pytest.raises(TransactionAbortableError):
        world.finish(provoke(world, api, ErrorCode.TRANSACTION_ABORTABLE))
    assert world.manager.state is S.ABORTABLE_ERROR
    world.abort()
    world.transact(b"again", partition=1)
    assert world.brokers.values(1) == [b"again"]


def test_partitions_that_may_not_be_written_to_can_be_aborted() -> None:
    world = make_world(1)
    with pytest.raises(TransactionAbortableError, match="orders-0: TOPIC_AUTHORIZATION_FAILED"):
        world.finish(provoke(world, PARTITIONS, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    world.settle()
    assert world.failed == 1
    world.abort()


@pytest.mark.parametrize("code", [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.TRANSACTION_ABORTABLE])
def test_an_initialization_that_was_refused_may_be_repeated(code: ErrorCode) -> None:
    world = make_world()
    with pytest.raises(ApiError, match=code.name):
        world.finish(provoke(world, INIT, code))
    assert world.manager.state is S.UNINITIALIZED
    world.finish(world.manager.initialize())
    assert world.manager.state is S.READY


def test_a_time_out_that_brokers_do_not_allow_is_explained() -> None:
    world = make_world()
    with pytest.raises(ApiError, match=r"transaction\.max\.timeout\.ms"):
        world.finish(provoke(world, INIT, ErrorCode.INVALID_TRANSACTION_TIMEOUT))


def test_an_id_that_may_not_be_looked_up_is_an_error_for_good() -> None:
    world = make_world()
    world.brokers.errors[FIND].append(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    with pytest.raises(ApiError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        world.finish(world.manager.initialize())
    assert world.manager.state is S.FATAL_ERROR


def test_a_group_that_may_not_be_looked_up_aborts(world: TransactionalWorld) -> None:
    world.begin()
    world.brokers.errors[FIND].append(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(TransactionAbortableError, match="GROUP_AUTHORIZATION_FAILED"):
        world.finish(world.manager.send_offsets(OFFSET, GROUP))
    world.abort()


def test_an_abort_that_is_refused_ends_the_producer(world: TransactionalWorld) -> None:
    world.begin_with(b"a")
    world.brokers.errors[END].append(ErrorCode.TRANSACTION_ABORTABLE)
    with pytest.raises(KafkaError, match="could not be aborted either"):
        world.abort()
    assert world.manager.state is S.FATAL_ERROR


def test_an_unknown_error_is_never_taken_for_a_commit(world: TransactionalWorld) -> None:
    with pytest.raises(ApiError, match="UNKNOWN_SERVER_ERROR"):
        world.finish(provoke(world, END, ErrorCode.UNKNOWN_SERVER_ERROR))
    assert world.manager.state is S.FATAL_ERROR


def test_brokers_without_transactions_are_refused_with_version() -> None:
    world = make_world()
    world.brokers.errors[INIT].append(ErrorCode.UNSUPPORTED_VERSION)
    with pytest.raises(UnsupportedVersionError, match=r"0\.11"):
        world.finish(world.manager.initialize())


@pytest.mark.parametrize(("api", "least"), [(END, 5), (COMMIT, 5), (PRODUCE, 12)])
def test_transaction_versions_are_never_mixed(api: ApiKey, least: int) -> None:
    world = make_world(2)
    world.brokers.max_versions[api] = least - 1
    world.begin()
    if api is COMMIT:
        with pytest.raises(UnsupportedVersionError, match=r"transaction\.version 2"):
            world.finish(world.manager.send_offsets(OFFSET, GROUP))
    else:
        world.send(b"a")
        with pytest.raises(UnsupportedVersionError, match=r"transaction\.version 2"):
            world.commit()
    assert api not in world.order
    assert world.manager.state is S.FATAL_ERROR


def test_fatal_error_fails_pending_offset_commits(world: TransactionalWorld) -> None:
    world.begin_with(b"a")
    offsets = world.manager.send_offsets(OFFSET, GROUP)
    world.manager.fail_for_good(KafkaError("broken"))
    with pytest.raises(KafkaError, match="broken"):
        offsets.await_outcome(0)


def test_fatal_error_ends_the_wait_for_an_answer(world: TransactionalWorld) -> None:
    world.begin_with(b"a")
    world.brokers.errors[END].append(SILENCE)
    result = world.manager.begin_commit()
    world.until_asked(END)
    world.manager.fail_for_good(KafkaError("broken"))
    with pytest.raises(KafkaError, match="broken"):
        result.await_outcome(0)


@pytest.mark.behaviour("Transactions", "Nothing changes a fatal error of the transaction manager")
def test_answers_after_a_fatal_error_change_nothing(world: TransactionalWorld) -> None:
    world.begin()
    result, before = world.manager.begin_commit(), world.manager.identity
    world.manager.fail_for_good(KafkaError("broken"))
    late = {
        InitProducerId("orders-writer", 60_000): InitProducerIdResponse(producer_id=77, producer_epoch=7),
        EndTxn("orders-writer", before, TransactionVersion.V2, True): EndTxnResponse(producer_id=77, producer_epoch=7),
    }
    for request, answer in late.items():
        world.manager.answered(QueuedRequest(request, result), answer, world.clock.now_ms)
    assert (world.manager.state, world.manager.identity) == (S.FATAL_ERROR, before)


@pytest.mark.behaviour("Transactions", "A record that is staged after an abort is no part of the next transaction")
def test_record_staged_after_abort_is_not_in_next_transaction(world: TransactionalWorld) -> None:
    world.begin()
    world.finish(world.manager.begin_abort())
    world.manager.add_partition(tp(0))
    world.begin()
    assert not world.manager.is_send_allowed(tp(0))
    assert world.manager.next_request(has_incomplete=False) is None


def test_closing_producer_does_not_end_a_joined_transaction() -> None:
    world = make_world()
    world.manager.join(ProducerIdAndEpoch(77, 7), TransactionVersion.V2)
    world.sent(b"v")
    assert not world.manager.has_ongoing_transaction
    world.close()
    assert END not in world.order


@pytest.mark.behaviour("Transactions", "A producer joins one transaction after the other, under any transactional id")
@pytest.mark.parametrize("version", TransactionVersion)
def test_producer_joins_one_transaction_after_another(version: TransactionVersion) -> None:
    world = make_world(version.value)
    written = []
    for identity, name in (((77, 7), None), ((77, 8), None), ((99, 0), "another-writer")):
        world.manager.join(ProducerIdAndEpoch(*identity), version, name)
        world.send(b"v")
        world.sent(b"w")
        sent = world.brokers.batches[0][-1].header
        written.append((sent.producer_id, sent.producer_epoch, sent.base_sequence, sent.record_count))
        assert world.brokers.requests(ApiKey.PRODUCE)[-1].transactional_id == (name or "orders-writer")
    assert written == [(77, 7, 0, 2), (77, 8, 0, 2), (99, 0, 0, 2)]
    assert not world.manager.has_ongoing_transaction


@pytest.mark.parametrize(("newest", "state"), [(5, S.ABORTABLE_ERROR), (2, S.FATAL_ERROR)])
def test_unknown_producer_id_needs_coordinator_that_bumps_epochs(newest: int, state: State) -> None:
    world = make_world(1)
    world.brokers.max_versions[INIT] = newest
    with pytest.raises(ApiError, match="UNKNOWN_PRODUCER_ID"):
        world.finish(provoke(world, PARTITIONS, ErrorCode.UNKNOWN_PRODUCER_ID))
    assert world.manager.state is state
    if state is S.ABORTABLE_ERROR:
        world.abort()
        assert world.manager.identity.epoch == 1


def test_a_coordinator_that_cannot_be_reached_is_looked_up_again(world: TransactionalWorld) -> None:
    made = TransactionalWorld(TransactionalBrokers(world.brokers.level, nodes=2))
    made.brokers.coordinator = 2
    made.network.refusals["2"] = ConnectionRefusedError("refused")
    result = made.manager.initialize()
    while made.order.count(FIND) < 3:
        made.sender.run_once()
    assert made.clock.now_ms >= 1_000_000 + 2 * 100, "with a pause between the attempts"
    made.brokers.coordinator = 1
    made.finish(result)


# --- lost responses --------------------------------------------------------------------------------------------------


@with_each(("level", "api"), REQUESTS)
def test_a_request_whose_answer_is_lost_is_sent_again(level: int, api: ApiKey) -> None:
    world = make_world(level)
    world.brokers.errors[api].append(SILENCE)
    result = provoke(world, api, ErrorCode.NONE)
    world.until_asked(api)
    world.network.lose("1")
    world.finish(result)
    sent = world.brokers.requests(api)
    assert len(sent) == 2
    assert sent[0] == sent[1], "the same epoch: the coordinator knows the repetition by it"


def test_a_call_that_timed_out_can_only_be_repeated(world: TransactionalWorld) -> None:
    world.begin_with(b"a")
    world.brokers.errors[END].extend([ErrorCode.CONCURRENT_TRANSACTIONS] * 5)
    result = world.manager.begin_commit()
    with pytest.raises(KafkaTimeoutError, match="call it again"):
        result.await_outcome(0)
    for other in (world.manager.begin, world.manager.begin_abort, lambda: world.send(b"b")):
        with pytest.raises(TransactionStateError, match="commit_transaction timed out"):
            other()
    assert world.manager.begin_commit() is result
    world.finish(result)
    world.manager.begin()


def test_offsets_of_missing_topic_fail_with_name_and_advice(world: TransactionalWorld) -> None:
    world.begin()
    world.brokers.errors[COMMIT].extend([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 99)
    result = world.manager.send_offsets(OFFSET, GROUP)
    with pytest.raises(KafkaTimeoutError, match=f"'readers'.*{TOPIC}-0: UNKNOWN_TOPIC.*create that.*abort the trans"):
        world.finish(result, at_most=50)


def test_a_failed_commit_that_nobody_waited_for_can_be_aborted(world: TransactionalWorld) -> None:
    world.begin()
    world.brokers.verdicts[0].append(ErrorCode.INVALID_RECORD)
    world.send(b"a")
    world.manager.begin_commit()
    world.settle()
    assert world.manager.state is S.ABORTABLE_ERROR
    world.abort()


@pytest.mark.parametrize("answer", [ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE], ids=["begun", "not begun"])
def test_maybe_begun_aborted_transaction_ends_before_new_epoch(answer: ErrorCode) -> None:
    world = make_world(1)
    world.begin()
    world.brokers.errors[PARTITIONS].append(SILENCE)
    world.brokers.errors[END].append(answer)
    world.send(b"a")
    world.until_asked(PARTITIONS)
    world.network.lose("1")
    result = world.manager.begin_abort()
    world.finish(result)
    assert world.order[-2:] == [END, INIT], "a new epoch in an open transaction would fence its own producer"
    bump = world.brokers.requests(INIT)[-1]
    assert (bump.producer_id, bump.producer_epoch) == (PRODUCER_ID, 0)
    assert world.manager.identity == ProducerIdAndEpoch(PRODUCER_ID, 1)


def test_begun_transaction_that_is_not_open_cannot_be_aborted() -> None:
    world = make_world(1)
    world.begin_with(b"a")
    world.brokers.errors[END].append(ErrorCode.INVALID_TXN_STATE)
    with pytest.raises(KafkaError, match="INVALID_TXN_STATE"):
        world.abort()


# --- batches that fail -----------------------------------------------------------------------------------------------


def test_refused_record_prevents_commit(world: TransactionalWorld) -> None:
    world.begin()
    world.brokers.verdicts[0].append(ErrorCode.INVALID_RECORD)
    world.sent(b"bad")
    with pytest.raises(TransactionAbortableError, match="INVALID_RECORD"):
        world.manager.begin_commit()
    with pytest.raises(TransactionAbortableError):
        world.send(b"more")
    world.abort()
    world.transact(b"good")
    epochs = [view.header.producer_epoch for view in world.brokers.batches[0]]
    sequences = [view.header.base_sequence for view in world.brokers.batches[0]]
    assert (epochs, sequences) == ([0, 1], [0, 0])


def test_failure_in_version_1_requests_a_new_epoch() -> None:
    world = make_world(1)
    world.begin()
    world.brokers.verdicts[0].append(ErrorCode.INVALID_RECORD)
    world.sent(b"bad")
    world.abort()
    assert world.order[-2:] == [END, INIT]
    assert (world.brokers.requests(INIT)[-1].producer_id, world.brokers.requests(INIT)[-1].producer_epoch) == (9, 0)


def test_a_failure_during_the_commit_fails_the_commit(world: TransactionalWorld) -> None:
    world.begin()
    world.brokers.verdicts[0].append(ErrorCode.INVALID_RECORD)
    world.send(b"bad")
    with pytest.raises(TransactionAbortableError, match="INVALID_RECORD"):
        world.commit()
    assert END not in world.order
    world.abort()
    assert [body.committed for body in world.brokers.requests(END)] == [False]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ],
)
def test_fatal_batch_errors_end_the_transaction_manager(world: TransactionalWorld, code: ErrorCode) -> None:
    world.begin()
    world.brokers.verdicts[0].append(code)
    world.sent(b"a")
    assert world.manager.state is S.FATAL_ERROR


def test_produce_epoch_error_leaves_fencing_to_coordinator(world: TransactionalWorld) -> None:
    """The transaction may have just timed out: only the coordinator knows whether another producer has taken over."""
    world.begin()
    world.brokers.verdicts[0].append(ErrorCode.INVALID_PRODUCER_EPOCH)
    world.sent(b"a")
    assert world.manager.state is S.ABORTABLE_ERROR
    world.brokers.errors[END].append(ErrorCode.PRODUCER_FENCED)
    with pytest.raises(ProducerFencedError):
        world.abort()


def test_unstaged_record_prevents_commit(world: TransactionalWorld) -> None:
    world.begin()
    world.manager.staging_failed(KafkaTimeoutError("no memory"))
    with pytest.raises(TransactionAbortableError, match="no memory"):
        world.manager.begin_commit()


def test_a_gap_before_the_oldest_batch_is_not_tried_again(world: TransactionalWorld) -> None:
    world.begin_with(b"first")
    world.brokers.verdicts[0].append(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    world.sent(b"second")
    assert world.manager.state is S.ABORTABLE_ERROR
    assert world.order.count(PRODUCE) == 2


def test_unclosable_batch_prevents_commit(world: TransactionalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.begin_with(b"first")
    with monkeypatch.context() as patch:
        patch.setattr(ProducerBatch, "close", lambda batch: 1 / 0)
        world.sent(b"second")
    with pytest.raises(TransactionAbortableError, match="could not build a batch"):
        world.manager.begin_commit()
    world.abort()
    assert world.manager.identity.epoch == 1, "also where no sequence was given out"


def test_batches_behind_refused_one_do_not_delay_the_abort(world: TransactionalWorld) -> None:
    world.begin_with(b"first")
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    world.brokers.verdicts[0].extend([ErrorCode.INVALID_RECORD, out_of_order, out_of_order, out_of_order])
    for value in (b"x" * 700, b"y" * 700, b"z" * 700):
        world.send(value)
    before_ms = world.clock.now_ms
    world.settle()
    world.abort()
    assert world.clock.now_ms - before_ms < 10_000, "no waiting for delivery.timeout.ms"
    assert world.manager.state is S.READY
    world.brokers.verdicts[0].clear()
    world.transact(b"next")
    assert world.brokers.batches[0][-1].header.base_sequence == 0


def test_expired_batch_aborts_and_next_transaction_bumps_epoch(world: TransactionalWorld) -> None:
    world.begin_with(b"first")
    world.brokers.verdicts[0].extend([SILENCE] * 100)
    world.sent(b"late")
    assert world.manager.state is S.ABORTABLE_ERROR
    world.abort()
    world.brokers.verdicts[0].clear()
    world.begin()
    assert world.manager.identity.epoch == 1


def test_sequence_gap_without_epoch_bump_is_fatal() -> None:
    world = make_world(1)
    world.brokers.max_versions[INIT] = 2
    world.begin_with(b"first")
    world.brokers.verdicts[0].extend([SILENCE] * 100)
    world.sent(b"late")
    world.step(5)
    assert world.manager.state is S.FATAL_ERROR


def test_unknown_producer_id_restarts_sequence_unless_data_lost(world: TransactionalWorld) -> None:
    world.begin_with(b"a")
    manager = world.manager.sequences
    world.send(b"b")
    (batch,) = queued(world.accumulator)
    batch.close()
    manager.assign_sequence(batch)
    assert batch.base_sequence == 1
    assert manager.can_retry(batch, ErrorCode.UNKNOWN_PRODUCER_ID, 100), "offset 0 lies before the log's start"
    assert batch.base_sequence == 0
    batch.reopened_sequence = False
    assert not manager.can_retry(batch, ErrorCode.UNKNOWN_PRODUCER_ID, 0), "data was lost"


# --- epochs and versions ---------------------------------------------------------------------------------------------


def test_beyond_the_last_epoch_comes_another_id(world: TransactionalWorld) -> None:
    world.brokers.epoch = LAST_EPOCH
    world.manager.sequences.assign_producer_id(PRODUCER_ID, LAST_EPOCH)
    world.begin_with(b"a")
    if not is_version_2(world):
        # In version 1, only an error makes the producer request a new epoch.
        world.brokers.verdicts[0].append(ErrorCode.INVALID_RECORD)
        world.sent(b"bad")
        world.abort()
    else:
        world.commit()
    assert world.manager.identity == ProducerIdAndEpoch(PRODUCER_ID + 1, 0)
    world.transact(b"b")
    last = world.brokers.batches[0][-1].header
    assert (last.producer_id, last.producer_epoch, last.base_sequence) == (PRODUCER_ID + 1, 0, 0)


def report_level(world: TransactionalWorld, level: int) -> None:
    """The cluster changes its transaction version, and the producer reconnects after that."""
    world.brokers.level = level
    world.brokers.features_epoch += 1
    world.network.lose("1")
    world.step(10)


def test_upgrade_to_version_2_takes_effect_after_transaction() -> None:
    world = make_world(1)
    world.begin_with(b"a")
    report_level(world, 2)
    world.send(b"b", partition=1)
    world.commit()
    assert world.brokers.versions(END) == {4}
    assert world.brokers.versions(PRODUCE) == {11}
    assert world.order[-2:] == [END, INIT], "version 2 begins in an epoch of its own"
    assert world.manager.transaction_version is TransactionVersion.V2
    world.transact(b"c")
    assert world.brokers.versions(END) == {4, 5}
    assert world.order.count(PARTITIONS) == 2


def test_a_cluster_that_goes_back_to_version_1() -> None:
    world = make_world(2)
    world.begin_with(b"a")
    report_level(world, 1)
    world.commit()
    assert world.brokers.versions(END) == {5}
    assert world.order[-1] is END, "the epoch is new already"
    world.transact(b"b")
    assert world.brokers.versions(END) == {4, 5}
    assert world.order.count(PARTITIONS) == 1


def test_an_older_report_of_the_features_does_not_count() -> None:
    world = make_world(2)
    world.begin()
    world.brokers.level = 1
    world.brokers.features_epoch -= 1
    world.network.lose("1")
    world.step(10)
    world.send(b"a")
    world.commit()
    assert world.manager.transaction_version is TransactionVersion.V2


# --- closing ---------------------------------------------------------------------------------------------------------


def test_closing_aborts_what_was_not_committed(world: TransactionalWorld) -> None:
    world.begin()
    world.send(b"a")
    world.close()
    assert world.acknowledged == 1
    assert [body.committed for body in world.brokers.requests(END)] == [False]


def test_closing_finishes_a_commit_that_has_begun(world: TransactionalWorld) -> None:
    world.begin()
    world.send(b"a")
    result = world.manager.begin_commit()
    world.close()
    result.await_outcome(0)
    assert [body.committed for body in world.brokers.requests(END)] == [True]


def test_forced_close_sends_no_end_txn(world: TransactionalWorld) -> None:
    world.begin()
    world.send(b"a")
    result = world.manager.begin_commit()
    world.sender.force_close()
    world.sender.run()
    with pytest.raises(KafkaError, match="was closed before"):
        result.await_outcome(0)
    assert END not in world.order


def test_closing_after_an_error_for_good_ends(world: TransactionalWorld) -> None:
    world.begin()
    world.send(b"a")
    world.manager.fail_for_good(KafkaError("broken"))
    world.close()
    assert world.failed == 1


# --- idempotence alone -----------------------------------------------------------------------------------------------


def test_refused_producer_id_is_requested_again_only_when_needed() -> None:
    world = SenderWorld(brokers := TransactionalBrokers())
    brokers.errors[INIT].append(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    world.sent(b"a")
    assert world.failed == 1
    for _ in range(20):
        world.clock.advance(1000)
        world.step()
    assert len(brokers.requests(INIT)) == 1, "nobody needs one"
    world.sent(b"b")
    assert world.acknowledged == 1
    assert brokers.requests(INIT)[1].transactional_id is None
