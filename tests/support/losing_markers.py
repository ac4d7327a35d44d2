"""An embedded broker that loses the ends of transactions, as Apache Kafka does in partitions without a leader
(KAFKA-20734): the coordinator takes them for written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kafka_sink.broker.coordinator.transaction_markers import OFFSETS_TOPIC, TransactionMarkers
from kafka_sink.broker.coordinator.transaction_state import TransactionMetadata
from kafka_sink.common.model import TopicPartition


@contextmanager
def lost_ends(*, offsets: bool = True, rows: bool = True) -> Iterator[None]:
    """Within, the ends of all transactions are lost, in the groups' *offsets* and in the partitions with *rows*."""
    with pytest.MonkeyPatch.context() as patch:

        def lose_rows(_: TransactionMarkers, metadata: TransactionMetadata) -> frozenset[TopicPartition]:
            return frozenset(each for each in metadata.partitions if each.topic != OFFSETS_TOPIC)

        def lose_offsets(_: TransactionMarkers, metadata: TransactionMetadata) -> frozenset[TopicPartition]:
            return frozenset(each for each in metadata.partitions if each.topic == OFFSETS_TOPIC)

        if rows:
            patch.setattr(TransactionMarkers, "write", lose_rows)
        if offsets:
            patch.setattr(TransactionMarkers, "end_offsets", lose_offsets)
        yield
