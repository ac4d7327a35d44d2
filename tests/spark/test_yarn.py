"""The commands of docs/clusters.md on Hadoop's own YARN: only with ``scripts/test.sh --yarn``."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyspark
import pytest

from tests.conftest import Figure
from tests.support import cluster_job
from tests.support.broker_process import BrokerProcess
from tests.support.killer import Killer
from tests.support.pages import block
from tests.support.readback import read_topic
from tests.support.submission import PAGE, Submission, replaced
from tests.support.yarn_cluster import JARS, yarn_cluster

pytestmark = [pytest.mark.skipif(not JARS, reason="only with --yarn"), pytest.mark.timeout(3000)]
ROWS = 40_000
#: Read in every run, so that the test fails without YARN, too, if the page no longer has the commands.
COMMANDS = {mode: block(PAGE, f"--master yarn --deploy-mode {mode}") for mode in ("cluster", "client")}
SPARK_HOME = Path(pyspark.__file__).parent


@pytest.fixture(scope="module")
def submission(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Submission]:
    folder = tmp_path_factory.mktemp("yarn")
    with yarn_cluster(folder) as conf:
        names = ("PYSPARK", "PYTHON", "SPARK", "VIRTUAL_ENV")
        environ = {name: value for name, value in os.environ.items() if not name.startswith(names)}
        environ |= {"SPARK_HOME": str(SPARK_HOME), "PATH": f"{SPARK_HOME / 'bin'}:{environ['PATH']}"}
        # Without spark.yarn.jars Spark archives its jars, 400 MB, for each job.
        settings = f"spark.yarn.jars local:{SPARK_HOME}/jars/*\nspark.yarn.stagingDir {(folder / 'staging').as_uri()}\n"
        settings += "spark.driver.memory 512m\nspark.executor.instances 2\nspark.yarn.maxAppAttempts 1\n"
        made = Submission(folder, {**environ, "HADOOP_CONF_DIR": str(conf)}, settings)
        made.make_environment()
        yield made


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"))
    process.start()
    yield process
    process.kill()


def kill_container() -> bool:
    """Kill a process of Spark's containers; return false if there is none."""
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = command.read_bytes().split(b"\0")
            if words[0].endswith(b"/java") and b"org.apache.spark.executor.YarnCoarseGrainedExecutorBackend" in words:
                os.kill(int(command.parent.name), signal.SIGKILL)
                return True
    return False


@pytest.mark.behaviour("Package", "What is written on YARN, in both deploy modes, is exact though a container dies")
@pytest.mark.parametrize("mode", COMMANDS)
def test_yarn_writes_each_way_exactly(
    submission: Submission, broker: BrokerProcess, mode: str, tmp_path: Path, figure: Figure
) -> None:
    job = Path(cluster_job.__file__).read_text()
    arguments = f"orders.py {broker.bootstrap_servers} {mode} {tmp_path / 'job'} {ROWS}"
    commands = replaced(COMMANDS[mode], "orders.py", arguments)
    commands = replaced(commands, "/etc/hadoop/conf", '"$HADOOP_CONF_DIR"')
    with Killer(broker.bootstrap_servers, f"{mode}-parallel", kill_container) as killer:
        submission.submit(job, commands)
    assert killer.killed == 1
    expected = Counter(str(number).encode() for number in range(ROWS))
    for way in cluster_job.WAYS:
        found = Counter(message.value or b"" for message in read_topic(broker.bootstrap_servers, f"{mode}-{way}"))
        missing, more = (expected - found).total(), (found - expected).total()
        figure(f"{mode}, {way}", f"{ROWS} rows: missing {missing}, more {more}")
        assert (missing, more) == (0, 0), way
