"""The list of a batch's transactions as text: 6 to 18 characters each, short enough for the metadata of an offset.

Pure functions. The random part of a process is written once for all of its transactions; numbers and producer ids are
written as differences from the previous transaction. The bytes are written as Base64, or densely: Kafka counts
characters and not bytes (``offset.metadata.max.bytes``), and a Chinese character has 14 bits where Base64 has 6.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from itertools import groupby
from typing import Final

from kafka_sink.columns.varint import encode_varint, read_varlong
from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.exactly_once.model import Transaction
from kafka_sink.exactly_once.names import PROCESS_BYTES, split_writer_id, writer_id

#: The first of 2¹⁴ characters of the block "CJK Unified Ideographs", which are all assigned, are one UTF-16 unit each,
#: and have no other form.
_FIRST_DENSE: Final = 0x4E00
_BITS: Final = 14
#: So many bytes are a whole number of characters.
_GROUP_BYTES: Final = 7
_SHIFTS: Final = (42, 28, 14, 0)


def encode_transactions(sink: str, transactions: Iterable[Transaction], *, dense: bool = False) -> str:
    """Encode *transactions*, all of the sink's writers, as text: Base64, or *dense*, which has 2.3 times less
    characters and cannot be read by releases before it was added."""
    entries = sorted((*split_writer_id(sink, each.transactional_id), each) for each in transactions)
    out = bytearray()
    for process, group in groupby(entries, lambda entry: entry[0]):
        of_process = list(group)
        out += process + encode_varint(len(of_process))
        last_number = last_producer_id = 0
        for _, number, transaction in of_process:
            out += encode_varint(number - last_number)
            out += encode_varint(transaction.producer_id - last_producer_id)
            out += encode_varint(transaction.epoch)
            last_number, last_producer_id = number, transaction.producer_id
    return _dense(bytes(out)) if dense else base64.b64encode(out).decode("ascii")


def _dense(data: bytes) -> str:
    padding = -(len(data) + 1) % _GROUP_BYTES
    padded = bytes([padding]) + data + bytes(padding)
    groups = (
        int.from_bytes(padded[start : start + _GROUP_BYTES], "big") for start in range(0, len(padded), _GROUP_BYTES)
    )
    return "".join(chr(_FIRST_DENSE + (group >> shift) % (1 << _BITS)) for group in groups for shift in _SHIFTS)


def _undense(text: str) -> bytes:
    """The bytes that :func:`_dense` wrote as *text*.

    :raises ValueError: if *text* was not made by it.
    """
    digits = [ord(character) - _FIRST_DENSE for character in text]
    if len(digits) % len(_SHIFTS) or not all(0 <= digit < 1 << _BITS for digit in digits):
        raise ValueError("not a list of transactions: other characters, or a part is missing")
    padded = b"".join(
        sum(digit << shift for digit, shift in zip(digits[start:], _SHIFTS, strict=False)).to_bytes(_GROUP_BYTES, "big")
        for start in range(0, len(digits), len(_SHIFTS))
    )
    return padded[1 : len(padded) - padded[0]]


def decode_transactions(sink: str, text: str) -> tuple[Transaction, ...]:
    """Decode the text of :func:`encode_transactions`; the transactions are sorted by process and number.

    :raises ValueError: if the text was not made by :func:`encode_transactions`.
    """
    try:
        data = base64.b64decode(text, validate=True) if text.isascii() else _undense(text)
        found: list[Transaction] = []
        position = 0
        while position < len(data):
            process = data[position : position + PROCESS_BYTES]
            count, position = read_varlong(data, position + PROCESS_BYTES)
            number = producer_id = 0
            for _ in range(count):
                step, position = read_varlong(data, position)
                id_step, position = read_varlong(data, position)
                epoch, position = read_varlong(data, position)
                number, producer_id = number + step, producer_id + id_step
                found.append(Transaction(writer_id(sink, process, number), producer_id, epoch))
    except (binascii.Error, CorruptRecordError) as error:
        raise ValueError(f"not a list of transactions: {error}") from error
    return tuple(found)
