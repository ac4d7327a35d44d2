"""Progress that is longer than the metadata of one offset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafka_sink.common.model import OffsetAndMetadata, ProducerIdAndEpoch, TopicPartition, TransactionVersion
from kafka_sink.exactly_once.model import OutdatedProgressError, Progress, ProgressError, UndecidedError
from kafka_sink.exactly_once.progress import ProgressStore, latest_batch
from kafka_sink.exactly_once.transactions import Transaction, writer_id
from tests.fakes.immediate import ImmediateClient, immediate, returned
from tests.support.cases import with_each

DRIVER = Transaction("s/t.driver", 8, 0)


class Offsets(ImmediateClient):
    """The committed offsets of a group, by partition."""

    def __init__(self) -> None:
        self.found: dict[int, OffsetAndMetadata] = {}
        self.asked: list[Sequence[int]] = []

    @immediate
    def commit_offsets(self, *arguments: object) -> OffsetAndMetadata | None:
        *_, offsets, before = arguments
        assert isinstance(offsets, Mapping)
        assert isinstance(before, TopicPartition)
        found = self.found.get(before.partition)
        self.found |= {
            place.partition: offset for place, offset in offsets.items() if isinstance(place, TopicPartition)
        }
        return found

    @immediate
    def fetch_offsets(
        self, group: str, topic: str, partitions: Sequence[int], *, require_stable: bool, waits: bool
    ) -> dict[int, OffsetAndMetadata]:
        self.asked.append(partitions)
        return {partition: offset for partition, offset in self.found.items() if partition in partitions}


def of_version(version: int, count: int = 400) -> Progress:
    # As many processes as transactions, which makes the longest list.
    processes = (number.to_bytes(6, "big") for number in range(count))
    transactions = tuple(Transaction(writer_id("s/t", each, 7), 2**40 + each[-1], version) for each in processes)
    return Progress(version + 1, "query", TransactionVersion.V2, 0, tuple(sorted(transactions)), "", DRIVER.producer)


@pytest.mark.behaviour("Exactly once: parallel", "A thousand tasks fit into the progress of a topic with one partition")
def test_list_that_is_too_long_for_its_topic_is_written_densely() -> None:
    offsets, writers = Offsets(), [writer_id("s/t", bytes([number // 100] * 6), number) for number in range(1_000)]
    store = ProgressStore(offsets, "s", "t")  # type: ignore[arg-type]
    before: Progress | None = None
    for version in (4, 5):
        transactions = tuple(Transaction(each, 4_000 + 130 * n, 900) for n, each in enumerate(writers))
        progress = Progress(version + 1, "query", TransactionVersion.V2, 0, transactions, "", DRIVER.producer)
        returned(store.write(DRIVER, TransactionVersion.V2, progress, 1, before))
        before = returned(store.read())
        assert before == progress
        # With as many partitions as the Base64 text needs.
        returned(store.write(DRIVER, TransactionVersion.V2, progress, 3, before))
        assert offsets.found[0].metadata.isascii()
        assert returned(store.read()) == before
    with pytest.raises(UndecidedError, match=r"needs 2 partitions for 600 transactions .* but topic 't' .* has 1"):
        returned(store.write(DRIVER, TransactionVersion.V2, of_version(6, 600), 1, before))


@pytest.mark.behaviour("Exactly once: parallel", "A list whose parts are of different versions is refused")
def test_a_list_whose_parts_are_of_different_versions_is_refused() -> None:
    offsets = Offsets()
    store = ProgressStore(offsets, "s", "t")  # type: ignore[arg-type]
    returned(store.write(DRIVER, TransactionVersion.V2, of_version(4), 10, None))
    older = dict(offsets.found)
    assert len(older) == 2
    returned(store.write(DRIVER, TransactionVersion.V2, of_version(5), 10, of_version(4)))
    assert returned(store.read()) == of_version(5)
    offsets.found[1] = older[1]
    with pytest.raises(ProgressError, match="not the progress of this sink"):
        returned(store.read())
    del offsets.found[1]
    with pytest.raises(ProgressError, match="not the progress of this sink"):
        returned(store.read())


@with_each(
    ("version", "parts", "decided_s"),
    [
        ("99", "1", "0"),
        ("9" * 5000, "1", "0"),
        ("2", "0", "0"),
        ("2", "-5", "0"),
        ("2", "10001", "0"),
        ("2", str(2**31 - 1), "0"),
        ("2", "9" * 5000, "0"),
        ("2", "1", "253402300800"),
        ("2", "1", "9" * 18),
        ("2", "1", "-" + "9" * 300),
        ("2", "1", "1_0"),
        ("2", "1", "\u0663"),
    ],
)
def test_metadata_with_odd_numbers_are_not_progress(version: str, parts: str, decided_s: str) -> None:
    offsets = Offsets()
    offsets.found[0] = OffsetAndMetadata(7, f"kafkalite2|{version}|{parts}|w|{decided_s}||")
    assert latest_batch(offsets.found[0]) is None
    with pytest.raises(ProgressError, match="not the progress of this sink"):
        returned(ProgressStore(offsets, "s", "t").read())  # type: ignore[arg-type]
    assert [len(partitions) for partitions in offsets.asked] == [16]


def test_progress_of_odd_versions_and_moments_is_refused() -> None:
    last, proof = "kafkalite2|2|1|w|253402300799||", "kafkalite3|2|1|-1|nobody|0||7|3|"
    assert latest_batch(OffsetAndMetadata(7, last)) == Progress(7, "w", TransactionVersion.V2, 253402300799)
    by = ProducerIdAndEpoch(7, 3)
    assert latest_batch(OffsetAndMetadata(0, proof)) == Progress(0, "nobody", TransactionVersion.V2, 0, decider=by)
    for other in (proof.replace("|-1|", "|-2|"), "kafkalite9|2|1|w|0|", last.replace("kafkalite2", "kafkalite")):
        assert latest_batch(OffsetAndMetadata(0, other)) is None


BEFORE = Progress(5, "query", TransactionVersion.V2, 17, (), "a" * 16, ProducerIdAndEpoch(7, 3))
TASKS = (Transaction("s/t.000000000000.9", 1, 1),)
#: The progress of release 1.0.0, which did not name the decider.
OLD = replace(BEFORE, transactions=TASKS, decider=None)
OLD_TEXT = f"kafkalite2|2|1|query|17|{'a' * 16}|AAAAAAAAAhICAg=="


@pytest.mark.behaviour(
    "Exactly once: plan", "A batch is decided only if the progress behind the write is the one that was planned with"
)
@with_each(
    ("before", "latest", "is_same"),
    [
        (None, None, True),
        (BEFORE, None, False),
        (None, BEFORE, False),
        (BEFORE, BEFORE, True),
        # Tasks do not receive the lists, nor does a commit that gets its plan from a task.
        (BEFORE, replace(BEFORE, transactions=TASKS, ends=((TopicPartition("t", 0), 1),)), True),
        (BEFORE, replace(BEFORE, next_version=6), False),
        (BEFORE, replace(BEFORE, writer="another"), False),
        (BEFORE, replace(BEFORE, decided_s=18), False),
        (BEFORE, replace(BEFORE, offsets="b" * 16), False),
        (BEFORE, replace(BEFORE, decider=ProducerIdAndEpoch(7, 4)), False),
        (BEFORE, replace(BEFORE, decider=ProducerIdAndEpoch(8, 3)), False),
        (BEFORE, replace(BEFORE, transaction_version=TransactionVersion.V1), False),
        (OLD, OLD_TEXT, True),
        (replace(OLD, transactions=()), OLD_TEXT, True),
        (replace(OLD, transactions=(replace(TASKS[0], epoch=2),)), OLD_TEXT, False),
        (replace(OLD, transactions=(replace(TASKS[0], epoch=2),)), OLD_TEXT.replace("|2|1|", "|2|2|"), True),
        (replace(OLD, next_version=4), OLD_TEXT, False),
        (replace(OLD, decided_s=18), OLD_TEXT, False),
        (BEFORE, OLD_TEXT, False),
        (OLD, replace(BEFORE, transactions=TASKS), False),
        (BEFORE, "of another program", False),
    ],
)
def test_progress_is_compared_behind_the_write(
    before: Progress | None, latest: Progress | str | None, is_same: bool
) -> None:
    offsets = Offsets()
    store = ProgressStore(offsets, "s", "t")  # type: ignore[arg-type]
    if isinstance(latest, str):
        offsets.found[0] = OffsetAndMetadata(5, latest)
    elif latest is not None:
        decider = Transaction("s/t.driver", *(latest.decider or ()))
        returned(store.write(decider, TransactionVersion.V2, latest, 1, None))
    following = store.write(DRIVER, TransactionVersion.V2, replace(BEFORE, next_version=7), 1, before)
    if is_same:
        returned(following)
        return
    with pytest.raises(OutdatedProgressError) as caught:
        returned(following)
    said = "none" if before is None else f"version {before.version}"
    now = "none" if latest is None else f"version {4 if isinstance(latest, str) else latest.version}"
    assert f"it said {said}, and the latest is {now}" in str(caught.value)
    assert ("was deleted meanwhile" in str(caught.value)) == (latest is None)


@pytest.mark.parametrize(("count", "parts"), [(0, 1), (203, 1), (204, 2), (407, 2), (408, 3)])
def test_no_part_is_longer_than_brokers_allow(count: int, parts: int) -> None:
    offsets = Offsets()
    store = ProgressStore(offsets, "s", "t")  # type: ignore[arg-type]
    returned(store.write(DRIVER, TransactionVersion.V2, of_version(4, count), 10, None))
    lengths = [len(each.metadata) for _, each in sorted(offsets.found.items())]
    assert len(lengths) == parts and max(lengths) <= 4096 and all(each >= 4095 for each in lengths[:-1])
    assert offsets.found[0].metadata.endswith("|") == (count == 0)


@pytest.mark.parametrize(("transactions", "asked"), [(0, [16]), (400, [16]), (10_000, [16, 49])])
def test_of_many_partitions_only_those_with_progress_are_read(transactions: int, asked: list[int]) -> None:
    offsets = Offsets()
    store = ProgressStore(offsets, "s", "t")  # type: ignore[arg-type]
    if not transactions:
        assert returned(store.read()) is None
    else:
        returned(store.write(DRIVER, TransactionVersion.V2, of_version(4, transactions), 100_000, None))
        assert returned(store.read()) == of_version(4, transactions)
    assert [len(partitions) for partitions in offsets.asked] == asked


def test_progress_growing_between_reads_is_read_as_one_version() -> None:
    offsets = Offsets()
    store = ProgressStore(offsets, "s", "t")  # type: ignore[arg-type]
    returned(store.write(DRIVER, TransactionVersion.V2, of_version(4, 5_000), 100_000, None))

    class Meanwhile(Offsets):
        async def fetch_offsets(self, *arguments: Any, **options: Any) -> dict[int, OffsetAndMetadata]:
            found = await super().fetch_offsets(*arguments, **options)
            if len(self.asked) == 1:
                # A newer driver decides between the first and the second read.
                newer = ProgressStore(self, "s", "t")  # type: ignore[arg-type]
                await newer.write(DRIVER, TransactionVersion.V2, of_version(5, 10_000), 100_000, of_version(4, 5_000))
            return found

    meanwhile = Meanwhile()
    meanwhile.found = offsets.found
    assert returned(ProgressStore(meanwhile, "s", "t").read()) == of_version(5, 10_000)  # type: ignore[arg-type]
    assert len(meanwhile.asked) == 3
