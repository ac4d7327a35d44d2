"""The transactional methods of KafkaProducer: refused calls, and timeouts."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka_sink import KafkaProducer, ProducerRecord
from kafka_sink.common.errors import KafkaError, KafkaTimeoutError, TransactionStateError
from kafka_sink.common.model import TopicPartition
from tests.support.parts import producer_with_parts

CALLS: dict[str, Callable[[KafkaProducer], Any]] = {
    "init_transactions": lambda producer: producer.init_transactions(),
    "begin_transaction": lambda producer: producer.begin_transaction(),
    "commit_transaction": lambda producer: producer.commit_transaction(),
    "abort_transaction": lambda producer: producer.abort_transaction(),
    "send_offsets_to_transaction": lambda producer: producer.send_offsets_to_transaction(
        {TopicPartition("orders", 0): 1}, "readers"
    ),
}


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address on which no server ever listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.mark.parametrize("name", CALLS)
def test_transactions_need_a_transactional_id(name: str, nobody: str) -> None:
    with (
        KafkaProducer({"bootstrap.servers": nobody}) as producer,
        pytest.raises(TransactionStateError, match=rf"{name} needs a producer with a transactional\.id"),
    ):
        CALLS[name](producer)


@pytest.mark.parametrize("name", [name for name in CALLS if name != "init_transactions"])
def test_the_initialization_comes_first(name: str, nobody: str) -> None:
    with (
        KafkaProducer({"bootstrap.servers": nobody, "transactional.id": "a"}) as producer,
        pytest.raises(TransactionStateError),
    ):
        CALLS[name](producer)


def test_nothing_is_staged_outside_a_transaction(nobody: str) -> None:
    producer, pipeline = producer_with_parts({"bootstrap.servers": nobody, "transactional.id": "a"})
    with producer:
        with pytest.raises(TransactionStateError, match="call init_transactions once"):
            producer.send(ProducerRecord("orders", b"v"))
        assert not pipeline.accumulator.has_incomplete


def test_init_timeout_names_unreachable_broker_and_is_repeatable(nobody: str) -> None:
    producer = KafkaProducer({"bootstrap.servers": nobody, "transactional.id": "a", "reconnect.backoff.ms": 1})
    with producer:
        with pytest.raises(KafkaTimeoutError, match=rf"init_transactions.*call it again; unreachable: {nobody}"):
            producer.init_transactions(timeout=0.3)
        with pytest.raises(TransactionStateError, match="init_transactions timed out"):
            producer.begin_transaction()
        with pytest.raises(KafkaTimeoutError):
            producer.init_transactions(timeout=0.001)


@pytest.mark.behaviour("Transactions", "Offsets and groups are checked before they are sent")
@pytest.mark.parametrize(
    ("offsets", "group", "text"),
    [
        ({TopicPartition("orders", 0): -1}, "readers", "got -1 of orders-0"),
        ({TopicPartition("orders", 0): 1 << 63}, "readers", "got 9223372036854775808 of orders-0"),
        ({TopicPartition("orders", 0): math.nan}, "readers", "got nan of orders-0"),
        ({TopicPartition("orders", 0): 1}, None, "got a NoneType"),
        ({TopicPartition("orders", 0): 1}, object(), "got a object"),
    ],
)
def test_offsets_of_a_transaction_are_checked(offsets: Any, group: Any, text: str, nobody: str) -> None:
    with (
        KafkaProducer({"bootstrap.servers": nobody, "transactional.id": "a"}) as producer,
        pytest.raises(ValueError, match=text),
    ):
        producer.send_offsets_to_transaction(offsets, group)


def test_a_closed_producer_has_no_transactions(nobody: str) -> None:
    producer = KafkaProducer({"bootstrap.servers": nobody, "transactional.id": "a"})
    producer.close()
    with pytest.raises(KafkaError, match="closed"):
        producer.init_transactions()


def test_a_client_is_named_after_its_transactional_id(nobody: str) -> None:
    with KafkaProducer({"bootstrap.servers": nobody, "transactional.id": "orders-writer"}) as producer:
        assert producer.client_id == "producer-orders-writer"
