"""Spark workers whose executors are killed during batches, with slow tasks that get a speculative copy.

Six to twelve JVMs: only with KAFKALITE_EXECUTOR_KILLS, the number of executors to kill.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_sink.client.blocking.admin import AdminClient
from tests.conftest import Figure
from tests.support import amounts
from tests.support.broker_process import BrokerProcess
from tests.support.killed_spark import kill_session
from tests.support.readback import read_values
from tests.support.standalone_cluster import FIVE_HOSTS, StandaloneCluster

KILLS = amounts.EXECUTOR_KILLS
ROOT = Path(__file__).parents[2]
FILES = 2 * KILLS + 2
LINES = 600
SLOW_S = 2.0

pytestmark = [
    pytest.mark.skipif(not KILLS, reason="KAFKALITE_EXECUTOR_KILLS is not set"),
    # On a busy machine an executor starts within a minute, and some of these tests need one for each stage.
    pytest.mark.timeout(3600),
]


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    workers = {**os.environ, "PYTHONPATH": str(ROOT)}
    cluster = StandaloneCluster(tmp_path_factory.mktemp("standalone"), workers)
    yield cluster
    cluster.stop()


@dataclass
class Events:
    """Counts from Spark's event log of a job: speculative copies of tasks and those that won, tasks lost with their
    executor, and stages that were run again."""

    copies: int = 0
    copies_failed: int = 0
    copies_won: int = 0
    lost_tasks: int = 0
    stages_again: int = 0

    @classmethod
    def read(cls, folder: Path) -> Events:
        found = cls()
        files = [file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(".")]
        for line in (line for file in files for line in file.read_text().splitlines()):
            event = json.loads(line)
            if event["Event"] == "SparkListenerTaskEnd":
                is_copy = event["Task Info"]["Speculative"]
                found.copies += is_copy
                found.copies_failed += is_copy and event["Task End Reason"]["Reason"] == "ExceptionFailure"
                found.copies_won += is_copy and event["Task End Reason"]["Reason"] == "Success"
                found.lost_tasks += event["Task End Reason"]["Reason"] == "ExecutorLostFailure"
            elif event["Event"] == "SparkListenerStageSubmitted":
                found.stages_again += event["Stage Info"]["Stage Attempt ID"] > 0
        return found

    def __str__(self) -> str:
        return (
            f"{self.copies} copies of slow tasks, {self.copies_won} of them won, {self.lost_tasks} tasks lost, "
            f"{self.stages_again} stages run again"
        )


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"))
    process.start()
    yield process
    process.kill()


class ClusterJob:
    """A job that writes numbered batches on the cluster."""

    def __init__(
        self, master: str, bootstrap: str, topic: str, guarantee: str, folder: Path, *, conf: Sequence[str] = ()
    ) -> None:
        source = folder / "source"
        source.mkdir()
        for number in range(FILES):
            (source / f"{number:04}.txt").write_text("".join(f"{number}-{line}\n" for line in range(LINES)))
        self._report, self._log, self.event_folder = folder / "report.jsonl", folder / "log.txt", folder / "events"
        self.event_folder.mkdir()
        confs = ["spark.speculation=true", "spark.speculation.interval=50ms", "spark.speculation.multiplier=1.1"]
        confs += ["spark.speculation.quantile=0.5", "spark.ui.enabled=false", "spark.executor.memory=512m"]
        confs += ["spark.driver.host=127.0.0.1", "spark.eventLog.enabled=true", "spark.eventLog.compress=false"]
        confs += [f"spark.eventLog.dir={self.event_folder.as_uri()}"]
        if guarantee == "hot":
            # Adaptive execution would make one task of so few rows.
            confs += ["spark.sql.adaptive.enabled=false"]
        confs += conf
        submit = " ".join(["--master", master, *(f"--conf {conf}" for conf in confs), "pyspark-shell"])
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
        environment |= {"PYTHONPATH": str(ROOT), "PYSPARK_SUBMIT_ARGS": submit}
        script = ROOT / "tests" / "support" / "numbered_batches.py"
        command = [sys.executable, str(script), bootstrap, topic, str(source), str(self._report), guarantee]
        self._command, self._environment = [*command, str(SLOW_S)], environment
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Start the job, for the first time or again: it resumes after its last committed batch."""
        with self._log.open("ab") as out:
            self.process = subprocess.Popen(
                self._command, env=self._environment, stdout=out, stderr=out, start_new_session=True
            )
        return self.process

    def versions(self) -> list[int]:
        if not self._report.exists():
            return []
        return [json.loads(line)["version"] for line in self._report.read_text().splitlines()]

    def log(self) -> str:
        return self._log.read_text()[-3000:]


