"""The commands of docs/clusters.md, on workers whose own Python has no kafkalite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.amounts import only_long
from tests.support.installed import Environment
from tests.support.pages import block
from tests.support.readback import read_topic
from tests.support.standalone_cluster import SPARK_HOME, StandaloneCluster
from tests.support.submission import PAGE, Submission, replaced

REGISTER = "kafka_sink.register(spark)"


def submit(submission: Submission, way: str, master: str, job: str, bootstrap_servers: str, topic: str) -> None:
    """Submit *job* with the commands of the page that have the option *way*."""
    job = replaced(replaced(job, "broker:9092", bootstrap_servers), '"orders"', f'"{topic}"')
    commands = block(PAGE, f"--master spark://master:7077 {way} ")
    submission.submit(job, replaced(commands, "spark://master:7077", f"'{master}'"))


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of the program and of workers, whose Python has only kafkalite's requirements."""
    environment = Environment(tmp_path_factory.mktemp("python") / "workers")
    without = "import importlib.util as util; print(util.find_spec('kafka_sink'))"
    assert environment.run(environment.python, "-c", without) == "None\n"
    environ = {name: value for name, value in environment.environ().items() if not name.startswith("PYSPARK_")}
    environ["PATH"] += f":{SPARK_HOME / 'bin'}"
    return {**environ, "SPARK_HOME": str(SPARK_HOME)}


@pytest.fixture(scope="module")
def submission(environ: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Submission:
    return Submission(tmp_path_factory.mktemp("clusters"), environ)


@pytest.fixture(scope="module")
def master(environ: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    running = StandaloneCluster(tmp_path_factory.mktemp("standalone"), environ)
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
    # One executor, in a separate JVM.
    job = block(PAGE, REGISTER)
    submit(submission, "--py-files", "local-cluster[1,1,512]", job, cluster.bootstrap_servers, topic)
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
        submission.make_environment()
    submit(submission, way, master, job, cluster.bootstrap_servers, topic)
    assert values(cluster, topic) == list(range(1000))


@pytest.mark.behaviour("Package", "kafkalite is installed without a network from what pip has downloaded elsewhere")
@only_long
def test_packages_are_installed_without_a_network(submission: Submission, tmp_path: Path) -> None:
    submission.run(block(PAGE, "pip download"))
    environment = Environment(tmp_path / "air-gapped", linked=False)
    environment.run("bash", "-euc", block(PAGE, "--no-index"), cwd=submission.folder)
    assert environment.run("kafkalite", "--version").startswith("kafkalite")
