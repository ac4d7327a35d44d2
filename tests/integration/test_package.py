"""What is built from the checkout, installed elsewhere and tried from there as by a user."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.amounts import only_long
from tests.support.installed import ROOT, Built, Environment, build

#: A project of somebody else, whose tests use the pytest plugin, Spark, the embedded broker and the command line.
CONFTEST = """
import pytest
from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark():
    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    yield session
    session.stop()
"""
THEIR_TEST = """
import importlib.metadata
import json
import subprocess
import sys

import kafka_sink


def test_orders_are_written(spark, kafkalite_cluster, kafkalite_topic):
    assert kafka_sink.__file__.startswith(sys.prefix)
    at = kafkalite_cluster.bootstrap_servers
    orders = spark.range(100).selectExpr("cast(id as string) as value").write.format("kafkalite").mode("append")
    orders.option("kafka.bootstrap.servers", at).option("topic", kafkalite_topic).save()

    consume = ["kafkalite", "consume", kafkalite_topic, "--from-beginning", "--bootstrap-server", at]
    printed = subprocess.run(consume, check=True, capture_output=True, text=True, timeout=60).stdout
    assert sorted(int(json.loads(line)["value"]) for line in printed.splitlines()) == list(range(100))


def test_the_command_knows_its_version():
    printed = subprocess.run(["kafkalite", "--version"], check=True, capture_output=True, text=True, timeout=60).stdout
    assert importlib.metadata.version("kafkalite") in printed
"""
TYPED = """
from kafka_sink import KafkaProducer, ProducerRecord

def send(producer: KafkaProducer) -> int:
    return producer.send(ProducerRecord("orders", b"1")).get().offset

reveal_type(KafkaProducer)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("built"))


def sources() -> set[str]:
    data = ("ui/templates", "ui/static", "cli/shipped")
    pages = {path for folder in data for path in (ROOT / "kafka_sink" / folder).iterdir()}
    files = {path for package in ("kafka_sink", "pyspark_kafkalite") for path in (ROOT / package).rglob("*.py")}
    return {path.relative_to(ROOT).as_posix() for path in files | pages} | {"kafka_sink/py.typed"}


@pytest.mark.behaviour("Package", "Wheel and source distribution hold the sources, the licence, and nothing else")
def test_wheel_and_sdist_hold_the_sources_and_nothing_else(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        in_wheel = set(wheel.namelist())
    metadata = {name for name in in_wheel if ".dist-info/" in name}
    assert in_wheel - metadata == sources()
    assert {name.partition(".dist-info/")[2] for name in metadata} == {
        "METADATA",
        "RECORD",
        "WHEEL",
        "entry_points.txt",
        "licenses/LICENSE",
        "top_level.txt",
    }
    with tarfile.open(built.sdist) as sdist:
        files = {member.name.partition("/")[2] for member in sdist.getmembers() if member.isfile()}
    in_sdist = {name for name in files if not name.startswith("kafkalite.egg-info/")}
    assert in_sdist == sources() | {"LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg"}


def try_installed(environment: Environment, folder: Path) -> None:
    """Run the project of somebody else in *folder*."""
    folder.mkdir()
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_theirs.py").write_text(THEIR_TEST)
    tests = environment.run(environment.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=folder)
    assert "2 passed" in tests


def check_types(environment: Environment, folder: Path) -> None:
    """Check the types of a program in *folder* that uses the package."""
    (folder / "typed.py").write_text(TYPED)
    types = environment.run(environment.python, "-m", "mypy", "--strict", "typed.py", cwd=folder)
    assert "def (properties: " in types, types


@pytest.mark.behaviour("Package", "Outside the checkout, format, broker, pytest plugin and command of a wheel work")
@pytest.mark.timeout(600)
def test_installed_wheel_works_outside_the_checkout(built: Built, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "environment")
    environment.install(built.wheel)
    try_installed(environment, tmp_path / "theirs")


@pytest.mark.behaviour(
    "Package", "Wheel and source distribution can be installed into empty environments, with their types"
)
@only_long
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_wheel_and_sdist_work_in_empty_environments(kind: str, tmp_path: Path) -> None:
    script = ["bash", str(ROOT / "scripts" / "build.sh"), str(tmp_path / "dist")]
    printed = subprocess.run(script, check=True, capture_output=True, text=True, timeout=1200).stdout
    (distribution,) = (line for line in printed.split() if line.endswith(".whl" if kind == "wheel" else ".tar.gz"))
    environment = Environment(tmp_path / "environment", linked=False)
    environment.install(f"{distribution}[spark]", "pytest", "mypy")
    try_installed(environment, tmp_path / "theirs")
    check_types(environment, tmp_path / "theirs")
