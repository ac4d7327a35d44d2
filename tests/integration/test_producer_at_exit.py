"""Programs that end with undelivered records: the reported outcome of each record is that in the topic; none hangs.

KAFKALITE_INTERRUPTS sets how many programs are interrupted.
"""

from __future__ import annotations

import collections
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.protocol.api_key import ApiKey
from tests.conftest import Figure
from tests.support import amounts
from tests.support.fault_proxy import Delay, Fault, FaultProxy, every
from tests.support.readback import read_topic
from tests.support.waiting import until

INTERRUPTS = amounts.INTERRUPTS
#: From the end of the program's own code to that of its process.
EXIT_LIMIT_S = 60.0
COUNTED = re.compile(r"(never sent|sent, and possibly stored): (\d+) record")


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        running.create_topic("t", partitions=3)
        yield running


class Program:
    """One run of :mod:`tests.support.exiting_producer`."""

    def __init__(self, bootstrap_servers: str, how: str, told: Path, topic: str = "t") -> None:
        self._told = told
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.exiting_producer", bootstrap_servers, topic, how, str(told)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "records flow\n"

    def end(self) -> tuple[int, str, dict[str, set[int]]]:
        """Return its exit code, its output, and the records of each reported outcome."""
        try:
            _, said = self.process.communicate(timeout=EXIT_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"it hangs; so far it said {self.process.communicate()[1]}") from None
        outcomes: dict[str, set[int]] = collections.defaultdict(set)
        for line in self._told.read_text().splitlines():
            outcome, value = line.split()
            outcomes[outcome].add(int(value))
        return self.process.returncode, said, outcomes


def check(cluster: EmbeddedCluster, outcomes: dict[str, set[int]], topic: str = "t") -> collections.Counter[int]:
    """Check that the reported outcomes are those in the topic, and return how often it has each record."""
    found = read_topic(cluster.bootstrap_servers, topic)
    stored = collections.Counter(int(message.value or b"-1") for message in found)
    assert outcomes["sent"] <= stored.keys()
    assert not outcomes["unsent"] & stored.keys()
    assert max(stored.values(), default=0) <= 1
    return stored


def counted(said: str) -> dict[str, int]:
    """Return the numbers in the warning."""
    return {what: int(count) for what, count in COUNTED.findall(said)}


@pytest.mark.behaviour(
    "Faults: interrupts and signals", "A program that ends with buffered records says that they were not sent"
)
@pytest.mark.parametrize(("how", "code"), [("falls-off", 0), ("exits", 3), ("with-error", 1)])
def test_exit_with_buffered_records_reports_them_as_unsent(
    how: str, code: int, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    exit_code, said, outcomes = Program(cluster.bootstrap_servers, how, tmp_path / "told").end()
    assert exit_code == code, said
    assert outcomes == {"unsent": set(range(1_000))}
    assert check(cluster, outcomes) == {}
    assert "never sent: 1000 record(s) for t-0 (334), t-1 (333), t-2 (333)" in said
    assert ("the program exited without flush() or close() of this producer" in said) == (how != "with-error")


@pytest.mark.behaviour("Faults: interrupts and signals", "A with block sends everything and says nothing")
def test_a_with_block_sends_everything_and_says_nothing(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    exit_code, said, outcomes = Program(cluster.bootstrap_servers, "with", tmp_path / "told").end()
    assert (exit_code, said) == (0, "")
    assert outcomes == {"sent": set(range(1_000))}
    assert len(check(cluster, outcomes)) == 1_000


@pytest.mark.behaviour("Faults: interrupts and signals", "Records whose answer has not come are not called unsent")
def test_records_whose_answer_has_not_come_are_not_called_unsent(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    with FaultProxy(cluster.bootstrap_servers, every(1, Fault.SILENCE)) as proxy:
        program = Program(proxy.bootstrap_servers, "forever", tmp_path / "told")
        until("a request", lambda: proxy.requests[ApiKey.PRODUCE] > 0)
        program.process.send_signal(signal.SIGINT)
        _, said, outcomes = program.end()
    assert outcomes["maybe"]
    assert not outcomes["sent"]
    assert counted(said)["sent, and possibly stored"] == len(outcomes["maybe"])
    check(cluster, outcomes)


@pytest.mark.behaviour(
    "Faults: interrupts and signals", "Ctrl-C at any moment leaves no record in doubt and hangs nowhere"
)
@pytest.mark.parametrize("how", ["forever", "with-forever"])
def test_interrupt_at_any_moment_leaves_no_doubt_and_never_hangs(
    how: str, cluster: EmbeddedCluster, tmp_path: Path, figure: Figure
) -> None:
    rng = random.Random(11)
    slowest = 0.0
    told: collections.Counter[str] = collections.Counter()
    for number in range(INTERRUPTS):
        topic = f"t-{number}"
        cluster.create_topic(topic, partitions=3)
        with FaultProxy(cluster.bootstrap_servers, every(5, Delay(0.05))) as proxy:
            program = Program(proxy.bootstrap_servers, how, tmp_path / topic, topic)
            time.sleep(rng.random() * 0.5)
            program.process.send_signal(signal.SIGINT)
            began = time.monotonic()
            exit_code, said, outcomes = program.end()
            slowest = max(slowest, time.monotonic() - began)
        assert exit_code == -signal.SIGINT
        assert "KeyboardInterrupt" in said
        check(cluster, outcomes, topic)
        numbers = counted(said)
        assert numbers.get("never sent", 0) == len(outcomes["unsent"])
        assert numbers.get("sent, and possibly stored", 0) == len(outcomes["maybe"])
        for outcome, values in outcomes.items():
            told[outcome] += len(values)
    figure("interrupted programs", INTERRUPTS)
    figure("records sent/unsent/maybe", f"{told['sent']}/{told['unsent']}/{told['maybe']}")
    figure("slowest end", f"{slowest:.1f} s")
