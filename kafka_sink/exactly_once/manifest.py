"""The list of a batch's transactions as text: 6 to 18 characters each, short enough for the metadata of an offset.

Pure functions. The random part of a process is written once for all of its transactions; numbers and producer ids are
written as differences from the previous transaction.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from itertools import groupby

from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.exactly_once.model import Transaction
from kafka_sink.exactly_once.names import PROCESS_BYTES, split_writer_id, writer_id
from kafka_sink.records.varint import encode_varint, read_varlong


def encode_transactions(sink: str, transactions: Iterable[Transaction]) -> str:
    """Encode *transactions*, all of the sink's writers, as Base64 text."""
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
    return base64.b64encode(out).decode("ascii")


def decode_transactions(sink: str, text: str) -> tuple[Transaction, ...]:
    """Decode the text of :func:`encode_transactions`; the transactions are sorted by process and number.

    :raises ValueError: if the text was not made by :func:`encode_transactions`.
    """
    try:
        data = base64.b64decode(text, validate=True)
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
