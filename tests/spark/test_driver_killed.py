"""The whole of Spark killed with -9 in the middle of a stream, or of numbered batches, again and again; the topic ends
up exact.

More kills: KAFKALITE_SPARK_KILLS.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_sink.client.admin import AdminClient
from tests.conftest import Figure
from tests.support.broker_process import BrokerProcess
from tests.support.readback import read_topic

JOBS = Path(__file__).parents[2] / "spark_jobs"
BATCHES_JOB = Path(__file__).parents[1] / "support" / "numbered_batches.py"
KILLS = int(os.environ.get("KAFKALITE_SPARK_KILLS", "1"))
BATCHES_BETWEEN = 4
LINES = 300
LIFE_S = 120.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"))
    process.start()
    yield process
    process.kill()


class Job:
    """A job of spark_jobs on a folder of files, a file a micro-batch; or with "batch", each a batch of its own."""

    def __init__(self, bootstrap: str, topic: str, guarantee: str, folder: Path, files: int) -> None:
        self.report = folder / "report.jsonl"
        self._source = folder / "source"
        self._source.mkdir()
        self._log = folder / "log.txt"
        for number in range(files):
            (self._source / f"{number:04}.txt").write_text("".join(f"{number}-{line}\n" for line in range(LINES)))
        if guarantee == "batch":
            self._command = [sys.executable, str(BATCHES_JOB), bootstrap, topic, str(self._source), str(self.report)]
            return
        job = JOBS / ("stream_to_kafka.py" if guarantee == "exactly-once" else "foreach_batch_to_kafka.py")
        self._command = [sys.executable, str(job), "--bootstrap-servers", bootstrap, "--topic", topic, "--guarantee"]
        self._command += [guarantee, "--input", str(self._source), "--checkpoint", str(folder / "checkpoint")]
        self._command += ["--report", str(self.report), "--until-written"]

    def start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        environment["PYTHONPATH"] = str(JOBS.parent)
        environment["PYSPARK_SUBMIT_ARGS"] = "--master local[2] --conf spark.ui.enabled=false pyspark-shell"
        with self._log.open("ab") as log:
            return subprocess.Popen(self._command, env=environment, stdout=log, stderr=log, start_new_session=True)

    def batches(self) -> int:
        return len(self.report.read_text().splitlines()) if self.report.exists() else 0

    def run_until_killed(self, after_batches: int, delay_s: float) -> None:
        """Kill driver, JVM and Python workers together, *delay_s* after the batch number *after_batches*."""
        process = self.start()
        deadline = time.monotonic() + LIFE_S
        while self.batches() < after_batches:
            assert process.poll() is None, self._log.read_text()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(delay_s)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def finish(self) -> None:
        assert self.start().wait(LIFE_S) == 0, self._log.read_text()[-3000:]


@pytest.mark.timeout(200 + 100 * KILLS)
@pytest.mark.parametrize("guarantee", os.environ.get("KAFKALITE_SPARK_GUARANTEES", "exactly-once").split(","))
def test_a_stream_whose_driver_is_killed_is_exact_in_the_end(
    broker: BrokerProcess, guarantee: str, tmp_path: Path, figure: Figure
) -> None:
    topic = f"killed-{os.urandom(4).hex()}"
    with AdminClient(broker.bootstrap_servers) as admin:
        admin.create_topic(topic, 4)
    files = BATCHES_BETWEEN * (KILLS + 1)
    job = Job(broker.bootstrap_servers, topic, guarantee, tmp_path, files)
    moments = random.Random(5)
    for _ in range(KILLS):
        job.run_until_killed(job.batches() + moments.randint(1, 3), moments.uniform(0, 0.4))
    job.finish()
    found = Counter(message.value for message in read_topic(broker.bootstrap_servers, topic))
    expected = Counter(f"{number}-{line}".encode() for number in range(files) for line in range(LINES))
    missing, surplus = sum((expected - found).values()), sum((found - expected).values())
    figure(guarantee, f"{KILLS} kills, {files} batches, {files * LINES} rows: missing {missing}, duplicates {surplus}")
    assert (missing, surplus) == (0, 0)
