"""Progress that is longer than one offset's metadata."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kafka_sink.common.model import OffsetAndMetadata, TopicPartition
from kafka_sink.exactly_once.model import Flow, Progress, ProgressError, Transaction
from kafka_sink.exactly_once.names import writer_id
from kafka_sink.exactly_once.progress import ProgressStore

DRIVER = Transaction("s/t.driver", 8, 0)


class Offsets:
    """What a group has committed, by partition."""

    def __init__(self) -> None:
        self.found: dict[int, OffsetAndMetadata] = {}

    def commit_offsets(self, *arguments: object) -> None:
        offsets = arguments[-1]
        assert isinstance(offsets, Mapping)
        self.found |= {
            place.partition: offset for place, offset in offsets.items() if isinstance(place, TopicPartition)
        }

    def fetch_offsets(self, *_: object, require_stable: bool) -> dict[int, OffsetAndMetadata]:
        return self.found


def of_version(version: int) -> Progress:
    # Of as many processes as transactions: that makes the longest list.
    processes = (number.to_bytes(6, "big") for number in range(400))
    transactions = tuple(Transaction(writer_id("s/t", each, 7), 2**40 + each[-1], version) for each in processes)
    return Progress(version + 1, "query", Flow.V2, 0, tuple(sorted(transactions)))


def test_a_list_whose_parts_are_of_different_versions_is_refused() -> None:
    offsets = Offsets()
    store = ProgressStore(offsets, "s", "t", 10)  # type: ignore[arg-type]
    store.write(DRIVER, Flow.V2, of_version(4))
    older = dict(offsets.found)
    assert len(older) == 2
    store.write(DRIVER, Flow.V2, of_version(5))
    assert store.read() == of_version(5)
    offsets.found[1] = older[1]
    with pytest.raises(ProgressError, match="no progress of this sink"):
        store.read()
    del offsets.found[1]
    with pytest.raises(ProgressError, match="no progress of this sink"):
        store.read()
