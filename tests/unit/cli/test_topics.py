"""``kafkalite topics`` with a fake admin client."""

from __future__ import annotations

import io
import json
import sys
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kafka_sink.cli.commands import topics
from kafka_sink.cli.main import run
from kafka_sink.client.blocking.admin import EARLIEST, TopicDescription
from kafka_sink.client.metadata.cluster import PartitionInfo
from kafka_sink.common.errors import ApiError
from kafka_sink.common.model import Node, TopicPartition

ONE, TWO = Node(1, "k1", 9092), Node(2, "k2", 9092)


class FakeAdmin:
    """One topic: partition 0 with a leader, partition 1 without."""

    calls: ClassVar[list[tuple[Any, ...]]] = []
    leaders_answer: ClassVar[bool] = True

    def __init__(self, bootstrap_servers: str, properties: Mapping[str, Any]) -> None:
        self.calls.append(("connect", bootstrap_servers, dict(properties)))

    def __enter__(self) -> FakeAdmin:
        return self

    def __exit__(self, *error: object) -> None:
        self.calls.append(("close",))

    def list_topics(self, *, include_internal: bool = False) -> list[str]:
        return ["__consumer_offsets", "events"] if include_internal else ["events"]

    def create_topic(self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> None:
        if name == "taken":
            raise ApiError("TOPIC_ALREADY_EXISTS: taken")
        self.calls.append(("create", name, partitions, replication_factor, dict(configs)))

    def delete_topics(self, names: Iterable[str]) -> None:
        self.calls.append(("delete", *names))

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        infos = (
            PartitionInfo("events", 0, ONE, 0, (ONE, TWO), (ONE,)),
            PartitionInfo("events", 1, None, 0, (TWO,), ()),
        )
        return {name: TopicDescription(name, uuid.UUID(int=7), False, infos) for name in names}

    def offsets(
        self, partitions: Iterable[TopicPartition], timestamp: int, *, known_only: bool
    ) -> dict[TopicPartition, int]:
        assert known_only, "a leader that does not answer would hide all others"
        asked = list(partitions)
        if not self.leaders_answer:
            return {}
        assert asked == [TopicPartition("events", 0)], "a partition without a leader would be waited for"
        return dict.fromkeys(asked, 3 if timestamp == EARLIEST else 12)


@pytest.fixture(autouse=True)
def admin(monkeypatch: pytest.MonkeyPatch) -> type[FakeAdmin]:
    monkeypatch.setattr(FakeAdmin, "calls", [])
    monkeypatch.setattr(topics, "AdminClient", FakeAdmin)
    monkeypatch.delenv("KAFKALITE_BOOTSTRAP_SERVERS", raising=False)
    return FakeAdmin


def test_list_prints_one_name_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "list"]) == 0
    assert capsys.readouterr().out == "events\n"
    assert run(["topics", "list", "--internal", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == ["__consumer_offsets", "events"]


def test_bootstrap_server_is_from_option_environment_or_default(
    admin: type[FakeAdmin], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(["topics", "list"])
    monkeypatch.setenv("KAFKALITE_BOOTSTRAP_SERVERS", "env:1")
    run(["topics", "list"])
    run(["topics", "list", "--bootstrap-server", "a:1,b:2", "--timeout", "1.5", "-X", "client.id=x=y"])
    assert [call for call in admin.calls if call[0] == "connect"] == [
        ("connect", "127.0.0.1:9092", {"default.api.timeout.ms": 15_000}),
        ("connect", "env:1", {"default.api.timeout.ms": 15_000}),
        ("connect", "a:1,b:2", {"default.api.timeout.ms": 1_500, "client.id": "x=y"}),
    ]


@pytest.mark.behaviour("Faults: security", "Passwords of the command line come from a file, or with a warning")
def test_command_config_has_client_properties_and_servers(
    admin: type[FakeAdmin], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=h:1\nclient.id=me\nsasl.password=s3cr3t\n")
    assert run(["topics", "list", "--command-config", str(file), "-X", "client.id=x"]) == 0
    assert run(["topics", "list", "--bootstrap-server", "a:1", "--command-config", str(file)]) == 0
    common = {"default.api.timeout.ms": 15_000, "sasl.password": "s3cr3t"}
    assert [call for call in admin.calls if call[0] == "connect"] == [
        ("connect", "h:1", {**common, "client.id": "x"}),
        ("connect", "a:1", {**common, "client.id": "me"}),
    ]
    assert capsys.readouterr().err == ""
    assert run(["topics", "list", "-X", "sasl.password=s3cr3t"]) == 0
    said = capsys.readouterr().err
    assert "everybody on this machine can read the value of sasl.password on the command line" in said
    assert "use --command-config FILE" in said and "s3cr3t" not in said


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: No such file or directory."),
        (b"\xe9", "cannot be read: it is not UTF-8 text"),
        (b"s3cr3t", "line 1: expected name=value"),
    ],
)
def test_a_command_config_that_cannot_be_read_is_explained(
    content: bytes | None, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "p").write_bytes(content)
    assert run(["topics", "list", "--command-config", str(tmp_path / "p")]) != 0
    (said,) = capsys.readouterr().err.splitlines()
    assert problem in said and "s3cr3t" not in said


def test_create_leaves_the_counts_to_the_broker_unless_told(
    admin: type[FakeAdmin], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--partitions", "3", "--replication-factor", "2", "--config", "retention.ms=5"]
    assert run(["topics", "create", "a", "b"]) == 0
    assert run(["topics", "create", "c", *options]) == 0
    assert capsys.readouterr().out == "created a\ncreated b\ncreated c\n"
    assert [call for call in admin.calls if call[0] == "create"] == [
        ("create", "a", -1, -1, {}),
        ("create", "b", -1, -1, {}),
        ("create", "c", 3, 2, {"retention.ms": "5"}),
    ]


def test_create_says_what_was_done_before_it_failed(admin: type[FakeAdmin], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "create", "a", "taken", "b"]) == 1
    shown = capsys.readouterr()
    assert shown.out == "created a\n"
    assert shown.err == "kafkalite: TOPIC_ALREADY_EXISTS: taken\n"
    assert admin.calls[-1] == ("close",)


def test_delete(admin: type[FakeAdmin], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "delete", "a", "b", "--yes"]) == 0
    assert capsys.readouterr().out == "deleted a\ndeleted b\n"
    assert [call for call in admin.calls if call[0] == "delete"] == [("delete", "a"), ("delete", "b")]


def test_nothing_is_deleted_before_the_answer(
    admin: type[FakeAdmin], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert run(["topics", "delete", "a"]) == 130
    assert "Delete" in (said := capsys.readouterr().err) and "nothing was changed; --yes answers" in said
    assert admin.calls == []


def test_describe_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "describe", "events", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {
            "topic": "events",
            "topic_id": "00000000-0000-0000-0000-000000000007",
            "internal": False,
            "partitions": [
                {"partition": 0, "leader": 1, "replicas": [1, 2], "isr": [1], "first_offset": 3, "end_offset": 12},
                {"partition": 1, "leader": None, "replicas": [2], "isr": [], "first_offset": None, "end_offset": None},
            ],
        }
    ]


def test_describe_for_a_person_shows_all_topics(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "describe"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["events", "0", "1", "1,2", "1", "3", "12"] in rows
    assert ["events", "1", "none", "2", "none", "none"] in rows


def test_describe_shows_topics_whose_leaders_do_not_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeAdmin, "leaders_answer", False)
    assert run(["topics", "describe"]) == 1
    shown = capsys.readouterr()
    assert ["events", "0", "1", "1,2", "1", "none", "none"] in [line.split() for line in shown.out.splitlines()]
    assert shown.err == "kafkalite: no leader has returned the offsets of events-0: check its broker.\n"


def test_a_long_name_is_not_cut_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    from kafka_sink.cli import output

    output.print_table(["topic"], [["x" * 249]])
    assert "x" * 249 in capsys.readouterr().out
