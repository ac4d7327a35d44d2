"""The ``kafkalite`` command as users run it: pipes, signals, exit codes; librdkafka checks the results.

Only tests of signals and pipes of the system run processes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import kafka_sink
from kafka_sink.cli.options import BOOTSTRAP_SERVERS_VARIABLE
from tests.support.amounts import only_long
from tests.support.command_line import run_command

KAFKALITE = (sys.executable, "-m", "kafka_sink.cli")
LIMIT_S = 60


@dataclass
class RunningBroker:
    """A broker process that has printed its address."""

    process: subprocess.Popen[str]
    bootstrap_servers: str

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        """Stop it and return its exit code, the rest of its stdout, and the log."""
        self.process.send_signal(number)
        out, log = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, out, log


@contextmanager
def broker(*options: str) -> Iterator[RunningBroker]:
    command = [*KAFKALITE, "broker", "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        name, separator, bootstrap_servers = process.stdout.readline().strip().partition("=")
        assert (name, separator) == ("bootstrap.servers", "="), process.communicate(timeout=LIMIT_S)
        yield RunningBroker(process, bootstrap_servers)
    finally:
        process.kill()
        process.communicate(timeout=LIMIT_S)


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker("--nodes", "2") as started:
        yield started


@dataclass
class Result:
    code: int
    out: str
    err: str

    def json_lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


def kafkalite(*arguments: str, at: str, stdin: str = "") -> Result:
    done = run_command(arguments, stdin, {BOOTSTRAP_SERVERS_VARIABLE: at})
    return Result(done.returncode, done.stdout, done.stderr)


def one_line(text: str) -> str:
    (line,) = text.splitlines()
    return line


def test_create_describe_produce_consume_delete(running: RunningBroker) -> None:
    at = running.bootstrap_servers
    assert len(at.split(",")) == 2
    assert kafkalite("topics", "create", "round.trip", "--partitions", "3", at=at).out == "created round.trip\n"
    assert "round.trip" in kafkalite("topics", "list", at=at).out.splitlines()

    records: list[dict[str, object]] = [
        {
            "key": "clé",
            "value": "v",
            "headers": [["h", "1"], ["n", None]],
            "partition": 2,
            "timestamp": 1_700_000_000_000,
        },
        {"key": None, "value": {"base64": "/wA="}, "headers": [], "partition": 0, "timestamp": 5},
        {"key": "gone", "value": None, "headers": [], "partition": 0, "timestamp": 6},
    ]
    stdin = "".join(json.dumps(record) + "\n" for record in records)
    sent = kafkalite("produce", "round.trip", "--json", at=at, stdin=stdin)
    assert (sent.code, sent.err) == (0, "")
    assert json.loads(sent.out) == {
        "topic": "round.trip",
        "acknowledged": 3,
        "failed": 0,
        "partitions": [
            {"partition": 0, "first_offset": 0, "last_offset": 1},
            {"partition": 2, "first_offset": 0, "last_offset": 0},
        ],
    }

    described = json.loads(kafkalite("topics", "describe", "round.trip", "--json", at=at).out)[0]
    assert [part["end_offset"] for part in described["partitions"]] == [2, 0, 1]
    assert {part["leader"] for part in described["partitions"]} == {1, 2}

    read = kafkalite("consume", "round.trip", "--from-beginning", at=at)
    assert (read.code, read.err) == (0, "")
    by_place = {(line.pop("partition"), line.pop("offset")): line for line in read.json_lines()}
    for record, place in zip(records, [(2, 0), (0, 0), (0, 1)], strict=True):
        expected = {name: value for name, value in record.items() if name != "partition"}
        assert by_place.pop(place) == {"topic": "round.trip", **expected}
    assert by_place == {}

    assert [line["offset"] for line in kafkalite("consume", "round.trip", "--offset", "1", at=at).json_lines()] == [1]
    assert len(kafkalite("consume", "round.trip", "--max", "2", at=at).json_lines()) == 2
    behind = kafkalite("consume", "round.trip", "--offset", "100", "--partition", "0", at=at)
    assert (behind.code, behind.out) == (0, "")
    assert "round.trip-0 ends at offset 2" in one_line(behind.err)

    assert kafkalite("topics", "delete", "round.trip", "--yes", at=at).code == 0
    assert "round.trip" not in kafkalite("topics", "list", at=at).out.splitlines()


def test_what_consume_prints_can_be_piped_into_produce(running: RunningBroker) -> None:
    at = running.bootstrap_servers
    lines = "".join(f"line {number}\n" for number in range(500))
    kafkalite("topics", "create", "original", "copy", "--partitions", "2", at=at)
    assert kafkalite("produce", "original", "--raw", "-X", "compression.type=lz4", at=at, stdin=lines).code == 0
    printed = kafkalite("consume", "original", at=at).out
    assert kafkalite("produce", "copy", at=at, stdin=printed).code == 0
    copied = kafkalite("consume", "copy", at=at).out
    assert sorted(copied.replace('"topic": "copy"', '"topic": "original"').splitlines()) == sorted(printed.splitlines())


def test_librdkafka_reads_what_produce_wrote(running: RunningBroker) -> None:
    at = running.bootstrap_servers
    kafkalite("topics", "create", "foreign", "--partitions", "1", at=at)
    line = {
        "key": "k",
        "value": {"base64": "/wA="},
        "headers": [["h", "x"], ["n", None]],
        "timestamp": 1_700_000_000_000,
    }
    assert kafkalite("produce", "foreign", at=at, stdin=json.dumps(line)).code == 0
    consumer = Consumer({"bootstrap.servers": at, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition("foreign", 0, 0)])
        message = consumer.poll(LIMIT_S)
        assert message is not None
        assert message.error() is None
        assert (message.key(), message.value(), message.offset()) == (b"k", b"\xff\x00", 0)
        assert message.headers() == [("h", b"x"), ("n", None)]
        assert message.timestamp()[1] == 1_700_000_000_000
    finally:
        consumer.close()


def test_consume_reads_what_librdkafka_wrote(running: RunningBroker) -> None:
    at = running.bootstrap_servers
    kafkalite("topics", "create", "from.c", "--partitions", "1", at=at)
    producer = Producer({"bootstrap.servers": at, "compression.type": "zstd", "linger.ms": 20})
    for number in range(100):
        producer.produce("from.c", key=b"k%d" % number, value=b"v" * number, headers=[("n", b"%d" % number)])
    assert producer.flush(LIMIT_S) == 0
    lines = kafkalite("consume", "from.c", at=at).json_lines()
    assert [line["key"] for line in lines] == [f"k{number}" for number in range(100)]
    assert [len(line["value"]) for line in lines] == list(range(100))
    assert lines[7]["headers"] == [["n", "7"]]


def test_follow_prints_records_as_they_come(running: RunningBroker) -> None:
    at = running.bootstrap_servers
    kafkalite("topics", "create", "live", "--partitions", "1", at=at)
    command = [*KAFKALITE, "consume", "live", "--follow", "--from-beginning", "--bootstrap-server", at]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as follower:
        try:
            assert follower.stdout is not None
            for value in ("first", "second"):
                assert kafkalite("produce", "live", "--raw", at=at, stdin=value).code == 0
                assert json.loads(follower.stdout.readline())["value"] == value
            follower.send_signal(signal.SIGINT)
            assert follower.wait(LIMIT_S) == 130
            assert follower.stderr is not None
            assert follower.stderr.read().strip() == ""
        finally:
            follower.kill()


class SilentBroker:
    """A broker that never responds."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(LIMIT_S)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._held: list[socket.socket] = []

    def await_connection(self) -> None:
        self._held.append(self._listener.accept()[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listener, *self._held):
            each.close()


@pytest.mark.behaviour("Stop means stop", "Ctrl-C ends every command that waits for a broker")
def test_ctrl_c_ends_every_command_that_waits_for_a_broker() -> None:
    commands = [
        ("topics", "list"),
        ("groups", "list"),
        ("txn", "list"),
        ("produce", "t"),
        ("consume", "t"),
        ("check", "t"),
    ]
    with ExitStack() as stack:
        brokers = [stack.enter_context(SilentBroker()) for _ in commands]
        running = [
            subprocess.Popen(
                [*KAFKALITE, *command],
                env={**os.environ, BOOTSTRAP_SERVERS_VARIABLE: broker.address},
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for command, broker in zip(commands, brokers, strict=True)
        ]
        try:
            for process, broker in zip(running, brokers, strict=True):
                broker.await_connection()
                process.send_signal(signal.SIGINT)
            ends = [(process.communicate(timeout=LIMIT_S)[1].strip(), process.returncode) for process in running]
        finally:
            for process in running:
                process.kill()
                process.communicate()
    assert dict(zip(commands, ends, strict=True)) == dict.fromkeys(commands, ("", 130))


@pytest.mark.behaviour("Stop means stop", "An interrupt ends peek, which waits for a broker")
def test_interrupt_ends_peek() -> None:
    session: Any = None
    with SilentBroker() as broker:

        def interrupt() -> None:
            broker.await_connection()
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                kafka_sink.peek(session, {"kafka.bootstrap.servers": broker.address, "topic": "t"})
        finally:
            thread.join()


def test_a_reader_that_goes_away_is_no_failure(running: RunningBroker) -> None:
    at = running.bootstrap_servers
    kafkalite("topics", "create", "long", "--partitions", "1", at=at)
    # Far more than the buffer of a pipe, so that the command is still writing when the reader closes the pipe.
    kafkalite("produce", "long", "--raw", at=at, stdin=("x" * 1000 + "\n") * 1000)
    command = [*KAFKALITE, "consume", "long", "--bootstrap-server", at]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        reader.stdout.readline()
        reader.stdout.close()
        assert reader.stderr.read() == b""
        assert reader.wait(LIMIT_S) == 0


def test_an_unknown_topic_is_named_and_not_made(running: RunningBroker) -> None:
    at = running.bootstrap_servers
    for arguments in (
        ["consume", "no.such"],
        ["topics", "describe", "no.such"],
        ["topics", "delete", "no.such", "--yes"],
    ):
        result = kafkalite(*arguments, at=at)
        assert (result.code, result.out) == (1, "")
        assert "no.such" in one_line(result.err)
        assert "kafkalite topics describe" in result.err
    assert "no.such" not in kafkalite("topics", "list", at=at).out.splitlines()


def test_a_topic_that_exists_is_not_made_again(running: RunningBroker) -> None:
    at = running.bootstrap_servers
    assert kafkalite("topics", "create", "twice", at=at).code == 0
    again = kafkalite("topics", "create", "twice", at=at)
    assert again.code == 1
    assert "TOPIC_ALREADY_EXISTS" in one_line(again.err)


@pytest.mark.parametrize("arguments", [["topics", "list"], ["consume", "t"], ["produce", "t", "--raw"]], ids=" ".join)
def test_a_broker_that_cannot_be_reached_is_named_with_the_cause(arguments: list[str]) -> None:
    with socket.socket() as nobody:
        # Bound, but not listening: no other process gets the port, and the system refuses connections.
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        result = kafkalite(*arguments, "--timeout", "1", at=address, stdin="x\n")
    assert result.code == 1
    assert f"{address}: connection refused" in one_line(result.err)
    assert "Is the broker running?" in result.err


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGKILL, id="dead", marks=only_long), pytest.param(signal.SIGSTOP, id="silent")]
)
def test_the_time_out_bounds_produce_when_the_broker_goes_away(number: signal.Signals) -> None:
    with broker() as gone:
        at = gone.bootstrap_servers
        kafkalite("topics", "create", "lost", "--partitions", "1", at=at)
        # Long enough for the first record on a busy machine, and far less than LIMIT_S.
        command = [*KAFKALITE, "produce", "lost", "--raw", "--timeout", "4", "--bootstrap-server", at]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as producer:
            try:
                assert producer.stdin is not None
                producer.stdin.write("kept\n")
                producer.stdin.flush()
                follow = ("--follow", "--from-beginning", "--max", "1")
                assert len(kafkalite("consume", "lost", *follow, at=at).json_lines()) == 1
                gone.process.send_signal(number)
                # On a busy machine its threads run for a moment more, and might acknowledge the records that follow.
                if number == signal.SIGSTOP:
                    os.waitpid(gone.process.pid, os.WUNTRACED)
                else:
                    gone.process.wait(LIMIT_S)
                # Without the command's own bound this would take delivery.timeout.ms: far beyond the limit.
                out, err = producer.communicate("lost\n" * 10, timeout=LIMIT_S)
            finally:
                producer.kill()
    assert producer.returncode == 1
    assert out == "1 acknowledged, 10 failed\nlost-0: offsets 0..0\n"
    # Both limits are equal, and either may be reached first.
    assert "expiring" in err or "was not answered within 4000 ms" in err
    assert at in err or number == signal.SIGSTOP


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, id="SIGTERM"), pytest.param(signal.SIGINT, id="SIGINT", marks=only_long)]
)
def test_stopped_broker_exits_with_0_and_keeps_acknowledged_data(number: signal.Signals, tmp_path: Path) -> None:
    options = ("--data-dir", str(tmp_path / "data"))
    with broker(*options) as first:
        kafkalite("topics", "create", "kept", "--partitions", "2", at=first.bootstrap_servers)
        assert kafkalite("produce", "kept", "--raw", at=first.bootstrap_servers, stdin="a\nb\nc\n").code == 0
        before = kafkalite("consume", "kept", at=first.bootstrap_servers).out
        assert len(before.splitlines()) == 3
        code, more_on_stdout, log = first.stop(number)
        assert (code, more_on_stdout) == (0, "")
        assert "Traceback" not in log
        assert "stopping" in log
    with broker(*options) as second:
        assert kafkalite("consume", "kept", at=second.bootstrap_servers).out == before


