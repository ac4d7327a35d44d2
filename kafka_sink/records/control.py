"""Control batches: the markers that end a transaction in the log of a partition.

The broker writes them at the end of a transaction and reads them when it opens a log; consumers distinguish aborts from
commits by them. This module only handles bytes and depends neither on logs nor on the state of transactions.

Source: https://kafka.apache.org/documentation/#controlbatch, KIP-98; apache/kafka ``EndTransactionMarker``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from kafka_sink.common.buffers import Buffer
from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.records.batch import parse_header, write_header
from kafka_sink.records.layout import HEADER_BYTES
from kafka_sink.records.reader import read_batches
from kafka_sink.records.reference import write_record

# version, type
_KEY: Final = struct.Struct(">hh")
# version, coordinator epoch
_VALUE: Final = struct.Struct(">hi")
_VERSION: Final = 0
_ABORT: Final = 0
_COMMIT: Final = 1
_RECORD_BYTES_MAX: Final = 1 << 10


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """The outcome of a producer's transaction, and the epoch of the coordinator that decided it."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int


def marker_batch(marker: EndTransactionMarker, timestamp: int) -> bytearray:
    """The control batch of *marker* with *timestamp* (ms since 1970); its offset is 0 until it is appended to a log."""
    record = bytearray()
    key = _KEY.pack(_VERSION, _COMMIT if marker.committed else _ABORT)
    write_record(record, 0, 0, key, _VALUE.pack(_VERSION, marker.coordinator_epoch), ())
    header = bytearray(HEADER_BYTES)
    write_header(
        header,
        [record],
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        record_count=1,
        is_transactional=True,
        is_control=True,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
    )
    return header + record


def read_marker(batch: Buffer) -> EndTransactionMarker | None:
    """The marker in a control batch; None for control records of other types, which do not affect transactions.

    :raises CorruptRecordError: if *batch* is not a complete control batch.
    """
    header = parse_header(batch)
    for view in read_batches(batch):
        record = next(iter([*view.records(_RECORD_BYTES_MAX)]), None)
        if record is None or record.key is None or record.value is None or len(record.key) < _KEY.size:
            break
        _, kind = _KEY.unpack_from(record.key)
        if kind not in (_ABORT, _COMMIT):
            return None
        if len(record.value) < _VALUE.size:
            break
        _, coordinator_epoch = _VALUE.unpack_from(record.value)
        return EndTransactionMarker(header.producer_id, header.producer_epoch, kind == _COMMIT, coordinator_epoch)
    raise CorruptRecordError(f"the control batch at offset {header.base_offset} contains no marker")
