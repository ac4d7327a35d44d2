"""ProducerRecord: what a caller hands to :meth:`KafkaProducer.send`.

Made by callers and by interceptors on the calling thread, read by the producer there. It is a plain immutable value and
must never know how it is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kafka_sink.common.model import Header


class ProducerRecord(NamedTuple):
    """A record to send.

    ``value`` and ``key`` are bytes or None, or what the producer's serializers turn into that; ``timestamp`` in ms
    since the epoch, None for now; without ``partition`` the partitioner chooses. ``record._replace(…)`` makes a changed
    copy.
    """

    topic: str
    value: Any
    key: Any = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Sequence[Header] = ()
