"""``kafkalite consume`` against a stand-in for the log reader."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest

from kafka_sink.cli import consume
from kafka_sink.cli.main import run
from kafka_sink.common.errors import CorruptRecordError
from kafka_sink.consumer.fetched_partition import ConsumedRecord


class FakeReader:
    """Has two records, and then perhaps an error."""

    properties: ClassVar[dict[str, Any]] = {}
    asked: ClassVar[dict[str, Any]] = {}
    error: ClassVar[Exception | None] = None

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self.properties.update(properties)

    def __enter__(self) -> FakeReader:
        return self

    def __exit__(self, *error: object) -> None:
        self.asked["closed"] = True

    def read(self, topic: str, partitions: Any = None, **asked: Any) -> Iterator[ConsumedRecord]:
        self.asked.update(topic=topic, partitions=partitions, **asked)
        yield ConsumedRecord(topic, 0, 1, 5, b"k", b"v", (("h", None),))
        yield ConsumedRecord(topic, 0, 2, 6, None, b"\xff", ())
        if self.error is not None:
            raise self.error


@pytest.fixture(autouse=True)
def reader(monkeypatch: pytest.MonkeyPatch) -> type[FakeReader]:
    monkeypatch.setattr(FakeReader, "properties", {})
    monkeypatch.setattr(FakeReader, "asked", {})
    monkeypatch.setattr(consume, "LogReader", FakeReader)
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
def test_where_it_starts_and_whether_it_ends(
    options: list[str], start: str | int, stop_at_end: bool, reader: type[FakeReader]
) -> None:
    assert run(["consume", "events", *options]) == 0
    assert (reader.asked["start"], reader.asked["stop_at_end"]) == (start, stop_at_end)


def test_partitions_limit_and_properties_reach_the_reader(reader: type[FakeReader]) -> None:
    options = ["--partition", "1", "--partition", "3", "--max", "9", "--timeout", "2", "--bootstrap-server", "k:1"]
    assert run(["consume", "events", *options, "-X", "isolation.level=read_committed"]) == 0
    assert reader.asked["partitions"] == (1, 3)
    assert reader.asked["max_records"] == 9
    assert reader.properties == {
        "bootstrap.servers": "k:1",
        "client.id": "kafkalite-consume",
        "default.api.timeout.ms": 2_000,
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
