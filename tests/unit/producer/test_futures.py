"""The future that a caller holds until the broker has responded."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback

import pytest

from kafka_sink.common.errors import KafkaTimeoutError, RecordTooLargeError
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, RecordMetadata, TopicPartition
from kafka_sink.producer.futures import (
    ColumnsFuture,
    Delivery,
    FailedFuture,
    FutureRecordMetadata,
    ProduceRequestResult,
)
from tests.fakes.clock import FakeClock

TP = TopicPartition("orders", 3)


def make_future(result: ProduceRequestResult, relative_offset: int = 2) -> FutureRecordMetadata:
    return FutureRecordMetadata(result, relative_offset, 5000, -1, 7)


def finish(result: ProduceRequestResult, base_offset: int = 40, log_time: int = NO_TIMESTAMP) -> None:
    result.set(base_offset, log_time, None)
    result.done()


@pytest.mark.behaviour("ProducerBatch", "The offset of a record is that of the batch plus its own")
def test_the_offset_is_the_batchs_plus_the_records_own() -> None:
    clock = FakeClock()
    result = ProduceRequestResult(TP, clock)
    future = make_future(result)
    assert not future.done()
    finish(result)
    assert future.done()
    assert future.result(0) == RecordMetadata("orders", 3, 42, 5000, -1, 7)


def test_the_brokers_timestamp_wins_over_the_records() -> None:
    clock = FakeClock()
    result = ProduceRequestResult(TP, clock)
    finish(result, log_time=6000)
    assert make_future(result).result().timestamp == 6000


def test_an_offset_the_broker_did_not_tell_stays_unknown() -> None:
    clock = FakeClock()
    result = ProduceRequestResult(TP, clock)
    finish(result, base_offset=NO_OFFSET)
    assert make_future(result).result().offset == NO_OFFSET


def test_future_timeout_error_says_how_long_it_waited() -> None:
    clock = FakeClock()
    future = make_future(ProduceRequestResult(TP, clock))
    with pytest.raises(KafkaTimeoutError, match="no answer for orders-3 after waiting for 250 ms"):
        future.result(0.25)
    assert clock.waits == [250]


def test_get_is_released_by_another_thread() -> None:
    clock = FakeClock(shared=True)
    result = ProduceRequestResult(TP, clock)
    future = FutureRecordMetadata(result, 0, 5000, -1, 7)
    got: list[RecordMetadata] = []
    thread = threading.Thread(target=lambda: got.append(future.result()), daemon=True)
    thread.start()
    clock.until_somebody_waits()
    finish(result)
    thread.join(60)
    assert [metadata.offset for metadata in got] == [40]


def test_result_done_before_it_is_set_raises() -> None:
    with pytest.raises(RuntimeError, match="set"):
        ProduceRequestResult(TP, FakeClock()).done()


def test_batch_error_is_raised_per_record_without_growing() -> None:
    clock = FakeClock()
    result = ProduceRequestResult(TP, clock)
    error = RecordTooLargeError("too large")
    result.set(NO_OFFSET, NO_TIMESTAMP, error)
    result.done()
    depths = []
    for relative in range(3):
        with pytest.raises(RecordTooLargeError) as caught:
            make_future(result, relative).result()
        assert caught.value is error
        depths.append(len(traceback.extract_tb(error.__traceback__)))
    assert depths[0] == depths[1] == depths[2]


def test_a_failed_future_is_done_and_always_raises() -> None:
    error = RecordTooLargeError("too large")
    future = FailedFuture(error)
    assert future.done()
    for _ in range(2):
        with pytest.raises(RecordTooLargeError) as caught:
            future.result(0)
        assert caught.value is error


@pytest.mark.behaviour("KafkaProducer", "A future has the methods of concurrent.futures, and can be awaited")
def test_exception_and_done_callbacks_of_a_future() -> None:
    result = ProduceRequestResult(TP, FakeClock())
    future, told = make_future(result), list[object]()
    with pytest.raises(KafkaTimeoutError, match="after waiting for 10 ms"):
        future.exception(0.01)
    future.add_done_callback(told.append)
    future.add_done_callback(lambda _: sys.exit("of a user"))
    assert told == []
    result.set(NO_OFFSET, NO_TIMESTAMP, None, {2: RecordTooLargeError("too large")})
    result.done()
    assert told == [future]
    assert isinstance(future.exception(), RecordTooLargeError)
    assert make_future(result, 0).exception() is None
    future.add_done_callback(told.append)
    future.add_done_callback(lambda _: 1 / 0)
    assert told == [future, future]


def test_a_callback_waits_for_the_piece_of_its_record() -> None:
    clock = FakeClock()
    whole, head, tail = (ProduceRequestResult(TP, clock) for _ in range(3))
    first, last, told = make_future(whole, 0), make_future(whole, 2), list[object]()
    for future in (first, last):
        future.add_done_callback(told.append)
    whole.split(1, head, tail)
    assert told == []
    finish(tail)
    assert told == [last]
    finish(head)
    assert told == [last, first]


def test_the_future_of_rows_tells_when_all_have_ended() -> None:
    told: list[object] = []
    future = ColumnsFuture("orders", 3, FakeClock(), None)
    future.add_done_callback(told.append)
    future.delivered(Delivery(TP, 0, 1, 1, NO_TIMESTAMP, None))
    assert not told and not future.done()
    future.delivered(Delivery(TP, NO_OFFSET, 1, 1, NO_TIMESTAMP, RecordTooLargeError("too large")))
    future.ends_with(2)
    assert told == [future] and isinstance(future.exception(), RecordTooLargeError)
    assert ColumnsFuture("orders", 0, FakeClock(), None).result(0) == ()


def test_futures_are_awaited() -> None:
    result = ProduceRequestResult(TP, FakeClock())

    async def outcomes() -> list[object]:
        futures = [make_future(result, relative) for relative in range(2)]
        asyncio.get_running_loop().call_soon(finish, result)
        with pytest.raises(RecordTooLargeError):
            await FailedFuture(RecordTooLargeError("too large"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(make_future(ProduceRequestResult(TP, FakeClock())), 0)
        return [stored.offset for stored in await asyncio.gather(*futures)]

    assert asyncio.run(outcomes()) == [40, 41]
