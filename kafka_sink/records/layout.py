"""The layout of a record batch (magic 2) in memory.

All modules that write, read or patch batches import it, on any thread. It contains constants only and no behaviour; no
other module may use an offset or an attribute bit as a bare number.

Source: https://kafka.apache.org/documentation/#recordbatch, KIP-98.
"""

from __future__ import annotations

import struct
from typing import Final

MAGIC: Final = 2

#: base_offset, batch_length, partition_leader_epoch, magic, crc, attributes, last_offset_delta, base_timestamp,
#: max_timestamp, producer_id, producer_epoch, base_sequence, record_count
HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = 61
#: base_offset and batch_length: the bytes that are needed to know the length of a batch.
LOG_OVERHEAD_BYTES: Final = 12
SIZE_PREFIX: Final = struct.Struct(">qi")

BASE_OFFSET_AT: Final = 0
MAGIC_AT: Final = 16
CRC_AT: Final = 17
#: The CRC-32C covers everything from the attributes to the end of the batch.
ATTRIBUTES_AT: Final = 21
MAX_TIMESTAMP_AT: Final = 35

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
UINT32: Final = struct.Struct(">I")
INT64: Final = struct.Struct(">q")

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
#: The base timestamp is the time from which a compaction may remove tombstones and the marker (KIP-534).
DELETE_HORIZON_BIT: Final = 0x40

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_PARTITION_LEADER_EPOCH: Final = -1

#: Kafka's upper bound of a record's size without key, value and headers: length (5), attributes (1), timestamp delta
#: (10), offset delta (5).
MAX_RECORD_OVERHEAD_BYTES: Final = 21
