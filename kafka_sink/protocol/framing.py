"""Framing: delimits the messages on a connection.

The network layer calls this on its own threads for every send; it is the only part of the protocol package that the
network layer may use. It must not copy a message's bytes or read them.

Source: Kafka protocol guide, "Protocol": a frame is a 4-byte big-endian length, then that many bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from kafka_sink.common.buffers import Buffer, total_size

_SIZE: Final = Struct(">i")

#: Size of the length that precedes every message, in bytes.
SIZE_BYTES: Final = _SIZE.size


def frame(segments: Sequence[Buffer]) -> list[Buffer]:
    """The *segments* of one message, preceded by their total length.

    :raises ValueError: if the message exceeds the maximum frame size (2 GiB).
    """
    size = total_size(segments)
    if size > 0x7FFF_FFFF:
        raise ValueError(f"a message of {size} bytes is too large for a frame")
    return [_SIZE.pack(size), *segments]
