"""The distributions built from the checkout, installed in another environment and used there as by a user."""

from __future__ import annotations

import configparser
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from kafka_sink.common.version import VERSION
from tests.support.amounts import only_long
from tests.support.installed import ROOT, Built, Environment, build, needed
from tests.support.pages import blocks

#: A user's project, whose tests use the pytest plugin, Spark, the embedded broker and the command line.
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
#: Uses the public names in an environment with only the package's requirements, pytest and confluent-kafka.
BARE = """
import enum
import importlib
import importlib.util
import re
from pathlib import Path

import confluent_kafka
import pytest

import kafka_sink
from kafka_sink import BrokerConfig, EmbeddedCluster, KafkaProducer, ProducerRecord
from kafka_sink.admin import AclBinding, AclBindingFilter, AclOperation, AdminClient, NewTopic, ResourceType
from kafka_sink.errors import ApiError, ErrorCode, KafkaError, RequirementError
from kafka_sink.testing import ClusterSecurity, EmbeddedRegistry

OF_SPARK = {"cause_of", "check", "foreach_batch", "peek", "progress_listener", "register", "run_until_stopped", "write"}
PATHS = [re.match(r"[\\w.]+", line)[0] for line in Path("public-names.txt").read_text().splitlines()]


def test_nothing_of_spark_is_there():
    assert importlib.util.find_spec("pyspark") is None


@pytest.mark.parametrize("module", ["kafka_sink", "kafka_sink.admin", "kafka_sink.errors", "kafka_sink.testing"])
def test_every_name_is_there(module):
    paths = [path.removeprefix(module + ".").split(".") for path in PATHS if path.rpartition(".")[0].startswith(module)]
    of_module = [path for path in paths if module != "kafka_sink" or path[0] not in {"admin", "errors", "testing"}]
    assert of_module
    for first, *attributes in of_module:
        if first in OF_SPARK:
            with pytest.raises(RequirementError, match=r"pip install 'kafkalite\\[spark\\]'"):
                getattr(kafka_sink, first)(None)
            continue
        value = getattr(importlib.import_module(module), first)
        for attribute in attributes:
            assert hasattr(value, attribute), (first, attribute)
        if isinstance(value, type) and issubclass(value, BaseException):
            assert issubclass(value, KafkaError)
        elif isinstance(value, type) and issubclass(value, enum.IntEnum):
            assert [value(number) for number in map(int, value)] == list(value)


def test_producer_admin_and_permissions():
    config = BrokerConfig(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer", super_users="User:ANONYMOUS"
    )
    with EmbeddedCluster(config=config) as cluster, AdminClient(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("orders", partitions=2)])
        acl = AclBinding(
            principal="User:a", operation=AclOperation.READ, resource_type=ResourceType.TOPIC, resource_name="orders"
        )
        admin.create_acls([acl])
        assert admin.describe_acls(AclBindingFilter.of(acl)) == [acl]
        with KafkaProducer(ClusterSecurity().client(cluster.bootstrap_servers)) as producer:
            assert producer.send(ProducerRecord("orders", b"1", partition=1)).result().offset == 0


def test_an_error_of_the_brokers(kafkalite_topic, kafkalite_faults, kafkalite_client):
    with kafkalite_faults.on("produce", topic=kafkalite_topic, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED):
        with KafkaProducer(kafkalite_client) as producer, pytest.raises(ApiError) as refused:
            producer.send(ProducerRecord(kafkalite_topic, b"1")).result()
    assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_registry():
    with EmbeddedRegistry() as registry:
        assert registry.url.startswith("http://127.0.0.1:")
"""
TYPED = """
from kafka_sink import KafkaProducer, ProducerRecord

def send(producer: KafkaProducer) -> int:
    return producer.send(ProducerRecord("orders", b"1")).result().offset

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
    assert in_wheel - metadata == sources() | {f"kafkalite-{VERSION}.data/scripts/kafkalite-python"}
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
    scripts = {"kafka_sink/spark/kafkalite-python"}
    assert in_sdist == sources() | scripts | {"LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg"}


def try_installed(environment: Environment, folder: Path) -> None:
    """Run a user's project in *folder*."""
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


@pytest.mark.behaviour("Package", "Without PySpark, all public names can be imported, and used if they are not Spark's")
def test_public_names_need_what_is_required_alone(built: Built, tmp_path: Path) -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    required = setup["options"]["install_requires"].split()
    environment = Environment(tmp_path / "bare", packages=needed(*required, "pytest", "confluent-kafka"))
    environment.install(built.wheel)
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "test_names.py").write_text(BARE)
    (folder / "public-names.txt").symlink_to(ROOT / "docs" / "public-names.txt")
    faults = [block for block in blocks(ROOT / "docs" / "testing.md", "python") if "kafkalite_faults" in block]
    for number, block in enumerate(faults):
        (folder / f"test_fault_{number}.py").write_text(block)
    tests = environment.run(environment.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=folder)
    assert faults and f"{8 + len(faults)} passed" in tests, tests


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