@pytest.mark.behaviour(
    "Faults: exactly once", "Executors that are killed, speculative copies and stages run again lose and repeat nothing"
)
@pytest.mark.parametrize("guarantee", ["parallel", "atomic"])
def test_killed_executors_and_speculation_lose_or_repeat_nothing(
    standalone: StandaloneCluster, broker: BrokerProcess, guarantee: str, tmp_path: Path, figure: Figure
) -> None:
    topic = f"executors-{os.urandom(4).hex()}"
    with AdminClient(broker.bootstrap_servers) as admin:
        admin.create_topic(topic, 4)
    job = ClusterJob(standalone.master, broker.bootstrap_servers, topic, guarantee, tmp_path)
    moments = random.Random(5)
    killed = 0
    try:
        while job.process.poll() is None:
            if killed < KILLS and len(job.versions()) > 2 * killed:
                time.sleep(moments.uniform(0, SLOW_S))
                killed += standalone.send(signal.SIGKILL, killed)
            time.sleep(0.05)
    finally:
        kill_session(job.process)
    assert job.process.returncode == 0, job.log()
    found = Counter(read_values(broker.bootstrap_servers, topic))
    expected = Counter(f"{number}-{line}".encode() for number in range(FILES) for line in range(LINES))
    missing, surplus = (expected - found).total(), found - expected
    twice = sum(count for value, count in surplus.items() if value in expected)
    extra = surplus.total() - twice
    events = Events.read(job.event_folder)
    figure(
        guarantee,
        f"{killed} executors killed, {events}, {FILES} batches, {FILES * LINES} rows: missing {missing}, twice "
        f"{twice}, extra {extra}",
    )
    assert killed == KILLS
    assert events.copies
    assert job.versions() == list(range(FILES))
    assert (missing, twice, extra) == (0, 0, 0)


@pytest.mark.behaviour(
    "Faults: exactly once", "A hot partition is written once with speculation, however many hosts its copies find"
)
def test_hot_partition_is_written_once_with_speculation(
    broker: BrokerProcess, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, figure: Figure
) -> None:
    """With two hosts a task has at most one copy, whose failure ends the stage only if it is the fourth."""
    topic = f"hot-{os.urandom(4).hex()}"
    with AdminClient(broker.bootstrap_servers) as admin:
        admin.create_topic(topic, 6)
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    cluster = StandaloneCluster(tmp_path_factory.mktemp("five"), environ, FIVE_HOSTS)
    job = ClusterJob(cluster.master, broker.bootstrap_servers, topic, "hot", tmp_path)
    try:
        job.process.wait(1200)
    finally:
        kill_session(job.process)
        cluster.stop()
    assert job.process.returncode == 0, job.log()
    events = Events.read(job.event_folder)
    figure("five hosts", str(events))
    assert events.copies
    assert not events.copies_failed
    expected = Counter(f"{number}-{line}".encode() for number in range(FILES) for line in range(LINES))
    assert Counter(read_values(broker.bootstrap_servers, topic)) == expected


_DECOMMISSION = (
    "spark.decommission.enabled=true",
    "spark.storage.decommission.enabled=true",
    "spark.storage.decommission.rddBlocks.enabled=true",
    "spark.storage.decommission.shuffleBlocks.enabled=true",
    "spark.executor.decommission.killInterval=1s",
)
#: Settings, and the signal that two executors get in a batch: it kills or decommissions them.
CHANGING = {
    "no task is tried again": (
        ("spark.task.maxFailures=1", "spark.stage.maxConsecutiveAttempts=1"),
        signal.SIGKILL,
    ),
    "executors are decommissioned": (_DECOMMISSION, signal.SIGPWR),
    # Spark removes idle executors without cached rows.
    "executors come and go": (
        (
            *_DECOMMISSION,
            "spark.dynamicAllocation.enabled=true",
            "spark.dynamicAllocation.shuffleTracking.enabled=true",
            "spark.dynamicAllocation.shuffleTracking.timeout=1s",
            "spark.dynamicAllocation.minExecutors=0",
            "spark.dynamicAllocation.executorIdleTimeout=1s",
            "spark.dynamicAllocation.cachedExecutorIdleTimeout=60s",
        ),
        signal.SIGPWR,
    ),
}


@pytest.mark.behaviour(
    "Faults: exactly once", "Clusters that decommission executors or try no task again lose and repeat nothing"
)
@pytest.mark.parametrize("guarantee", ["parallel", "atomic"])
@pytest.mark.parametrize("changing", CHANGING)
def test_changing_cluster_loses_and_repeats_nothing(
    standalone: StandaloneCluster, broker: BrokerProcess, changing: str, guarantee: str, tmp_path: Path, figure: Figure
) -> None:
    topic = f"changing-{os.urandom(4).hex()}"
    with AdminClient(broker.bootstrap_servers) as admin:
        admin.create_topic(topic, 4)
    conf, sent = CHANGING[changing]
    job = ClusterJob(standalone.master, broker.bootstrap_servers, topic, guarantee, tmp_path, conf=conf)
    moments, signalled, starts = random.Random(5), 0, 1
    try:
        while job.process.poll() is None or (job.process.returncode and starts <= KILLS):
            if job.process.poll() is not None:
                job.start()
                starts += 1
            if signalled < KILLS and len(job.versions()) > 2 * signalled:
                time.sleep(moments.uniform(0, SLOW_S))
                signalled += standalone.send(sent, signalled)
            time.sleep(0.05)
    finally:
        kill_session(job.process)
    assert job.process.returncode == 0, job.log()
    figure(f"{changing}, {guarantee}", f"{signalled} signals, {starts} starts, {Events.read(job.event_folder)}")
    assert signalled
    expected = Counter(f"{number}-{line}".encode() for number in range(FILES) for line in range(LINES))
    assert Counter(read_values(broker.bootstrap_servers, topic)) == expected
