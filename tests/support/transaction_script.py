"""A list of raw requests about transactions, by whose responses two brokers are compared.

Each section is a function that sends requests; the responses are collected in order, with placeholders for values that
differ between any two runs (producer ids, times, names).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final
from uuid import UUID

from kafka_sink.common.errors import ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.schema import Struct
from kafka_sink.records.layout import HEADER_BYTES
from kafka_sink.records.reader import read_batches
from tests.fakes.record_batches import make_batch
from tests.support.wire import Wire

#: Retriable: the previous transaction is being completed, or the coordinator is unknown.
_NOT_YET: Final = frozenset({3, 6, 14, 15, 16, 19, 51})
_PATIENCE_S: Final = 90.0
_TIMEOUT_MS: Final = 60_000
_GROUP: Final = "script-group"
#: The time of a response, its texts, and values that a broker may choose.
_LEFT_OUT: Final = frozenset({"throttle_time_ms", "error_message", "log_start_offset", "last_timestamp"})


class Script:
    """Sends requests and records the responses."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        """*topic* has 3 partitions and is empty; its name also makes the transactional ids of this run unique."""
        self._wire = Wire(bootstrap_servers, patience_s=_PATIENCE_S)
        self._topic = topic
        self._run = f"of-{topic}"
        self._producer_ids: dict[int, str] = {}
        self.answers: dict[str, Any] = {}
        self._section = ""

    def run(self, sections: Mapping[str, Callable[[Script], None]]) -> dict[str, Any]:
        try:
            self._wait_for_leaders()
            self._wait_for_producer_ids()
            for name, section in sections.items():
                self._section = name
                section(self)
        finally:
            self._wire.close()
        return self.answers

    def id(self, name: str) -> str:
        return f"{self._run}-{name}"

    # --- asking ------------------------------------------------------------------------------------------------------

    def _ask(self, label: str | None, key: ApiKey, version: int, *values: Any, **named: Any) -> Any:
        answer = self._wire.ask(key, version, *values, **named)
        if label is not None:
            self._write_down(key, label, answer)
        return answer

    def _write_down(self, key: ApiKey, label: str, answer: Any) -> None:
        name = f"{self._section}: {key.name}: {label}"
        assert name not in self.answers, name
        self.answers[name] = self._plain(answer)

    def _plain(self, value: Any, name: str = "") -> Any:
        if isinstance(value, Struct):
            items = {item.name: getattr(value, item.name) for item in fields(value)}
            if items.get("error_code"):
                # The value of the field without a producer id.
                items["producer_id"] = -1
            return {key: self._plain(item, key) for key, item in items.items() if key not in _LEFT_OUT}
        if isinstance(value, list):
            # Brokers list partitions and topics in any order.
            return sorted((self._plain(item, name) for item in value), key=repr)
        if isinstance(value, memoryview):
            return _plain_records(value)
        if name == "producer_id" and value >= 0:
            return self._producer_ids.setdefault(value, f"producer {len(self._producer_ids)}")
        if name in ("transaction_start_time_ms", "log_append_time_ms") and value > 0:
            return "a time"
        if isinstance(value, UUID):
            return str(value)
        if isinstance(value, str):
            return value.replace(self._run, "run").replace(self._topic, "topic")
        return value

    def _settled(self, code: Callable[[Any], int], key: ApiKey, version: int, *values: Any, **named: Any) -> Any:
        """Repeat a request, without recording it, until its response has no retriable error."""
        until = time.monotonic() + _PATIENCE_S
        while code(answer := self._wire.ask(key, version, *values, **named)) in _NOT_YET:
            assert time.monotonic() < until, answer
            time.sleep(0.005)
        return answer

    def _wait_for_leaders(self) -> None:
        for partition in range(3):
            asked = [(self._topic, [partition])]
            self._settled(lambda answer: answer.topics[0].partitions[0].error_code, ApiKey.DESCRIBE_PRODUCERS, 0, asked)

    def _wait_for_producer_ids(self) -> None:
        """Wait until the broker has producer ids, which it may lack after its start."""
        self._settled(lambda answer: answer.error_code, ApiKey.INIT_PRODUCER_ID, 5, None, _TIMEOUT_MS)

    def _find(self, key: str, key_type: int) -> None:
        asked = {"key_type": key_type, "coordinator_keys": [key]}
        self._settled(lambda answer: answer.coordinators[0].error_code, ApiKey.FIND_COORDINATOR, 4, **asked)

    def find_coordinator(self, name: str) -> None:
        self._find(self.id(name), 1)
        asked = [self.id(name)]
        self._settled(lambda answer: answer.transaction_states[0].error_code, ApiKey.DESCRIBE_TRANSACTIONS, 0, asked)

    def find_group_coordinator(self) -> None:
        self._find(_GROUP, 0)
        asked = [{"group_id": _GROUP, "topics": []}]
        self._settled(lambda answer: answer.groups[0].error_code, ApiKey.OFFSET_FETCH, 8, groups=asked)

    def init(
        self,
        label: str | None,
        name: str | None,
        *,
        timeout_ms: int = _TIMEOUT_MS,
        version: int = 5,
        expected: tuple[int, int] = (-1, -1),
        wait: bool = True,
    ) -> tuple[int, int]:
        """Send InitProducerId, with *wait* until the previous transaction is over. Return (producer id, epoch)."""
        transactional_id = self.id(name) if name else name
        if wait and name:
            self.wait_until_complete(name)
        expected = expected if version >= 3 else (-1, -1)
        answer = self._ask(label, ApiKey.INIT_PRODUCER_ID, version, transactional_id, timeout_ms, *expected)
        return answer.producer_id, answer.producer_epoch

    def add(
        self,
        label: str | None,
        name: str,
        producer: tuple[int, int],
        *partitions: int,
        version: int = 3,
        topic: str = "",
    ) -> None:
        """Send AddPartitionsToTxn."""
        topics = [(topic or self._topic, list(partitions))]
        self._ask(label, ApiKey.ADD_PARTITIONS_TO_TXN, version, [], self.id(name), *producer, topics)

    def add_offsets(self, label: str, name: str, producer: tuple[int, int], *, version: int = 4) -> None:
        self._ask(label, ApiKey.ADD_OFFSETS_TO_TXN, version, self.id(name), *producer, _GROUP)

    def commit_offsets(
        self, label: str, name: str, producer: tuple[int, int], *, partition: int = 0, size: int = 4, version: int = 5
    ) -> None:
        topics = [(self._topic, [(partition, 7, -1, "x" * size)])]
        self._ask(label, ApiKey.TXN_OFFSET_COMMIT, version, self.id(name), _GROUP, *producer, topics=topics)

    def produce(
        self,
        label: str | None,
        name: str | None,
        producer: tuple[int, int],
        *,
        sequence: int = 0,
        partition: int = 0,
        version: int = 12,
        transactional: bool = True,
        control: bool = False,
        value: bytes = b"value",
    ) -> None:
        batch = make_batch(
            [value],
            base_timestamp=int(time.time() * 1000),
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            is_transactional=transactional,
            is_control=control,
        )
        data = {"name": self._topic, "partition_data": [(partition, batch)]}
        # The leader of a new topic may respond that it is no leader, even after it was one.
        answer = self._settled(
            lambda answer: _only_no_leader(answer.responses[0].partition_responses[0].error_code),
            *(ApiKey.PRODUCE, version, self.id(name) if name else None, -1, 10_000, [data]),
        )
        if label is not None:
            self._write_down(ApiKey.PRODUCE, label, answer)

    def end(
        self, label: str | None, name: str, producer: tuple[int, int], *, commit: bool = True, version: int
    ) -> tuple[int, int]:
        """Send EndTxn and wait until it is complete. Return the producer id and epoch for the next transaction."""
        answer = self._ask(label, ApiKey.END_TXN, version, self.id(name), *producer, commit)
        self.wait_until_complete(name)
        return answer.producer_id, answer.producer_epoch

    def wait_until_complete(self, name: str, *, of: str = "Prepare") -> None:
        self._settled(
            lambda answer: 51 if of in answer.transaction_states[0].transaction_state else 0,
            *(ApiKey.DESCRIBE_TRANSACTIONS, 0, [self.id(name)]),
        )

    def describe(self, label: str, *names: str) -> None:
        self._ask(label, ApiKey.DESCRIBE_TRANSACTIONS, 0, [self.id(name) if name else "" for name in names])

    def list(self, label: str, *, version: int = 2, **filters: Any) -> None:
        answer = self._wire.ask(ApiKey.LIST_TRANSACTIONS, version, **filters)
        mine = [each for each in answer.transaction_states if each.transactional_id.startswith(self._run)]
        answer.transaction_states = sorted(mine, key=lambda each: str(each.transactional_id))
        self._write_down(ApiKey.LIST_TRANSACTIONS, label, answer)

    def producers(self, label: str, partition: int, producer_id: int) -> None:
        """Send DescribeProducers, and record the state of one producer."""
        answer = self._wire.ask(ApiKey.DESCRIBE_PRODUCERS, 0, [(self._topic, [partition])])
        (part,) = answer.topics[0].partitions
        part.active_producers = [each for each in part.active_producers if each.producer_id == producer_id]
        self._write_down(ApiKey.DESCRIBE_PRODUCERS, label, answer)

    def markers(
        self, label: str, producer: tuple[int, int], partition: int, *, commit: bool = False, coordinator_epoch: int = 0
    ) -> None:
        marker = (*producer, commit, [(self._topic, [partition])], coordinator_epoch)
        self._ask(label, ApiKey.WRITE_TXN_MARKERS, 1, [marker])

    def fetch(self, label: str, partition: int, *, committed: bool = True, offset: int = 0) -> None:
        parts = [{"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]
        topics = [{"topic": self._topic, "partitions": parts}]
        self._ask(label, ApiKey.FETCH, 12, min_bytes=0, isolation_level=int(committed), topics=topics)


def _only_no_leader(code: int) -> int:
    return code if code == ErrorCode.NOT_LEADER_OR_FOLLOWER else ErrorCode.NONE


def _plain_records(data: memoryview) -> list[Any]:
    """Return batches as [offset, attributes, epoch, sequence, bytes of the records]."""
    return [
        [
            batch.base_offset,
            batch.header.attributes,
            batch.header.producer_epoch,
            batch.header.base_sequence,
            bytes(batch.data[HEADER_BYTES:]).hex(),
        ]
        for batch in read_batches(data)
    ]


# --- the list --------------------------------------------------------------------------------------------------------


def version_1(script: Script) -> None:
    script.find_coordinator("one")
    producer = script.init("first", "one")
    script.end("commit of an empty transaction", "one", producer, version=4)
    script.end("abort of an empty transaction", "one", producer, commit=False, version=4)
    for version in (3, 9, 10, 11):
        script.produce(f"Produce {version} to a partition that was not added", "one", producer, version=version)
    script.add("add", "one", producer, 0)
    script.add("add again and another", "one", producer, 0, 1)
    script.add("add what is not there", "one", producer, 0, 7)
    script.add("add to no topic", "one", producer, 0, topic="there-is-none")
    script.produce("first batch", "one", producer, version=11)
    script.produce("second batch", "one", producer, version=11, sequence=1)
    script.produce("second batch again", "one", producer, version=11, sequence=1)
    script.produce("a gap", "one", producer, version=11, sequence=5)
    script.produce("a batch outside of the transaction", "one", producer, version=11, sequence=2, transactional=False)
    script.produce("a partition that was not added", "one", producer, version=11, partition=2)
    script.describe("ongoing", "one")
    script.fetch("committed, while it is open", 0)
    script.fetch("uncommitted, while it is open", 0, committed=False)
    script.producers("while it is open", 0, producer[0])
    script.end("commit", "one", producer, version=4)
    script.end("commit again", "one", producer, version=4)
    script.end("commit again, in version 2", "one", producer, version=2)
    script.end("abort after the commit", "one", producer, commit=False, version=4)
    script.end("commit in the other version", "one", producer, version=5)
    script.describe("committed", "one")
    script.fetch("committed", 0)
    script.producers("committed", 0, producer[0])
    script.produce("late batch", "one", producer, version=11, sequence=2)
    script.produce("late copy of a batch", "one", producer, version=11, sequence=1)
    script.add("late add", "one", producer, 0)
    script.describe("after the late add", "one")
    script.end("commit of the late one", "one", producer, version=4)
    script.add("third", "one", producer, 0)
    script.produce("third, first batch", "one", producer, version=11, sequence=2)
    script.end("abort", "one", producer, commit=False, version=4)
    script.end("abort again", "one", producer, commit=False, version=4)
    script.end("commit after the abort", "one", producer, version=4)
    script.fetch("aborted", 0)
    script.fetch("the aborted part", 0, offset=4)
    next_producer = script.init("next", "one")
    script.end("commit with the old epoch", "one", producer, version=4)
    script.end("commit with the old epoch, in version 1", "one", producer, version=1)
    script.add("add with the old epoch", "one", producer, 0)
    script.add("add with the old epoch, in version 1", "one", producer, 0, version=1)
    script.add("add with another producer id", "one", (producer[0] + 100_000, 0), 0)
    script.end("commit with another producer id", "one", (producer[0] + 100_000, 0), version=4)
    script.add("next, add", "one", next_producer, 0)
    script.produce("next, a sequence that is not 0", "one", next_producer, version=11, sequence=3)
    script.produce("next, sequence 0", "one", next_producer, version=11)
    script.produce("with the old epoch", "one", producer, version=11, sequence=3)
    script.end("next, commit", "one", next_producer, version=4)


def version_2(script: Script) -> None:
    script.find_coordinator("two")
    producer = script.init("first", "two")
    script.end("commit of an empty transaction", "two", producer, version=5)
    producer = script.end("abort of an empty transaction", "two", producer, commit=False, version=5)
    script.produce("first batch", "two", producer, partition=1)
    script.produce("first batch again", "two", producer, partition=1)
    script.produce("a gap", "two", producer, partition=1, sequence=3)
    script.describe("ongoing", "two")
    script.producers("while it is open", 1, producer[0])
    after = script.end("commit", "two", producer, version=5)
    script.end("commit again", "two", producer, version=5)
    script.end("abort after the commit", "two", producer, commit=False, version=5)
    script.end("commit in the other version", "two", producer, version=4)
    script.describe("committed", "two")
    script.producers("committed", 1, producer[0])
    script.produce("late batch", "two", producer, partition=1, sequence=1)
    script.produce("late copy of a batch", "two", producer, partition=1)
    script.add("late add", "two", producer, 1)
    script.end("commit of the next, empty one", "two", after, version=5)
    script.produce("second, a sequence that is not 0", "two", after, partition=1, sequence=1)
    script.end("second, abort", "two", after, commit=False, version=5)
    script.describe("second, aborted", "two")
    script.init("an old epoch as expected", "two", expected=producer)
    third = script.init("third", "two")
    script.produce("third, first batch", "two", third, partition=1)
    script.produce("third, second partition", "two", third, partition=2)
    script.end("third, abort", "two", third, commit=False, version=5)
    script.end("third, abort again", "two", third, commit=False, version=5)
    script.end("third, commit after the abort", "two", third, version=5)
    script.fetch("aborted", 1)
    script.fetch("aborted, other partition", 2)
    script.fetch("aborted, uncommitted", 2, committed=False)
    script.add("unknown id", "nobody", producer, 0)
    script.end("unknown id, end", "nobody", producer, version=5)
    script.produce("unknown id, produce", "nobody", producer, partition=1, sequence=9)
    script.produce("unknown id, Produce 11", "nobody", producer, partition=1, sequence=9, version=11)


def mixed_versions(script: Script) -> None:
    script.find_coordinator("mixed")
    producer = script.init("first", "mixed")
    script.produce("first batch", "mixed", producer, partition=1)
    script.end("commit in version 4", "mixed", producer, version=4)
    script.produce("late batch opens a new one", "mixed", producer, partition=1, sequence=1)
    script.describe("the new one", "mixed")
    script.end("the new one is committed", "mixed", producer, version=4)
    script.fetch("and read", 1)


def fencing(script: Script) -> None:
    script.find_coordinator("fenced")
    old = script.init("first", "fenced")
    script.produce("first batch", "fenced", old, partition=2)
    script.init("the second is told to wait", "fenced", wait=False)
    script.wait_until_complete("fenced")
    script.describe("fenced", "fenced")
    script.produce("a batch after that", "fenced", old, partition=2, sequence=1)
    script.produce("a copy after that", "fenced", old, partition=2)
    script.end("abort after that", "fenced", old, commit=False, version=5)
    new = script.init("the second", "fenced")
    script.produce("old, a batch", "fenced", old, partition=2, sequence=1)
    script.produce("old, a batch, Produce 11", "fenced", old, partition=2, sequence=1, version=11)
    script.produce("old, a new partition", "fenced", old, partition=0)
    script.add("old, add", "fenced", old, 2)
    script.add_offsets("old, add offsets", "fenced", old)
    script.add_offsets("old, add offsets, in version 1", "fenced", old, version=1)
    script.end("old, commit", "fenced", old, version=5)
    script.end("old, abort", "fenced", old, commit=False, version=5)
    script.end("old, commit, in version 4", "fenced", old, version=4)
    script.produce("new", "fenced", new, partition=2)
    script.init("a stale epoch as expected ends the open transaction", "fenced", expected=old, wait=False)
    script.wait_until_complete("fenced")
    script.end("new, commit", "fenced", new, version=5)
    third = script.init("third", "fenced")
    fourth = script.init("the right epoch as expected", "fenced", expected=third)
    script.init("the right epoch again", "fenced", expected=third)
    script.init("an older epoch", "fenced", expected=(third[0], third[1] - 1))
    script.init("another producer id", "fenced", expected=(third[0] + 100_000, third[1]))
    script.init("another producer id, in version 3", "fenced", expected=(third[0] + 100_000, third[1]), version=3)
    script.init("an unknown id with an epoch", "fenced-new", expected=fourth)
    script.init("half of what is expected", "fenced", expected=(fourth[0], -1))
    script.produce("version 1 fence: batch", "fenced", fourth, partition=2)
    script.end("in the open transaction, with an epoch too high", "fenced", (fourth[0], fourth[1] + 1), version=5)
    script.end("version 4, with an epoch too high", "fenced", (fourth[0], fourth[1] + 1), version=4)
    script.end("abort in version 4", "fenced", fourth, commit=False, version=4)
    script.describe("aborted in version 4", "fenced")


def timeouts(script: Script) -> None:
    script.find_coordinator("timeout")
    for timeout_ms in (0, -1, 900_001, 2**31 - 1):
        script.init(f"{timeout_ms} ms", "timeout", timeout_ms=timeout_ms)
    script.init("an empty id", None)
    one = script.init("1 ms", "timeout", timeout_ms=1)
    two = script.init("900000 ms", "timeout-long", timeout_ms=900_000)
    # The order matters: the first to time out leaves a marker after its batch.
    script.produce("batch of the longer one", "timeout-long", two, partition=2)
    script.produce("batch", "timeout", one, partition=2)
    script.wait_until_complete("timeout", of="Ongoing")
    script.wait_until_complete("timeout")
    script.describe("timed out", "timeout", "timeout-long")
    script.produce("batch after that", "timeout", one, partition=2, sequence=1)
    script.end("commit after that", "timeout", one, version=5)
    script.end("commit after that, in version 4", "timeout", one, version=4)
    script.end("abort after that", "timeout", one, commit=False, version=5)
    script.add("add after that", "timeout", one, 0)
    script.end("the longer one", "timeout-long", two, version=5)


def looking(script: Script) -> None:
    script.find_coordinator("look")
    script.describe("unknown", "look")
    script.describe("no id", "")
    producer = script.init("first", "look")
    script.describe("empty", "look")
    script.produce("batch", "look", producer, partition=2)
    script.add_offsets("offsets", "look", producer)
    script.describe("ongoing", "look", "one", "two")
    script.list("ongoing", state_filters=["Ongoing"])
    script.list("by producer", producer_id_filters=[producer[0]])
    script.list("by a producer that is none", producer_id_filters=[2**40])
    script.list("unknown states", state_filters=["Ongoing", "Dreaming"])
    script.list("only unknown states", state_filters=["Dreaming"])
    script.list("states", state_filters=["CompleteCommit", "CompleteAbort", "Empty"], version=0)
    script.list("long ones", duration_filter=1_000_000, version=1)
    # More than 0 by a clock of milliseconds.
    time.sleep(0.005)
    script.list("any duration", duration_filter=0, state_filters=["Ongoing"])
    script.list("pattern", transactional_id_pattern=".*lo+k")
    script.list("pattern of a part", transactional_id_pattern="loo")
    script.list("no pattern", transactional_id_pattern="(")
    script.end("commit", "look", producer, version=5)


def offsets(script: Script) -> None:
    script.find_group_coordinator()
    script.find_coordinator("offsets")
    producer = script.init("first", "offsets")
    for version in (3, 4):
        script.commit_offsets(f"version {version} before they were added", "offsets", producer, version=version)
    script.add_offsets("added", "offsets", producer)
    script.commit_offsets("version 4", "offsets", producer, version=4)
    script.commit_offsets("no such partition", "offsets", producer, version=4, partition=7)
    script.commit_offsets("partition -1", "offsets", producer, version=4, partition=-1)
    script.commit_offsets("longest text", "offsets", producer, version=4, size=4096)
    script.commit_offsets("text too long", "offsets", producer, version=4, size=4097)
    script.describe("ongoing", "offsets")
    script.end("commit", "offsets", producer, version=4)
    second = script.init("second", "offsets")
    script.commit_offsets("stale epoch, version 4", "offsets", producer, version=4)
    script.commit_offsets("stale epoch", "offsets", producer)
    script.commit_offsets("unknown id", "nobody", second)
    script.commit_offsets("version 5 by itself", "offsets", second)
    script.describe("ongoing by itself", "offsets")
    script.end("second, commit", "offsets", second, version=5)


def sequences(script: Script) -> None:
    producer = script.init("first", None, wait=False)
    script.produce("a batch without transactional id", None, producer, partition=2)
    script.produce("the idempotent way", None, producer, partition=2, transactional=False)
    for sequence in range(1, 7):
        script.produce(f"batch {sequence}", None, producer, partition=2, transactional=False, sequence=sequence)
    script.produce("one of the last five", None, producer, partition=2, transactional=False, sequence=2)
    script.produce("one before them", None, producer, partition=2, transactional=False, sequence=1)
    script.produce("a gap", None, producer, partition=2, transactional=False, sequence=9)
    script.produce("sequence -1", None, producer, partition=2, transactional=False, sequence=-1)
    script.produce("a control batch", None, producer, partition=2, transactional=False, control=True, sequence=7)
    new_epoch = (producer[0], producer[1] + 1)
    script.produce("new epoch, sequence 7", None, new_epoch, partition=2, transactional=False, sequence=7)
    script.produce("new epoch, sequence 0", None, new_epoch, partition=2, transactional=False)
    script.produce("old epoch", None, producer, partition=2, transactional=False, sequence=7)


def hanging(script: Script) -> None:
    script.find_coordinator("hanging")
    script.init("first", "hanging")
    producer = script.init("second", "hanging")
    script.produce("batch", "hanging", producer, partition=2)
    script.markers("older epoch", (producer[0], producer[1] - 1), 2)
    script.markers("no such partition", producer, 7)
    script.markers("ended by an operator", producer, 2)
    script.producers("ended", 2, producer[0])
    script.markers("older coordinator", producer, 2, coordinator_epoch=-1)
    script.produce("goes on", "hanging", producer, partition=2, sequence=1)
    script.producers("open again", 2, producer[0])
    script.end("commit", "hanging", producer, version=5)


SECTIONS: Final[Mapping[str, Callable[[Script], None]]] = {
    section.__name__.replace("_", " "): section
    for section in (version_1, version_2, mixed_versions, fencing, timeouts, looking, offsets, sequences, hanging)
}


def ask_everything(bootstrap_servers: str, topic: str) -> dict[str, Any]:
    """Return the responses of a broker to the whole list, by request. *topic* has 3 partitions and is empty."""
    return Script(bootstrap_servers, topic).run(SECTIONS)