def test_two_brokers_do_not_share_a_directory(tmp_path: Path) -> None:
    with broker("--data-dir", str(tmp_path)):
        result = kafkalite("broker", "--port", "0", "--data-dir", str(tmp_path), at="")
    assert (result.code, result.out) == (1, "")
    assert str(tmp_path) in one_line(result.err)


def test_a_taken_port_is_named(running: RunningBroker) -> None:
    port = running.bootstrap_servers.split(",")[0].rpartition(":")[2]
    result = kafkalite("broker", "--port", port, at="")
    assert (result.code, result.out) == (1, "")
    assert port in one_line(result.err)
    assert "--port" in result.err


def test_bash_completes_commands(tmp_path: Path) -> None:
    """With the script that the command prints; bash before 4.4, as on macOS, does not support it."""
    if "compopt" not in subprocess.run(["bash", "-c", "enable"], capture_output=True, text=True, check=True).stdout:
        pytest.skip("this bash is too old")
    command = tmp_path / "kafkalite"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kafka_sink.cli "$@"\n')
    command.chmod(0o755)
    script = (
        'eval "$(kafkalite completion bash)" && complete -p kafkalite && COMP_WORDS=(kafkalite topics de) COMP_CWORD=2 '
        '&& _kafkalite_completion kafkalite && echo "${COMPREPLY[@]}"'
    )
    environ = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["complete -o nosort -F _kafkalite_completion kafkalite", "delete describe"]
