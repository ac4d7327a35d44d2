"""The sender's loop over a network that the test simulates."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_sink.common.errors import (
    ApiError,
    BatchRefusedError,
    ErrorCode,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    UnsupportedVersionError,
    error_for,
)
from kafka_sink.common.model import Node
from kafka_sink.producer.batching.producer_batch import ProducerBatch
from kafka_sink.producer.futures import Delivery
from kafka_sink.producer.transactions.state_machine import State
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.produce import BatchIndexAndErrorMessage
from kafka_sink.protocol.messages.transactions import InitProducerIdResponse
from tests.fakes.brokers import NO_LEADER, produce_answer
from tests.fakes.chunks import Row
from tests.fakes.producing import Straggler, append_columns, tp
from tests.fakes.sender_world import PlayedWorld
from tests.support.cases import with_each

#: Longer than any test waits by chance.
LONG_MS = 20_000
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
MAYBE_STORED = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
A, B = [b"a"], [b"b"]


def settled(leaders: tuple[int, ...] = (1,), **properties: Any) -> PlayedWorld:
    world = PlayedWorld(leaders, **properties)
    world.prepare()
    return world


def plain(leaders: tuple[int, ...] = (1,), **properties: Any) -> PlayedWorld:
    """A world without idempotence."""
    return settled(leaders, enable_idempotence=False, **properties)


# --- sending and sleeping --------------------------------------------------------------------------------------------


def test_record_goes_to_its_leader_and_returns_with_its_offset() -> None:
    world = PlayedWorld((1, 2))
    futures = [world.append(partition, b"%d" % partition) for partition in (0, 1)]
    world.run_until(lambda: world.brokers.requests(1) and world.brokers.requests(2))
    assert world.brokers.sent_values(1) == {0: [b"0"]}
    assert world.brokers.sent_values(2) == {1: [b"1"]}
    world.brokers.answer(1, base_offset=40)
    world.brokers.answer(2, base_offset=50)
    world.run_until(lambda: not world.accumulator.has_incomplete)
    assert [future.result(0).offset for future in futures] == [40, 50]
    assert world.memory_in_use == 0


def test_batches_of_several_partitions_of_a_node_share_a_request() -> None:
    world = settled((1, 1, 1))
    for partition in range(3):
        world.append(partition)
    world.step()
    assert len(world.brokers.requests()) == 1
    assert sorted(world.brokers.sent_batches()) == [0, 1, 2]
    request = world.brokers.requests()[0]
    assert (request.acks, request.timeout_ms, request.transactional_id) == (-1, 30_000, None)


def test_the_poll_after_a_send_waits_unless_batches_are_left() -> None:
    world = settled(linger_ms=40)
    world.append()
    world.step()
    assert world.polls[-1] == 40, "nothing to send before the linger is over"
    world.step()
    assert len(world.brokers.requests()) == 1
    assert world.polls[-1] > 1000, "nothing to do but to wait for the answer"
    world = plain(batch_size=1000)
    for _ in range(2):
        world.append(value=b"v" * 600)
    world.step()
    assert len(world.brokers.requests()) == 1
    assert world.polls[-1] == 0, "the next batch of the partition may be sent at once"


def test_sender_without_data_sleeps() -> None:
    world = settled()
    world.step()
    assert world.polls[-1] >= 30_000


def test_sender_sleeps_for_the_least_remaining_linger() -> None:
    world = settled((1, 2), linger_ms=50)
    world.append(0)
    world.clock.advance(20)
    world.append(1)
    world.step()
    assert world.polls[-1] == 30


def test_it_does_not_spin_while_a_node_is_being_connected() -> None:
    world = settled()
    world.network.auto_connect = False
    world.network.auto_ready = False
    world.network.lose("1")
    world.step()
    world.append()
    polls = len(world.polls)
    started = world.now
    while world.now < started + 5000:
        world.step()
    assert len(world.polls) - polls < 130, "the client looks every 50 ms whether it may connect to another one"
    assert not world.brokers.requests()


def test_it_does_not_spin_while_it_waits_for_a_producer_id() -> None:
    world = PlayedWorld()
    world.brokers.producer_ids = [None] * 50
    world.append()
    started = world.now
    world.run_until(lambda: world.now >= started + LONG_MS, steps=60)
    assert not world.brokers.requests()


@pytest.mark.behaviour("Sender", "A pass with nothing to do ends, and does not spin")
@with_each(("properties", "for_ms"), [({}, LONG_MS), ({"retry_backoff_ms": 0}, 20)])
def test_it_does_not_spin_while_no_broker_can_be_reached(properties: dict[str, Any], for_ms: int) -> None:
    world = PlayedWorld(**properties)
    world.network.refusals = {"-1": ConnectionRefusedError(111, "Connection refused")}
    world.append()
    started = world.now
    world.run_until(lambda: world.now >= started + for_ms, steps=400)


def test_it_does_not_spin_while_a_partition_may_not_leave() -> None:
    world = settled(max_in_flight_requests_per_connection=1)
    world.append()
    world.step()
    world.append()
    world.step()
    assert world.polls[-1] > 1000


def test_records_without_leader_are_sent_once_there_is_one() -> None:
    world = PlayedWorld((NO_LEADER,))
    world.append()
    started = world.now
    world.run_until(lambda: world.now > started + 3000)
    assert len(world.polls) < 130, "a few for each time the metadata may be asked for, every 100 ms"
    world.brokers.move(2)
    world.run_until(lambda: world.brokers.requests(2))
    assert world.now < started + 5000


def test_moved_broker_is_sent_to_at_its_new_address_once_lost() -> None:
    world = plain()
    world.brokers.nodes[1] = Node(1, "127.0.0.2", 9999)
    world.metadata.request_update()
    version = world.metadata.update_version
    world.run_until(lambda: world.metadata.update_version > version)
    world.under_way()
    assert [node for node, _ in world.network.connects].count("1") == 1, (
        "a connection is kept as long as it works, as in Kafka's Java client"
    )
    world.brokers.lose()
    world.run_until(lambda: not world.brokers.requests())
    world.run_until(world.brokers.requests)
    addresses = [address for node, address in world.network.connects if node == "1"]
    assert len(addresses) == 2 and addresses[0] != addresses[1]


def test_topic_without_leader_is_kept_while_records_wait() -> None:
    world = PlayedWorld((NO_LEADER,), metadata_max_idle_ms=5000)
    future = world.append()
    started = world.now
    world.run_until(lambda: world.now > started + 12_000, steps=400)
    world.brokers.move(2)
    world.run_until(lambda: world.brokers.requests(2))
    assert world.now < started + 15_000 and not future.done()


def test_expired_record_names_the_missing_leader() -> None:
    world = plain((NO_LEADER, 1), delivery_timeout_ms=3000, request_timeout_ms=2900)
    world.network.held.add("1")
    futures = [world.append(partition) for partition in (0, 1)]
    world.step()
    world.clock.advance(3000)
    world.in_flight.expire(world.now)
    with pytest.raises(KafkaTimeoutError, match=f"; {tp(0)} has no leader: start the brokers that have its replicas"):
        futures[0].result(0)
    with pytest.raises(KafkaTimeoutError) as led:
        futures[1].result(0)
    assert "leader" not in str(led.value)


def test_partition_missing_in_metadata_is_asked_for() -> None:
    world = plain()
    world.append(1)
    world.step()
    world.brokers.move(1, 2)
    started = world.now
    world.run_until(lambda: world.brokers.requests(2))
    assert world.now < started + 1000


def test_unclosable_batch_does_not_hold_up_those_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = settled(batch_size=1000)
    futures = [world.append(value=b"x" * 600) for _ in range(2)]
    close = ProducerBatch.close
    failed: list[ProducerBatch] = []

    def close_all_but_one(batch: ProducerBatch) -> None:
        if not failed:
            failed.append(batch)
            raise MemoryError
        close(batch)

    monkeypatch.setattr(ProducerBatch, "close", close_all_but_one)
    started = world.now
    world.run_until(world.brokers.requests)
    assert world.now == started and futures[0].done()


def test_an_oversized_drain_goes_on_in_the_next_request() -> None:
    world = settled((1, 1, 1), max_request_size=1500, batch_size=1000)
    for partition in range(3):
        world.append(partition, b"x" * 800)
    started = world.now
    world.run_until(lambda: len(world.brokers.requests()) == 3)
    assert [sorted(world.brokers.sent_batches(request=index)) for index in range(3)] == [[0], [1], [2]]
    assert world.now == started, "it did not sleep between them"


# --- retries ---------------------------------------------------------------------------------------------------------


@with_each("is_lost", [True, False])
def test_a_request_without_an_answer_is_tried_again(is_lost: bool) -> None:
    world = plain(request_timeout_ms=5000)
    future = world.under_way(value=b"again")
    if is_lost:
        world.brokers.lose()
    world.run_until(lambda: not world.brokers.requests())
    world.run_until(world.brokers.requests)
    assert world.brokers.sent_values() == {0: [b"again"]}
    world.brokers.answer()
    world.run_until(future.done)
    assert future.result(0).offset == 100
    assert world.memory_in_use == 0


def test_retries_end_with_their_number() -> None:
    world = plain(retries=2)
    future = world.append()
    for _ in range(3):
        world.run_until(world.brokers.requests)
        world.fails(ErrorCode.NOT_ENOUGH_REPLICAS, message="1 of 2")
    assert future.done()
    with pytest.raises(ApiError, match=r"NOT_ENOUGH_REPLICAS: 1 record.* refused \(1 of 2\); fewer"):
        future.result(0)
    assert world.memory_in_use == 0


def test_after_the_delivery_time_out_there_is_no_retry() -> None:
    world = plain(delivery_timeout_ms=3000, request_timeout_ms=2000)
    future = world.under_way()
    world.clock.advance(2400)
    world.brokers.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    # The response arrives in the poll in which the time passes.
    world.clock.advance(600)
    world.client.poll(0, world.now)
    with pytest.raises(ApiError, match="NOT_ENOUGH_REPLICAS"):
        future.result(0)
    world.step(3)
    assert not world.brokers.requests()
    assert world.memory_in_use == 0


def test_a_record_that_expires_between_two_attempts_fails_once() -> None:
    world = plain(delivery_timeout_ms=3000, request_timeout_ms=2000, retry_backoff_ms=5000, retry_backoff_max_ms=5000)
    told: list[Delivery] = []
    world.under_way(callback=told.append)
    world.brokers.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    world.run_until(lambda: told)
    world.step()
    assert len(told) == 1
    assert world.figure("record-error-total") == 1
    assert world.memory_in_use == 0


def test_a_record_that_failed_does_not_expire_later() -> None:
    world = plain(delivery_timeout_ms=3000, request_timeout_ms=2000)
    world.under_way()
    world.fails(ErrorCode.MESSAGE_TOO_LARGE)
    world.clock.advance(4000)
    world.step()
    assert world.figure("record-error-total") == 1


# --- refusals --------------------------------------------------------------------------------------------------------


def test_non_retriable_error_fails_at_once_and_says_what_to_do() -> None:
    world = plain()
    future = world.under_way()
    world.fails(ErrorCode.MESSAGE_TOO_LARGE, message="the batch is larger than max.message.bytes")
    with pytest.raises(RecordTooLargeError) as caught:
        future.result(0)
    text = str(caught.value)
    said = "for orders-0 were refused (the batch is larger than max.message.bytes)"
    assert f"1 record(s) of 69 bytes in a batch {said}; send a smaller record, or raise max.message.bytes" in text
    assert world.memory_in_use == 0
    assert world.figure("record-error-total") == 1


def test_each_partition_of_an_answer_has_its_own_outcome() -> None:
    world = plain((1, 1, 1))
    futures = [world.append(partition) for partition in range(3)]
    world.run_until(world.brokers.requests)
    world.brokers.answer(p0=ErrorCode.TOPIC_AUTHORIZATION_FAILED, p1=ErrorCode.LEADER_NOT_AVAILABLE)
    world.step()
    with pytest.raises(ApiError, match="grant WRITE on the topic"):
        futures[0].result(0)
    assert not futures[1].done()
    assert futures[2].result(0).offset == 100


def refuse_records(world: PlayedWorld, code: ErrorCode, *named: tuple[int, str | None]) -> None:
    """Answer the oldest request with *code*, for the records at these indexes of their batch (KIP-467)."""
    answer = produce_answer(world.brokers.requests()[0], -1, {0: code}, "One or more records have been rejected")
    answer.responses[0].partition_responses[0].record_errors = [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message) for index, message in named
    ]
    world.network.reply("1", answer)
    world.step()


def test_invalid_record_gets_its_own_error_and_others_theirs() -> None:
    world = settled(linger_ms=10)
    told: list[Delivery] = []
    futures = [world.append(0, value, told.append) for value in (b"a", b"b", b"c")]
    world.run_until(world.brokers.requests)
    refuse_records(world, ErrorCode.INVALID_TIMESTAMP, (1, "timestamp out of range"))
    said = r"record 1 of 3 in its batch for orders-0 .* \(timestamp out of range\)"
    with pytest.raises(InvalidTimestampError, match=said) as caught:
        futures[1].result(0)
    assert "raise message.timestamp.before.max.ms or message.timestamp.after.max.ms of the topic" in str(caught.value)
    for index in (0, 2):
        with pytest.raises(KafkaError, match="not stored, because other records in its batch were invalid") as others:
            futures[index].result(0)
        assert str(told[index].error) == str(others.value)
    assert str(told[1].error) == str(caught.value)


def test_of_several_invalid_records_each_is_an_invalid_record() -> None:
    world = settled(linger_ms=10)
    futures = [world.append(0, value) for value in (b"a", b"b", b"c")]
    world.run_until(world.brokers.requests)
    refuse_records(world, ErrorCode.INVALID_TIMESTAMP, (0, "too old"), (2, None))
    for index, said in ((0, "too old"), (2, "One or more records have been rejected")):
        with pytest.raises(ApiError, match=said) as caught:
            futures[index].result(0)
        assert caught.value.code is ErrorCode.INVALID_RECORD
    with pytest.raises(KafkaError, match="other records in its batch"):
        futures[1].result(0)


def test_deliveries_of_rows_tell_which_row_was_invalid() -> None:
    world = settled(linger_ms=10)
    told: list[Delivery] = []
    for _ in range(2):
        append_columns(world.accumulator, [Row(b"v")] * 3, callback=told.append, clock=world.clock)
    world.run_until(world.brokers.requests)
    refuse_records(world, ErrorCode.INVALID_RECORD, (4, "no key"))
    assert [delivery.count for delivery in told] == [3, 3]
    assert "other records in its batch" in str(told[0].error)
    assert "record 4 of 6" in str(told[1].error) and "no key" in str(told[1].error)
    assert isinstance(told[0].error, BatchRefusedError) and told[0].error.reason is told[1].error
    assert isinstance(told[1].error, InvalidRecordError) and "cleanup.policy=compact needs a key" in str(told[1].error)


def test_an_error_code_from_the_future_is_not_retried() -> None:
    world = plain()
    future = world.under_way()
    world.brokers.fail(9999)  # type: ignore[arg-type]
    world.step()
    with pytest.raises(ApiError, match="error code 9999"):
        future.result(0)


def test_a_partition_that_the_answer_leaves_out_fails() -> None:
    world = plain((1, 1))
    futures = [world.append(partition) for partition in range(2)]
    world.run_until(world.brokers.requests)
    answer = produce_answer(world.brokers.requests()[0], 100, {})
    del answer.responses[0].partition_responses[0]
    world.network.reply("1", answer)
    world.step()
    with pytest.raises(ApiError, match="response does not contain this partition"):
        futures[0].result(0)
    assert futures[1].result(0).offset == 100
    assert world.memory_in_use == 0


def test_a_partition_nobody_asked_about_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    world = plain()
    future = world.under_way()
    answer = produce_answer(world.brokers.requests()[0], 100, {})
    stranger = produce_answer(world.brokers.requests()[0], 5, {}).responses[0].partition_responses[0]
    stranger.index = 17
    answer.responses[0].partition_responses.insert(0, stranger)
    world.network.reply("1", answer)
    world.step()
    assert future.result(0).offset == 100
    assert "response contains orders-17, which the request did not" in caplog.text


def test_broker_without_common_produce_version_fails_records() -> None:
    world = PlayedWorld(enable_idempotence=False)
    world.brokers.ranges = {ApiKey.PRODUCE: (0, 1)}
    future = world.append()
    world.run_until(future.done)
    with pytest.raises(UnsupportedVersionError, match="orders-0 were refused"):
        future.result(0)
    assert world.memory_in_use == 0


def test_zstd_is_not_sent_to_a_broker_that_cannot_read_it() -> None:
    world = PlayedWorld(compression_type="zstd")
    world.brokers.ranges = {ApiKey.PRODUCE: (3, 6)}
    future = world.append()
    world.run_until(lambda: future.done() or world.brokers.requests())
    assert not world.brokers.requests()
    with pytest.raises(
        UnsupportedVersionError, match=r"zstd needs PRODUCE 7 .* up to version 6; .*another compression\.type"
    ):
        future.result(0)


def test_acks_0_record_is_done_when_written_without_offset() -> None:
    world = PlayedWorld(acks="0")
    future = world.append()
    world.run_until(future.done)
    assert future.result(0).offset == -1
    assert world.memory_in_use == 0
    assert world.client.in_flight_request_count() == 0


def test_acks_0_memory_is_kept_until_the_last_byte_is_written() -> None:
    world = PlayedWorld(acks="0")
    world.append()
    world.run_until(lambda: world.memory_in_use == 0)
    world.network.held.add("1")
    future = world.append()
    world.step()
    assert not future.done()
    assert world.memory_in_use > 0
    world.network.held.clear()
    world.step()
    assert future.done()


# --- expiry ----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(
    "Delivery time-out", "The error of an expired record says how many records, where and for how long"
)
def test_expired_record_error_says_count_partition_age_and_cause() -> None:
    world = PlayedWorld(delivery_timeout_ms=4000, request_timeout_ms=1000)
    world.network.refusals = {"-1": ConnectionRefusedError(111, "Connection refused")}
    futures = [world.append(), world.append()]
    world.run_until(futures[0].done, steps=2000)
    with pytest.raises(KafkaTimeoutError) as caught:
        futures[1].result(0)
    text = str(caught.value)
    assert "expiring 2 record(s) for orders-0: 4000 ms have passed" in text
    assert "delivery.timeout.ms=4000" in text
    assert "127.0.0.1:9000: connection refused" in text
    assert world.memory_in_use == 0


@pytest.mark.behaviour("Delivery time-out", "The sender wakes up for the batch that expires next")
def test_it_wakes_up_for_what_expires_next() -> None:
    world = settled((NO_LEADER, 1), delivery_timeout_ms=3000, request_timeout_ms=2000, enable_idempotence=False)
    created = world.now
    ended: list[int] = []
    world.append(1, callback=lambda delivery: ended.append(world.now - created))
    world.run_until(lambda: ended)
    assert ended == [3000]


def test_memory_of_record_expired_in_flight_stays_until_answer() -> None:
    world = plain(delivery_timeout_ms=3000, request_timeout_ms=2500, batch_size=200)
    world.network.held.add("1")
    told: list[Delivery] = []
    future = world.append(value=b"on the wire", callback=told.append)
    world.step()
    world.clock.advance(3000)
    world.in_flight.expire(world.now)
    with pytest.raises(KafkaTimeoutError):
        future.result(0)
    assert world.memory_in_use == 200
    world.step()
    assert world.memory_in_use == 0, "the request timed out, and with it the connection that would have read it"
    assert len(told) == 1


@pytest.mark.behaviour("Delivery time-out", "The memory of a batch under way stays taken until its request ends")
def test_late_answer_to_expired_record_frees_memory_silently() -> None:
    world = plain(delivery_timeout_ms=3000, request_timeout_ms=2900)
    told: list[Delivery] = []
    world.under_way(value=b"late", callback=told.append)
    world.clock.advance(2950)
    world.network.connections["1"].incoming.clear()
    world.clock.advance(50)
    world.in_flight.expire(world.now)
    assert [type(delivery.error) for delivery in told] == [KafkaTimeoutError]
    assert world.memory_in_use > 0
    world.brokers.answer()
    world.client.poll(0, world.now)
    assert len(told) == 1
    assert world.memory_in_use == 0
    assert not world.accumulator.has_incomplete


def test_what_expires_is_not_sent_in_the_same_pass() -> None:
    world = plain(delivery_timeout_ms=3000, request_timeout_ms=2000)
    future = world.append()
    world.clock.advance(3000)
    world.step()
    assert future.done()
    assert not world.brokers.requests()
    assert world.memory_in_use == 0


# --- order -----------------------------------------------------------------------------------------------------------


def test_with_one_request_in_flight_nothing_overtakes_a_retry() -> None:
    world = plain(max_in_flight_requests_per_connection=1, batch_size=150)
    for value in (b"a", b"b", b"c"):
        world.under_way(value=value * 60)
    assert world.brokers.sent_values() == {0: [b"a" * 60]}
    world.brokers.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    seen = []
    for _ in range(3):
        world.run_until(world.brokers.requests)
        seen += [value[:1] for value in world.brokers.sent_values()[0] if value]
        world.brokers.answer()
        world.step()
    assert seen == [b"a", b"b", b"c"]


def test_one_in_flight_makes_new_leader_wait_for_old_answer() -> None:
    world = plain((1, 2), max_in_flight_requests_per_connection=1)
    world.under_way(0, b"a")
    world.brokers.move(2, 2)
    world.metadata.request_update()
    world.append(0, b"b")
    known = world.metadata.update_version
    world.run_until(lambda: world.metadata.update_version > known)
    world.client.wakeup()
    world.step()
    assert not world.brokers.requests(2)
    world.brokers.answer(1)
    world.run_until(lambda: world.brokers.requests(2))
    assert world.brokers.sent_values(2) == {0: [b"b"]}


def test_muted_partition_does_not_hold_up_others_of_its_node() -> None:
    world = plain((1, 1), max_in_flight_requests_per_connection=1)
    world.under_way(0)
    world.append(0)
    world.append(1)
    world.brokers.answer()
    world.run_until(world.brokers.requests)
    assert sorted(world.brokers.sent_batches()) == [0, 1]


def test_partition_resumes_when_its_expired_request_has_ended() -> None:
    world = plain(max_in_flight_requests_per_connection=1, delivery_timeout_ms=3000, request_timeout_ms=2500)
    world.network.held.add("1")
    world.append()
    world.step(2)
    world.clock.advance(3000)
    world.step()
    future = world.append(value=b"next")
    world.network.held.clear()
    world.brokers.acknowledge_everything()
    world.run_until(future.done)
    assert future.result(0).offset == 100


# --- idempotence -----------------------------------------------------------------------------------------------------


def test_batches_carry_id_epoch_and_contiguous_sequences() -> None:
    world = PlayedWorld()
    world.append()
    world.under_way()
    header = world.brokers.sent_batches()[0].header
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 0, 0)
    world.brokers.answer()
    world.step()
    for sequence in (2, 3):
        world.append()
        world.step()
        assert world.brokers.sent_batches()[0].header.base_sequence == sequence


def test_a_duplicate_is_a_success() -> None:
    world = settled()
    future = world.under_way()
    world.fails(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert future.result(0).offset == -1
    assert world.memory_in_use == 0
    world.under_way()
    assert world.brokers.sent_batches()[0].header.base_sequence == 2


def test_batches_in_flight_are_retried_in_order_one_at_a_time() -> None:
    world = settled()
    flight(world, b"a", b"b", b"c")
    assert len(world.brokers.requests()) == 3
    for code in (ErrorCode.NOT_ENOUGH_REPLICAS, OUT_OF_ORDER, OUT_OF_ORDER):
        world.brokers.fail(code)
    world.step(3)
    for expected in (([b"a"], 0, 1), ([b"b"], 0, 2), ([b"c"], 0, 3)):
        assert next_attempt(world) == expected
        assert len(world.brokers.requests()) == 1
        world.brokers.answer()
        world.step()


def test_refused_batch_moves_those_behind_it_to_a_new_epoch() -> None:
    world = settled()
    refused, behind = flight(world, b"a", b"b")
    world.brokers.fail(ErrorCode.MESSAGE_TOO_LARGE)
    world.brokers.fail(OUT_OF_ORDER)
    world.step(2)
    with pytest.raises(RecordTooLargeError):
        refused.result(0)
    assert next_attempt(world) == ([b"b"], 1, 0)
    world.brokers.answer()
    world.run_until(behind.done)
    assert behind.result(0).offset == 100


def flight(world: PlayedWorld, *values: bytes, every_ms: int = 0) -> list[Any]:
    """Send each of *values* in its own request, and return their futures."""
    futures = []
    for value in values:
        futures.append(world.append(value=value))
        world.step()
        world.clock.advance(every_ms)
    return futures


Attempt = tuple[list[bytes | None], int, int]


def next_attempt(world: PlayedWorld) -> Attempt:
    """(values, epoch, base sequence) of the next request."""
    world.run_until(world.brokers.requests)
    header = world.brokers.sent_batches()[0].header
    return world.brokers.sent_values()[0], header.producer_epoch, header.base_sequence


@with_each(
    ("retries", "answers", "first", "then", "second"),
    [
        (9, (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NOT_ENOUGH_REPLICAS), (B, 0, 2), OUT_OF_ORDER, (B, 1, 0)),
        (9, (MAYBE_STORED, MAYBE_STORED), (A, 0, 1), ErrorCode.TOPIC_AUTHORIZATION_FAILED, (B, 0, 2)),
        (1, (MAYBE_STORED, MAYBE_STORED), (A, 0, 1), MAYBE_STORED, (B, 0, 2)),
    ],
)
def test_retry_behind_given_up_batch_keeps_sequence_until_gap(
    retries: int, answers: tuple[ErrorCode, ...], first: Attempt, then: ErrorCode, second: Attempt
) -> None:
    world = settled(retries=retries)
    flight(world, b"a", b"b")
    for code in answers:
        world.brokers.fail(code)
    world.step(2)
    assert next_attempt(world) == first
    world.fails(then)
    assert next_attempt(world) == second


@with_each("expires_before_its_answer", [True, False])
def test_retry_behind_expired_batch_keeps_its_sequence(expires_before_its_answer: bool) -> None:
    world = settled(delivery_timeout_ms=3000, request_timeout_ms=2900)
    flight(world, b"a", b"b", every_ms=1400)
    world.clock.advance(200)
    if expires_before_its_answer:
        world.in_flight.expire(world.now)
    for code in (MAYBE_STORED, ErrorCode.NOT_ENOUGH_REPLICAS):
        world.brokers.fail(code)
        world.client.poll(0, world.now)
    assert next_attempt(world) == (B, 0, 2)


def test_idempotent_partition_resumes_at_once_after_expiry() -> None:
    world = settled(delivery_timeout_ms=3000, request_timeout_ms=2500)
    world.network.held.add("1")
    lost = world.append(value=b"lost")
    world.step()
    world.clock.advance(3000)
    world.step()
    assert lost.done()
    world.network.held.clear()
    future = world.append(value=b"next")
    started = world.now
    assert next_attempt(world) == ([b"next"], 1, 0)
    assert world.now - started < 1000
    world.brokers.answer()
    world.run_until(future.done)


def test_a_batch_that_expired_in_its_queue_leaves_no_gap() -> None:
    world = settled((1, NO_LEADER), delivery_timeout_ms=3000, request_timeout_ms=2500)
    stuck = world.append(1)
    world.run_until(stuck.done)
    world.under_way(0)
    assert world.brokers.sent_batches()[0].header.producer_epoch == 0


def test_producer_id_is_requested_again_after_retriable_error() -> None:
    world = PlayedWorld(retry_backoff_ms=300)
    world.brokers.producer_ids = [InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 3
    future = world.append()
    started = world.now
    world.brokers.acknowledge_everything()
    world.run_until(future.done)
    assert world.now == started + 900
    assert future.result(0).offset == 100


def test_producer_id_is_requested_again_after_lost_connection() -> None:
    world = PlayedWorld()
    world.brokers.producer_ids = [None]
    future = world.append()
    world.run_until(lambda: not world.brokers.producer_ids)
    for node in list(world.network.connections):
        world.network.lose(node)
    world.brokers.acknowledge_everything()
    world.run_until(future.done)
    assert future.result(0).offset == 100


def test_later_refused_producer_id_fails_in_flight_records_once() -> None:
    world = settled((1, 2), delivery_timeout_ms=3000, request_timeout_ms=2500)
    told: list[Delivery] = []
    world.append(0, callback=told.append)
    world.step()
    assert world.transactions is not None
    world.transactions.fail_for_good(error_for(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "revoked"))
    world.append(1, callback=told.append)
    world.brokers.answer()
    world.step()
    assert [str(delivery.error) for delivery in told] == ["CLUSTER_AUTHORIZATION_FAILED: revoked"] * 2
    world.clock.advance(5000)
    world.step()
    assert world.memory_in_use == 0
    assert world.figure("record-error-total") == 2


def test_partition_with_gap_at_last_epoch_recovers_from_refusal() -> None:
    world = settled()
    assert world.transactions is not None
    world.transactions.sequences.assign_producer_id(77, 32767)
    refused = world.append(0, b"refused")
    world.step()
    world.brokers.producer_ids.append(InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    world.brokers.fail(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    world.run_until(refused.done)
    with pytest.raises(ApiError, match="grant WRITE"):
        refused.result(0)
    world.brokers.acknowledge_everything()
    later = world.append(0, b"later")
    world.run_until(later.done)
    assert later.result(0).offset == 100


def test_a_refused_producer_id_fails_all_records_with_what_to_do() -> None:
    world = PlayedWorld((1, 2))
    world.brokers.producer_ids = [InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)] * 2
    futures = [world.append(0), world.append(1)]
    world.run_until(futures[1].done)
    for future in futures:
        with pytest.raises(ApiError) as caught:
            future.result(0)
        assert caught.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert "grant WRITE on the topic" in str(caught.value)
        assert "set enable.idempotence=false" in str(caught.value)
    assert world.memory_in_use == 0
    failed_at: list[int] = []
    late = world.append(0, callback=lambda delivery: failed_at.append(world.now))
    started = world.now
    world.run_until(late.done)
    assert failed_at == [started + world.config.retry_backoff_ms], "a later record makes it ask again, no more"
    with pytest.raises(ApiError, match="grant WRITE on the topic"):
        late.result(0)


@with_each("are_asked", [False, True])
def test_brokers_too_old_for_idempotence_fail_all_records(are_asked: bool) -> None:
    world = PlayedWorld()
    if are_asked:
        world.brokers.producer_ids = [InitProducerIdResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)]
    else:
        world.brokers.ranges = {ApiKey.INIT_PRODUCER_ID: (90, 91)}
    future = world.append()
    world.run_until(future.done)
    with pytest.raises(UnsupportedVersionError, match=r"0\.11 or newer.*enable\.idempotence=false"):
        future.result(0)
    assert world.transactions is not None and world.transactions.state is State.FATAL_ERROR


def test_without_idempotence_no_producer_id_is_asked_for() -> None:
    world = plain()
    world.under_way()
    header = world.brokers.sent_batches()[0].header
    assert (header.producer_id, header.base_sequence) == (-1, -1)
    assert world.brokers.producer_ids_given == 0


# --- the end ---------------------------------------------------------------------------------------------------------


def test_close_sends_what_is_queued_and_waits_for_the_answers() -> None:
    world = PlayedWorld((1, 2), linger_ms=60_000, delivery_timeout_ms=120_000)
    world.brokers.acknowledge_everything()
    futures = [world.append(partition) for partition in (0, 1)]
    started = world.now
    world.close()
    assert [future.result(0).offset for future in futures] == [100, 100]
    assert world.now < started + 5000, "it does not linger"
    assert world.network.is_closed
    with pytest.raises(KafkaError, match="closed"):
        world.append()


def test_close_waits_for_an_append_that_was_let_in_before() -> None:
    world = settled()
    world.brokers.acknowledge_everything()
    straggler = Straggler(world.accumulator, world.clock, b"late")
    world.sender.initiate_close()
    futures: list[Any] = []
    world.clock.actions.append(lambda: futures.append(straggler.end()))
    world.sender.run()
    assert futures[0].result(0).offset == 100


def test_close_ends_although_a_broker_never_answers() -> None:
    world = settled(delivery_timeout_ms=5000, request_timeout_ms=2000)
    created = world.now
    ended: list[int] = []
    future = world.append(callback=lambda delivery: ended.append(world.now - created))
    world.close()
    with pytest.raises(KafkaTimeoutError, match="expiring 1 record"):
        future.result(0)
    assert ended == [5000]


def test_forced_close_fails_queued_and_in_flight_at_once() -> None:
    world = settled((1, 2))
    told: list[Delivery] = []
    sent = world.under_way(0, callback=told.append)
    unsent = world.append(1, callback=told.append)
    world.sender.force_close()
    started = world.now
    world.sender.run()
    for future, text in (sent, "acknowledged; it was sent, and may be stored"), (unsent, "sent"):
        with pytest.raises(KafkaError, match=f"the producer was closed before this record was {text}$"):
            future.result(0)
    assert len(told) == 2
    assert world.figure("record-error-total") == 2
    assert world.now == started
    assert world.network.is_closed


@pytest.mark.behaviour(
    "KafkaProducer",
    "A forced close counts what it gives up, and tells what may have been stored from what was never sent",
)
def test_forced_close_counts_unsent_and_maybe_stored_records(caplog: pytest.LogCaptureFixture) -> None:
    world = settled()
    sent = world.under_way(0)
    unsent = world.append(1)
    world.append(1)
    world.sender.end_with_program()
    world.sender.run()
    with pytest.raises(KafkaError, match=r"the program exited .* acknowledged; it was sent, and may be stored"):
        sent.result(0)
    with pytest.raises(KafkaError, match=r"the program exited .* before this record was sent$"):
        unsent.result(0)
    (warning,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    said = f"never sent: 2 record(s) for {tp(1)} (2); sent, and possibly stored: 1 record(s) for {tp(0)} (1)"
    assert said in warning


def test_a_close_that_is_forced_half_way_ends() -> None:
    world = settled()
    future = world.append()
    world.brokers.on_produce = lambda node, request: world.sender.force_close()
    world.close()
    with pytest.raises(KafkaError, match="closed before"):
        future.result(0)


def test_dead_sender_fails_what_is_left_and_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    world = settled()
    future = world.append()

    def die() -> None:
        raise SystemExit

    monkeypatch.setattr(world.sender, "run_once", die)
    with pytest.raises(SystemExit):
        world.sender.run()
    assert future.done()
    assert not world.sender.is_running
    with pytest.raises(KafkaError, match="closed"):
        world.append()


def test_closing_wakes_the_sender() -> None:
    world = settled()
    world.network.woken = False
    world.sender.initiate_close()
    assert world.network.woken


@pytest.mark.parametrize("in_flight", [1, 5])
def test_a_request_that_cannot_be_sent_fails_its_records_alone(monkeypatch: pytest.MonkeyPatch, in_flight: int) -> None:
    world = settled((1, 2), max_in_flight_requests_per_connection=in_flight)
    futures = [world.append(partition) for partition in (0, 1)]
    send = world.client.send

    def fail_for_one(request: Any, now_ms: int) -> None:
        if request.destination == "1":
            raise RuntimeError("not ready")
        send(request, now_ms)

    monkeypatch.setattr(world.client, "send", fail_for_one)
    world.step()
    monkeypatch.undo()
    with pytest.raises(KafkaError, match=r"1 record\(s\) for orders-0 not sent"):
        futures[0].result(0)
    assert not futures[1].done()
    after = world.append(0)
    world.brokers.acknowledge_everything()
    world.run_until(after.done)
    world.brokers.answer(2)
    world.run_until(lambda: not world.accumulator.has_incomplete)
    assert world.memory_in_use == 0


def test_raising_callback_does_not_stop_answers_of_others(caplog: pytest.LogCaptureFixture) -> None:
    world = settled((1, 1))

    def fail(delivery: Delivery) -> None:
        raise RuntimeError("mine")

    world.append(0, callback=fail)
    other = world.under_way(1)
    world.brokers.answer()
    world.step()
    assert other.result(0).offset == 100
    assert world.memory_in_use == 0


def test_a_waiting_thread_wakes_a_sender_that_is_asleep() -> None:
    world = settled(batch_size=1000, buffer_memory=1000, linger_ms=LONG_MS)
    world.brokers.acknowledge_everything()
    world.append(value=b"x" * 500)
    world.step(2)
    assert not world.brokers.requests()
    started = world.now

    def sender_wakes_up() -> None:
        assert world.network.woken
        world.run_until(lambda: world.memory_in_use == 0)

    world.clock.actions.append(sender_wakes_up)
    assert world.append(value=b"y" * 500) is not None
    assert world.now == started, "sent at once because somebody waits, not when its linger was over"


def test_figures_are_kept() -> None:
    world = settled()
    before = world.metrics.snapshot(world.now)
    world.under_way(value=b"x" * 1000)
    world.brokers.answer()
    world.run_until(lambda: not world.accumulator.has_incomplete)
    after = world.metrics.snapshot(world.now)
    assert after["record-send-total"] - before["record-send-total"] == 1
    assert after["batch-total"] - before["batch-total"] == 1
    assert after["records-per-request-avg"] == 1
    assert after["batch-byte-total"] - before["batch-byte-total"] > 1000
    assert after["record-error-total"] == after["record-retry-total"] == 0
