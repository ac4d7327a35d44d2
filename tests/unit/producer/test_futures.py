"""What a caller holds until the broker has answered."""

from __future__ import annotations

import threading
import traceback

import pytest

from kafka_sink.common.errors import KafkaTimeoutError, RecordTooLargeError
from kafka_sink.common.model import NO_OFFSET, NO_TIMESTAMP, RecordMetadata, TopicPartition
from kafka_sink.producer.futures import FailedFuture, FutureRecordMetadata, ProduceRequestResult
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
    assert future.get(0) == RecordMetadata("orders", 3, 42, 5000, -1, 7)


def test_the_brokers_timestamp_wins_over_the_records() -> None:
    clock = FakeClock()
    result = ProduceRequestResult(TP, clock)
    finish(result, log_time=6000)
    assert make_future(result).get().timestamp == 6000


def test_an_offset_the_broker_did_not_tell_stays_unknown() -> None:
    clock = FakeClock()
    result = ProduceRequestResult(TP, clock)
    finish(result, base_offset=NO_OFFSET)
    assert make_future(result).get().offset == NO_OFFSET


def test_future_timeout_error_says_how_long_it_waited() -> None:
    clock = FakeClock()
    future = make_future(ProduceRequestResult(TP, clock))
    with pytest.raises(KafkaTimeoutError, match="no answer for orders-3 after waiting for 250 ms"):
        future.get(250)
    assert clock.waits == [250]


def test_get_is_released_by_another_thread() -> None:
    clock = FakeClock(shared=True)
    result = ProduceRequestResult(TP, clock)
    future = FutureRecordMetadata(result, 0, 5000, -1, 7)
    got: list[RecordMetadata] = []
    thread = threading.Thread(target=lambda: got.append(future.get()), daemon=True)
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
            make_future(result, relative).get()
        assert caught.value is error
        depths.append(len(traceback.extract_tb(error.__traceback__)))
    assert depths[0] == depths[1] == depths[2]


def test_a_failed_future_is_done_and_always_raises() -> None:
    error = RecordTooLargeError("too large")
    future = FailedFuture(error)
    assert future.done()
    for _ in range(2):
        with pytest.raises(RecordTooLargeError) as caught:
            future.get(0)
        assert caught.value is error
