"""Exit codes, one-line errors, help: the common behaviour of all commands."""

from __future__ import annotations

import io
import logging
import os
import sys
from typing import Any

import click
import pytest

from kafka_sink.cli import main as command_line
from kafka_sink.cli.commands import topics
from kafka_sink.cli.options import Connection
from kafka_sink.common.errors import (
    ApiError,
    BrokersUnreachableError,
    ConfigError,
    ErrorCode,
    KafkaError,
    UnknownTopicOrPartitionError,
)


class FailingAdmin:
    """An AdminClient whose construction fails."""

    error: BaseException = RuntimeError("boom")

    def __init__(self, *arguments: Any) -> None:
        raise self.error


def run_failing(monkeypatch: pytest.MonkeyPatch, error: BaseException, *options: str) -> int:
    monkeypatch.setattr(FailingAdmin, "error", error)
    monkeypatch.setattr(topics, "AdminClient", FailingAdmin)
    return command_line.run([*options, "topics", "list"])


@pytest.mark.parametrize("server", ["127.0.0.1:1", "nowhere.invalid:9092"])
@pytest.mark.parametrize("command", [["topics", "list"], ["produce", "t", "--raw"]])
def test_cluster_that_is_not_reached_is_one_exit_code(
    server: str, command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x\n")))
    assert command_line.run([*command, "--bootstrap-server", server, "--timeout", "0.2"]) == 1
    assert server.partition(":")[0] in capsys.readouterr().err


@pytest.mark.parametrize("name", command_line.COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run([name, "--help"]) == 0
    assert f"Usage: kafkalite {name}" in capsys.readouterr().out


def test_the_program_explains_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in command_line.COMMANDS)


@pytest.mark.parametrize("arguments", [[], ["topics"]], ids=["kafkalite", "topics"])
def test_group_without_command_prints_help_and_exits_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run([*arguments, "--help"]) == 0
    help_text = capsys.readouterr().out
    assert command_line.run(arguments) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", help_text)


NOWHERE = (
    "option bootstrap.servers: 'nowhere' is not allowed, expected host:port, for example 127.0.0.1:9092; initial "
    "broker addresses, host:port separated by commas; a few brokers of the cluster are enough"
)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("brokr", "No such command 'brokr' (did you mean broker?). See 'kafkalite --help'."),
        (
            "acls list",
            "Command 'acls' is gone: use kafka-acls, whose commands for a job are printed by 'kafkalite check TOPIC "
            "--print-acls User:NAME'. See 'kafkalite --help'.",
        ),
        ("produce", "Missing argument 'TOPIC'. See 'kafkalite produce --help'."),
        (
            "topics list -X sasl-secret",
            "Invalid value for '-X' / '--property': expected NAME=VALUE. See 'kafkalite topics list --help'.",
        ),
        ("topics list -X liger.ms=5", "unknown option liger.ms"),
        (
            "consume t --offset 1 --from-beginning",
            "--from-beginning and --offset exclude each other. See 'kafkalite consume --help'.",
        ),
        ("topics list --bootstrap-server nowhere", NOWHERE),
    ],
)
def test_wrong_usage_is_one_line_on_stderr_and_code_2(
    arguments: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run(arguments.split()) == 2
    assert capsys.readouterr() == ("", f"kafkalite: {error}\n")


UNREACHABLE = "k1:9092: connection refused"
NO_TOPIC = "topic 't' does not exist"
OPEN_ADDRESS = "Is the broker running? Give its address with --bootstrap-server HOST:PORT."


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ConfigError("option x: 1 is not allowed"), 2, "option x: 1 is not allowed"),
        (KafkaError("no\nluck"), 1, "no luck"),
        (ApiError("no\nluck", ErrorCode.NOT_CONTROLLER), 1, r"no\nluck"),
        (BrokersUnreachableError(UNREACHABLE), 1, f"{UNREACHABLE}. {OPEN_ADDRESS}"),
        (
            UnknownTopicOrPartitionError(NO_TOPIC),
            1,
            f"{NO_TOPIC}. Run 'kafkalite topics describe' to see the existing topics.",
        ),
        (
            OSError(98, "Address already in use"),
            1,
            "Address already in use. Choose another --port, or 0 for a free one.",
        ),
        (FileNotFoundError(2, "No such file or directory", "/x"), 1, "/x: No such file or directory."),
        (OSError("odd"), 1, "odd"),
        (click.ClickException("bad"), 1, "bad"),
        (KeyError("k"), 1, "unexpected KeyError: 'k'. Run 'kafkalite --debug …' to see where it comes from."),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_failure_is_one_line_on_stderr_without_a_traceback(
    error: Exception, code: int, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_failing(monkeypatch, error) == code
    assert capsys.readouterr() == ("", f"kafkalite: {text}\n")


def test_debug_shows_the_traceback_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_failing(monkeypatch, KeyError("k"), "--debug") == 1
    shown = capsys.readouterr().err
    assert "Traceback (most recent call last)" in shown
    assert shown.splitlines()[-1].startswith("kafkalite: unexpected KeyError")
    assert logging.getLogger("kafka_sink.client.connection.network_client").isEnabledFor(logging.DEBUG)


def test_what_the_error_tells_is_not_logged_before_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def warn_and_fail(*arguments: Any) -> None:
        logging.getLogger("kafka_sink.client.connection.network_client").warning("connection refused")
        logging.getLogger("kafka_sink.consumer.topic_reading").warning("records are gone")
        raise ApiError("no luck")

    monkeypatch.setattr(topics, "AdminClient", warn_and_fail)
    assert command_line.run(["topics", "list"]) == 1
    shown = capsys.readouterr().err
    assert "connection refused" not in shown
    assert "WARNING records are gone" in shown


def test_an_interrupt_is_code_130_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_failing(monkeypatch, KeyboardInterrupt()) == 130
    assert capsys.readouterr().err.strip() == ""


def test_a_reader_that_has_seen_enough_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    redirected: list[int] = []
    monkeypatch.setattr(os, "dup2", lambda source, target: redirected.append(target))
    assert run_failing(monkeypatch, BrokenPipeError(32, "Broken pipe")) == 0
    assert redirected == [sys.stdout.fileno()]


def test_the_entry_point_exits_with_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["kafkalite", "no-such-command"])
    with pytest.raises(SystemExit) as caught:
        command_line.main()
    assert caught.value.code == 2


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("kafkalite, version ")


def test_connection_shows_no_password() -> None:
    assert "secret" not in repr(Connection("localhost:9092", 1000, {"sasl.password": "secret"}))
