"""``kafkalite consume`` with a fake log reader."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import pytest

from kafka_sink.cli.commands import consume
from kafka_sink.cli.main import run
from kafka_sink.client.blocking.admin import LATEST, AdminConfig, TopicDescription
from kafka_sink.client.metadata.cluster import PartitionInfo
from kafka_sink.common.config import parse
from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.common.model import Node, TopicPartition
from kafka_sink.consumer.fetched_partition import ConsumedRecord


class FakeReader:
    """Has two records, followed by an error if one is set."""

    properties: ClassVar[dict[str, Any]] = {}
    asked: ClassVar[dict[str, Any]] = {}
    error: ClassVar[Exception | None] = None
    is_empty: ClassVar[bool] = False

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self.properties.update(properties)

    def __enter__(self) -> FakeReader:
        return self

    def __exit__(self, *error: object) -> None:
        self.asked["closed"] = True

    def read(self, topic: str, partitions: Any = None, **asked: Any) -> Iterator[ConsumedRecord]:
        self.asked.update(topic=topic, partitions=partitions, **asked)
        if self.is_empty:
            return
        yield ConsumedRecord(topic, 0, 1, 5, b"k", b"v", (("h", None),))
        yield ConsumedRecord(topic, 0, 2, 6, None, b"\xff", ())
        if self.error is not None:
            raise self.error


class FakeAdmin:
    """Has three partitions that end at 1, 10 and 100, and one without a leader."""

    properties: ClassVar[dict[str, Any]] = {}

    def __init__(self, bootstrap_servers: str, properties: Mapping[str, Any]) -> None:
        parse(AdminConfig, {"bootstrap.servers": bootstrap_servers, **properties})
        self.properties.update(properties)

    def __enter__(self) -> FakeAdmin:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        leader = Node(1, "k1", 9092)
        infos = [
            PartitionInfo("events", number, leader if number < 3 else None, 0, (leader,), (leader,))
            for number in range(4)
        ]
        return {name: TopicDescription(name, None, False, tuple(infos)) for name in names}

    def offsets(
        self, partitions: Iterable[TopicPartition], spec: int = LATEST, *, known_only: bool = False
    ) -> dict[TopicPartition, int]:
        return {partition: 10**partition.partition if spec == LATEST else 0 for partition in partitions}


@pytest.fixture(autouse=True)
def reader(monkeypatch: pytest.MonkeyPatch) -> type[FakeReader]:
    monkeypatch.setattr(FakeReader, "properties", {})
    monkeypatch.setattr(FakeReader, "asked", {})
    monkeypatch.setattr(FakeAdmin, "properties", {})
    monkeypatch.setattr(consume, "LogReader", FakeReader)
    monkeypatch.setattr(consume, "AdminClient", FakeAdmin)
    return FakeReader


def test_a_line_a_record(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["consume", "events"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first == {
        "topic": "events",
        "partition": 0,
        "offset": 1,
        "timestamp": 5,
        "key": "k",
        "value": "v",
        "headers": [["h", None]],
    }
    assert second["value"] == {"base64": "/w=="}


@pytest.mark.parametrize(
    ("options", "start", "stop_at_end"),
    [
        ([], "earliest", True),
        (["--from-beginning"], "earliest", True),
        (["--offset", "7"], 7, True),
        (["--offset", "0", "--follow"], 0, False),
        (["--follow"], "latest", False),
        (["--follow", "--from-beginning"], "earliest", False),
    ],
)
def test_consume_options_set_the_start_and_whether_it_ends(
    options: list[str], start: str | int, stop_at_end: bool, reader: type[FakeReader]
) -> None:
    assert run(["consume", "events", *options]) == 0
    assert (reader.asked["start"], reader.asked["stop_at_end"]) == (start, stop_at_end)


def test_partitions_limit_and_properties_reach_the_reader(reader: type[FakeReader]) -> None:
    options = ["--partition", "1", "--partition", "3", "--max", "9", "--timeout", "2", "--bootstrap-server", "k:1"]
    options += ["--isolation", "read_committed", "-X", "check.crcs=false"]
    assert run(["consume", "events", *options]) == 0
    assert reader.asked["partitions"] == (1, 3)
    assert reader.asked["max_records"] == 9
    assert reader.properties == {
        "bootstrap.servers": "k:1",
        "client.id": "kafkalite-consume",
        "default.api.timeout.ms": 2_000,
        "check.crcs": "false",
        "isolation.level": "read_committed",
    }


def test_what_was_read_before_an_error_is_printed(
    reader: type[FakeReader], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reader, "error", CorruptRecordError("events-0 at offset 3: bad CRC"))
    assert run(["consume", "events"]) == 1
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 2
    assert shown.err == "kafkalite: events-0 at offset 3: bad CRC\n"
    assert reader.asked["closed"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--offset", "100"], "100 on: events-0 ends at offset 1, events-1 ends at offset 10"),
        (["--offset", "100", "--partition", "1"], "100 on: events-1 ends at offset 10"),
        (["--offset", "100", "--partition", "2"], None),
        (["--offset", "1"], None),
        (["--offset", "0"], None),
        ([], None),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_offset_behind_the_end_is_told(
    options: list[str],
    told: str | None,
    reader: type[FakeReader],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(reader, "is_empty", True)
    assert run(["consume", "events", *options, "--timeout", "2", "-X", "check.crcs=false"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == ("" if told is None else f"kafkalite: no records to read from offset {told}\n")


def test_consume_with_records_does_not_ask_for_the_end_offset(reader: type[FakeReader]) -> None:
    assert run(["consume", "events", "--offset", "100"]) == 0
    assert FakeAdmin.properties == {}


def test_end_offset_request_has_the_timeout_of_consume(
    reader: type[FakeReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "is_empty", True)
    assert run(["consume", "events", "--offset", "100", "--timeout", "2", "-X", "fetch.min.bytes=1"]) == 0
    assert FakeAdmin.properties == {"client.id": "kafkalite-consume", "default.api.timeout.ms": 2_000}
