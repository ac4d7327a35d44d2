"""The commands of docs/clusters.md, on workers whose own Python has no kafkalite."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.amounts import only_long
from tests.support.installed import ROOT, Environment, build
from tests.support.pages import block
from tests.support.readback import read_topic
from tests.support.standalone_cluster import SPARK_HOME, StandaloneCluster

PAGE = ROOT / "docs" / "clusters.md"
REGISTER = "kafka_sink.register(spark)"
CONF = """
spark.driver.host 127.0.0.1
spark.executor.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark.executor.memory 512m
spark.ui.enabled false
"""


def replaced(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


class Submission:
    """A folder with the wheel and the job of the page, where its commands are run by a shell; *environ* is also that
    of workers: their first Python has what kafkalite needs, and not kafkalite."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "submission"
        self.folder.mkdir()
        shutil.copy(build(folder).wheel, self.folder)
        (self.folder / "spark-defaults.conf").write_text(CONF)
        environment = Environment(folder / "workers")
        without = "import importlib.util as util; print(util.find_spec('kafka_sink'))"
        assert environment.run(environment.python, "-c", without) == "None\n"
        environ = {name: value for name, value in environment.environ().items() if not name.startswith("PYSPARK_")}
        environ["PATH"] += f":{SPARK_HOME / 'bin'}"
        self.environ = environ | {"SPARK_HOME": str(SPARK_HOME), "SPARK_CONF_DIR": str(self.folder)}

    def run(self, way: str, master: str, job: str, bootstrap_servers: str, topic: str) -> None:
        """Submit *job* with the commands of the page that have the option *way*."""
        job = replaced(replaced(job, "broker:9092", bootstrap_servers), '"orders"', f'"{topic}"')
        (self.folder / "orders.py").write_text(job)
        done = subprocess.run(
            ["bash", "-euc", replaced(block(PAGE, f" {way} "), "spark://master:7077", f"'{master}'")],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1200,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-6000:]


@pytest.fixture(scope="module")
def submission(tmp_path_factory: pytest.TempPathFactory) -> Submission:
    return Submission(tmp_path_factory.mktemp("clusters"))


@pytest.fixture(scope="module")
def master(submission: Submission, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    running = StandaloneCluster(tmp_path_factory.mktemp("standalone"), submission.environ)
    yield running.master
    running.stop()


def values(cluster: Any, topic: str) -> list[int]:
    return sorted(int(message.value or b"") for message in read_topic(cluster.bootstrap_servers, topic))


@pytest.mark.behaviour("Package", "A zip of the package is enough for executors that only have its dependencies")
@only_long
def test_py_files_bring_the_package_to_an_executor(
    submission: Submission, cluster: Any, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    # One executor, in a JVM of its own.
    submission.run("--py-files", "local-cluster[1,1,512]", block(PAGE, REGISTER), cluster.bootstrap_servers, topic)
    assert values(cluster, topic) == list(range(1000))


@pytest.mark.behaviour("Package", "The commands of docs/clusters.md work on a cluster whose workers lack kafkalite")
@only_long
@pytest.mark.parametrize("way", ["--py-files", "--archives"])
def test_the_pages_commands_work_on_a_cluster(
    submission: Submission, master: str, way: str, cluster: Any, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    job = block(PAGE, REGISTER)
    if way == "--archives":
        job = replaced(job, REGISTER, "")
    submission.run(way, master, job, cluster.bootstrap_servers, topic)
    assert values(cluster, topic) == list(range(1000))
