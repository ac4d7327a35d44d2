"""Runs other projects' programs, which read, keep state and write; kills them and the broker; compares their output."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.suites.clusters import cluster

ROOT: Final = Path(__file__).parents[2]
WORK: Final = ROOT / ".work" / "suites"
SOURCES: Final = Path(__file__).parent / "sources"
KEYS: Final = 7
#: Records of each key, the pause after one record of each, and the time limit for all of them.
COUNT: Final = 300
PAUSE_S: Final = 0.1
LIMIT_S: Final = 400


class CannotBeHadError(Exception):
    """A suite needs a program that is not on this machine and cannot be fetched; the text names it."""


#: Passes a key and its next count to the program.
Feed = Callable[[str, int], None]


@dataclass(frozen=True)
class Program:
    """A program. *command* returns its command for the brokers' addresses, its name and a folder for its data.

    Its input is the topic NAME-in, which has the records 1 to COUNT of each key, and its output is the topic NAME-out,
    which must have the same: each once, in their order; or at least once, if it is not *exact*.
    """

    command: Callable[[str, str, Path], list[str]]
    exact: bool = True
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    #: Called when the program first runs, with its name and folder; returns the function for an input that is no topic.
    began: Callable[[str, Path], Feed] | None = None


class _Process:
    """A program that runs in its own process group, which :meth:`kill` kills."""

    def __init__(self, command: list[str], environment: Mapping[str, str], log: Path) -> None:
        self._command, self._environment, self._log = command, environment, log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def keep_running(self) -> None:
        """Restart the program if it has exited, as a supervisor does."""
        if self._process is not None and self._process.poll() is not None:
            self.start()


def run(name: str, prepare: Callable[[], Program]) -> dict[str, str]:
    """Run a program, whose log is NAME.log; return its outcome. CannotBeHadError if this machine does not have it."""
    program = prepare()
    log, folder = WORK / f"{name}.log", WORK / f"{name}-data"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log.unlink(missing_ok=True)
    with ExitStack() as stack:
        brokers = stack.enter_context(cluster())
        servers = brokers.bootstrap_servers
        _create_topics(servers, f"{name}-in", f"{name}-out")
        process = _Process(program.command(servers, name, folder), program.environment, log)
        stack.callback(process.kill)
        process.start()
        feed = _producer(servers, f"{name}-in") if program.began is None else program.began(name, folder)
        feeding = threading.Thread(target=_feed_all, args=[feed], daemon=True)
        feeding.start()
        reader = _Reader(servers, f"{name}-out")
        stack.callback(reader.close)
        wanted = KEYS * COUNT
        for part, kill, start in (
            (wanted // 4, process.kill, process.start),
            (wanted // 2, brokers.kill, brokers.start),
        ):
            reader.read_until(part, process.keep_running)
            kill()
            start()
        reader.read_until(wanted, process.keep_running)
        feeding.join(LIMIT_S)
        reader.read_rest()
    problems = _problems(reader.written, program.exact)
    for problem in problems[:10]:
        print(f"  {problem}", flush=True)
    return {"every record after both were killed": "fail" if problems else "pass"}


def _problems(written: Mapping[str, list[str]], exact: bool) -> list[str]:
    wanted = [str(count) for count in range(1, COUNT + 1)]
    found = []
    for key in (f"k{number}" for number in range(KEYS)):
        counts = written.get(key, [])
        seen = set(counts)
        missing, strange = [each for each in wanted if each not in seen], seen - set(wanted)
        if missing or strange or (exact and counts != wanted):
            repeated = len(counts) - len(seen)
            found.append(
                f"{key}: {len(missing)} missing {missing[:3]}, {repeated} again, strange {sorted(strange)[:3]}"
                + ("" if missing or strange or repeated else ", in another order")
            )
    return found


def _create_topics(servers: str, read: str, written: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(read, 2, 1), NewTopic(written, 1, 1)]).values():
        future.result(60)


def _producer(servers: str, topic: str) -> Feed:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5, "log_level": 0})

    def feed(key: str, count: int) -> None:
        producer.produce(topic, str(count), key)
        if key == f"k{KEYS - 1}":
            producer.poll(0)
        if count == COUNT:
            producer.flush(LIMIT_S)

    return feed


def _feed_all(feed: Feed) -> None:
    for count in range(1, COUNT + 1):
        for number in range(KEYS):
            feed(f"k{number}", count)
        time.sleep(PAUSE_S)


class _Reader:
    """Reads all committed records of a topic with one partition."""

    def __init__(self, servers: str, topic: str) -> None:
        self.written: dict[str, list[str]] = {}
        self._read = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"{topic}-reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def close(self) -> None:
        self._consumer.close()

    def read_until(self, records: int, meanwhile: Callable[[], None]) -> None:
        """Read until there are *records* different ones, or the time limit; call *meanwhile* after each poll."""
        limit = time.monotonic() + LIMIT_S
        while sum(len(set(counts)) for counts in self.written.values()) < records and time.monotonic() < limit:
            self._take(self._consumer.poll(0.2))
            meanwhile()

    def read_rest(self) -> None:
        """Read the records after the last expected one, which may be repetitions."""
        limit = time.monotonic() + 3
        while time.monotonic() < limit:
            self._take(self._consumer.poll(0.2))

    def _take(self, message: Message | None) -> None:
        if message is None or message.error() is not None:
            return
        key, value = message.key(), (message.value() or b"").decode()
        # A program without record keys writes the key before the count.
        name, count = (key.decode(), value) if key else value.split(" ", 1)
        self.written.setdefault(name, []).append(count)
