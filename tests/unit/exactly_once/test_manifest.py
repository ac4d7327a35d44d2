"""Lists of transactions as text, and the names of ids."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.columns.varint import encode_varint
from kafka_sink.common.model import TopicPartition, TransactionVersion
from kafka_sink.exactly_once.model import Progress
from kafka_sink.exactly_once.progress import decode_lists, encode_lists
from kafka_sink.exactly_once.transactions import Transaction, driver_id, is_writer_id, sink_id, sink_of_id, writer_id
from tests.support.cases import with_each

SINK = "orders.eu-sink"
TRANSACTIONS = st.builds(
    lambda process, number, producer_id, epoch: Transaction(writer_id(SINK, process, number), producer_id, epoch),
    st.binary(min_size=6, max_size=6),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
)


ENDS = st.dictionaries(
    st.builds(
        TopicPartition, st.text(st.characters(codec="ascii"), min_size=1, max_size=49), st.integers(0, 2**31 - 1)
    ),
    st.integers(0, 2**63 - 1),
    max_size=30,
)


def encoded(
    transactions: Iterable[Transaction], ends: Mapping[TopicPartition, int] | None = None, *, dense: bool = False
) -> str:
    listed = tuple(transactions), "", None, tuple(sorted((ends or {}).items()))
    return encode_lists(Progress(1, "query", TransactionVersion.V2, 0, *listed), SINK, dense=dense)


@pytest.mark.behaviour("Exactly once: parallel", "A manifest is read as it was written")
@given(st.lists(TRANSACTIONS, unique_by=lambda each: each.transactional_id, max_size=30), ENDS, st.booleans())
def test_encoded_lists_decode_to_the_same(
    transactions: list[Transaction], ends: dict[TopicPartition, int], dense: bool
) -> None:
    text = encoded(transactions, ends, dense=dense)
    lists = decode_lists(SINK, text)
    assert (set(lists.transactions), dict(lists.ends)) == (set(transactions), ends)
    # Kafka counts UTF-16 code units.
    assert len(text.encode("utf-16-le")) == 2 * len(text)


def test_dense_list_has_less_than_half_the_characters() -> None:
    transactions = [Transaction(writer_id(SINK, bytes(6), number), 7 * number, 300) for number in range(500)]
    assert len(encoded(transactions, dense=True)) < 0.44 * len(encoded(transactions))


def test_two_hundred_transactions_fit_into_offset_metadata() -> None:
    transactions = [
        Transaction(writer_id(SINK, bytes([process] * 6), number), 4000 + 2 * number + process, 12)
        for process in range(2)
        for number in range(100)
    ]
    assert len(encoded(transactions)) < 1100


@with_each(
    "odd",
    [
        (-1,),
        (1,),
        (2**62,),
        (0, 1),
        (0, 1, 9, 1, 0),
        (0, -1),
        (0, 1, 9, -1),
        (0, 1, 9, 1, -1, 1),
        (0, 1, 9, 1, 0, -1),
        (0, 1, 9, 2, 2**31 - 1, 0, 1, 0),
    ],
)
def test_malformed_list_of_ends_is_an_error(odd: tuple[int, ...]) -> None:
    """The number of processes; for a topic its length, its name, the number of partitions, a step and an end."""
    data = b"".join(bytes([each]) if at == 2 else encode_varint(each) for at, each in enumerate(odd))
    with pytest.raises(ValueError, match="not a list of transactions"):
        decode_lists(SINK, base64.b64encode(data).decode())


#: The shortest lists, and their texts, which later releases must be able to read.
SHORT: Final = tuple(Transaction(writer_id(SINK, b"\x01" * 6, number), 7, 0) for number in range(5))
SHORT_ENDS: Final = {TopicPartition("t", partition): 3 for partition in range(5)}
TEXTS: Final = {
    False: "AgEBAQEBAQoADgACAAACAAACAAACAAACdAoABgIGAgYCBgIG",
    True: "佀渐刄企乂渀蘀倀一渀丈一亀一埐堀侀湠嘘倆亁渀一一",
}


def test_lists_keep_their_texts() -> None:
    for dense, text in TEXTS.items():
        assert encoded(SHORT, SHORT_ENDS, dense=dense) == text
        lists = decode_lists(SINK, text)
        assert (lists.transactions, dict(lists.ends)) == (SHORT, SHORT_ENDS)
    assert decode_lists(SINK, encoded(SHORT)) == (SHORT, ())
    with pytest.raises(ValueError, match="not a list of transactions"):
        decode_lists(SINK, TEXTS[False][:8] + "!" + TEXTS[False][8:])


def test_list_with_more_entries_than_bytes_is_refused_at_once() -> None:
    transactions = bytes(6) + b"".join(map(encode_varint, (2, 1, 1, 1)))
    ends = b"\0" + encode_varint(1) + b"t" + b"".join(map(encode_varint, (2, 0, 1)))
    for data, with_ends in ((transactions, False), (ends, True)):
        with pytest.raises(ValueError, match="number 2 is not between 1 and 1"):
            decode_lists(SINK, base64.b64encode(data).decode(), with_ends=with_ends)


def test_dense_list_without_its_end_is_an_error() -> None:
    text = encoded(SHORT, dense=True)
    assert text.endswith("\u4e00")
    with pytest.raises(ValueError, match="a part is missing"):
        decode_lists(SINK, text[:-1])


def _odd_lists() -> list[str]:
    """Lists with numbers out of range: the count, the number, the producer id and the epoch."""
    odd = [(-1, 1, 1, 1), (0, 1, 1, 1), (2**62, 1, 1, 1), (1, -1, 1, 1), (1, 1, -1, 1), (1, 1, 1, -1), (1, 1, 1, 2**15)]
    lists = [bytes(6) + b"".join(map(encode_varint, each)) for each in odd]
    too_high = ((2, 1, 2**63 - 1, 1, 1, 1, 1), (2, 2**63 - 1, 1, 1, 1, 1, 1))
    lists += [bytes(6) + b"".join(map(encode_varint, each)) for each in too_high]
    return [base64.b64encode(each).decode() for each in lists]


@with_each(
    "text",
    [
        "no base64!",
        "AAAA",
        "AQEBAQEBgA==",
        "\u4e00",
        "\u4e00\u4e00\u4e00a",
        "\u8e00" * 4,
        *_odd_lists(),
    ],
)
def test_malformed_transaction_list_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="not a list of transactions"):
        decode_lists(SINK, text, with_ends=False)


@pytest.mark.behaviour("Exactly once: parallel", "A sink never takes the ids of another for its own")
def test_sink_does_not_take_ids_of_another_sink_for_its_own() -> None:
    mine = writer_id("orders", b"\x01" * 6, 12)
    assert is_writer_id("orders", mine)
    for other in (
        writer_id("orders.eu", b"\x01" * 6, 12),
        writer_id("orders2", b"\x01" * 6, 12),
        driver_id("orders"),
        mine + "x",
    ):
        assert not is_writer_id("orders", other)


@pytest.mark.behaviour("Exactly once: neighbours", "A transactional id tells whose it is")
def test_transactional_id_tells_its_sink_and_topic() -> None:
    for name, topic in (("orders", "orders.eu"), ("a/b.driver", "t"), ("many\nlines", "t.driver")):
        sink = sink_id(name, topic)
        assert sink_of_id(driver_id(sink)) == (name, topic)
        assert sink_of_id(writer_id(sink, b"\x01" * 6, 12)) == (name, topic)
    for other in ("orders", "orders.driver", "a/b", "a/t.0011.4", "/t.driver"):
        assert sink_of_id(other) is None
