"""The pytest plugin in users' projects: separate pytest runs, in folders of their own, without our conftest."""

from __future__ import annotations

import configparser
import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Figure
from tests.support.amounts import LONG

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text()


@dataclasses.dataclass(frozen=True)
class Project:
    """A user's project: the texts of its tests, the lines of its pytest.ini, and pytest's arguments."""

    tests: tuple[str, ...]
    ini: str = ""
    arguments: tuple[str, ...] = ("--strict-markers",)


@dataclasses.dataclass(frozen=True)
class Ran:
    code: int
    printed: str


NOTHING = """
import sys

def test_it(request):
    assert request.config.pluginmanager.has_plugin("kafkalite")
    ours = {name for name in sys.modules if name.startswith("kafka_sink")}
    assert ours == {"kafka_sink", "kafka_sink.testing", "kafka_sink.testing.plugin"}
    assert not {"pyspark", "numpy", "pyarrow", "click"} & set(sys.modules)
"""
FOREIGN = """
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

seen = []

def write(cluster, topic, **properties):
    failed = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **properties})
    producer.produce(topic, b"hello", on_delivery=lambda error, message: failed.append(error))
    assert producer.flush(20) == 0
    return failed[0]

def test_written_and_read(kafkalite_cluster, kafkalite_topic):
    seen.append(kafkalite_topic)
    assert write(kafkalite_cluster, kafkalite_topic) is None
    reader = Consumer({"bootstrap.servers": kafkalite_cluster.bootstrap_servers, "group.id": "g",
                       "auto.offset.reset": "earliest"})
    reader.subscribe([kafkalite_topic])
    assert reader.poll(20).value() == b"hello"
    reader.close()

@pytest.mark.kafkalite_topic(partitions=6, configs={"retention.ms": "60000"})
def test_marked(kafkalite_cluster, kafkalite_topic):
    admin = AdminClient({"bootstrap.servers": kafkalite_cluster.bootstrap_servers})
    topics = admin.list_topics(timeout=60).topics
    assert len(topics[kafkalite_topic].partitions) == 6
    assert seen[0] not in topics and kafkalite_topic != seen[0]
    assert len(kafkalite_cluster.nodes) == 2

def test_fault(kafkalite_cluster, kafkalite_topic, kafkalite_faults):
    kafkalite_faults.on("produce", drop="request")
    failure = write(kafkalite_cluster, kafkalite_topic, **{"message.timeout.ms": 500, "linger.ms": 0})
    assert failure.name() == "_MSG_TIMED_OUT"

def test_fault_is_over(kafkalite_cluster, kafkalite_topic):
    assert kafkalite_cluster.faults.of_requests == ()
    assert write(kafkalite_cluster, kafkalite_topic) is None
"""
SCOPES = """
import json
import urllib.request

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from kafka_sink import KafkaProducer, ProducerRecord

clusters = []

def test_scopes(kafkalite_cluster, kafkalite_module_cluster, kafkalite_function_cluster):
    clusters.extend([kafkalite_cluster, kafkalite_module_cluster, kafkalite_function_cluster])
    assert len({cluster.bootstrap_servers for cluster in clusters}) == 3

def test_scopes_again(kafkalite_cluster, kafkalite_module_cluster, kafkalite_function_cluster):
    now = [kafkalite_cluster, kafkalite_module_cluster, kafkalite_function_cluster]
    assert [one is other for one, other in zip(now, clusters)] == [True, True, False]
    # Left to the tests of topics with this name.
    kafkalite_cluster.create_topic("orders", 5)

@pytest.mark.kafkalite_topics("orders", "payments", partitions=2)
@pytest.mark.parametrize("turn", range(2))
def test_topics(turn, kafkalite_topics, kafkalite_client, kafkalite_librdkafka):
    assert kafkalite_topics == ("orders", "payments")
    with KafkaProducer(kafkalite_client) as producer:
        assert producer.send(ProducerRecord("orders", b"x", partition=1)).result(60).offset == 0
    producer = Producer(kafkalite_librdkafka)
    producer.produce("payments", b"y")
    assert producer.flush(20) == 0
    topics = AdminClient(kafkalite_librdkafka).list_topics(timeout=20).topics
    assert {name: len(topics[name].partitions) for name in kafkalite_topics} == {"orders": 2, "payments": 2}

def test_topics_are_gone_and_nobody_else_comes_in(kafkalite_cluster, kafkalite_librdkafka):
    assert not AdminClient(kafkalite_librdkafka).list_topics(timeout=20).topics
    assert kafkalite_librdkafka["security.protocol"] == "SASL_SSL"
    stranger = AdminClient({**kafkalite_librdkafka, "sasl.password": "wrong", "log_level": 0})
    with pytest.raises(KafkaException):
        stranger.list_topics(timeout=2)

@pytest.mark.parametrize("turn", range(2))
def test_registry(turn, kafkalite_registry):
    def ask(path, body=None):
        request = urllib.request.Request(kafkalite_registry.url + path, body)
        request.add_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    assert ask("/subjects") == []
    ask("/subjects/s/versions", json.dumps({"schema": '"string"'}).encode())
    assert ask("/subjects") == ["s"]
"""
OVERRIDES = """
import pytest

@pytest.fixture(scope="session")
def kafkalite_config():
    return {"nodes": 3, "num.partitions": 4}

def test_it(kafkalite_cluster):
    assert len(kafkalite_cluster.nodes) == 3
"""
WORKERS = """
import fcntl
import os
import pathlib

import pytest

@pytest.mark.kafkalite_topic(partitions=3)
@pytest.mark.parametrize("number", range(2))
def test_it(number, kafkalite_cluster, kafkalite_topic, kafkalite_librdkafka):
    from confluent_kafka.admin import AdminClient

    topics = AdminClient(kafkalite_librdkafka).list_topics(timeout=20).topics
    assert len(topics[kafkalite_topic].partitions) == 3
    worker = os.environ["PYTEST_XDIST_WORKER"]
    pathlib.Path(f"{worker}.servers").write_text(kafkalite_cluster.bootstrap_servers)

@pytest.mark.kafkalite_topics("orders", "refunds")
def test_fixed_names_are_nobody_elses(request, kafkalite_topics):
    shared = request.config.workerinput.get("kafkalite")
    for name in kafkalite_topics if shared else ():
        with open(pathlib.Path(shared["locks"], f"{name}.lock")) as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

def test_faults(kafkalite_faults): ...
"""
SHARING = ("-n2", "--dist=each")
#: Invalid lines of the ini option, and the error for each.
WRONG = {
    "num.partition = 3": "did you mean num.partitions?",
    "nodes = three": "nodes must be a whole number, got 'three'",
    "nodes": "expected NAME=VALUE, such as num.partitions=3, not 'nodes'",
    "security = SASL": "security: 'SASL' is unknown, expected one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
    "mechanism = PLAIN": "mechanism has no effect without security",
}


#: The settings of the page's ini files: the second one is for tests with users, the first one for all others.
FIRST, OF_USERS = re.findall(r"```ini\n# pytest.ini\n\[pytest\]\n(.*?)```", PAGE, re.DOTALL)


def on_the_page(having: str = "") -> tuple[str, ...]:
    """Return the tests that contain *having*, for Spark or further users; without it, those that need neither."""
    tests = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "def test_" in block]
    if having:
        return tuple(block for block in tests if having in block)
    return tuple(block for block in tests if "pyspark" not in block and "alter_user" not in block)


#: The first one runs in a process that has loaded no modules.
PROJECTS = {
    "nothing": Project((NOTHING,)),
    "foreign": Project((FOREIGN,), "kafkalite =\n    nodes = 2\n    auto.create.topics.enable = false"),
    "scopes": Project((SCOPES,), "kafkalite =\n    security = SASL_SSL\n    auto_create_topics_enable = false"),
    "overrides": Project((OVERRIDES,)),
    **{line: Project(("def test_it(kafkalite_cluster): ...",), f"kafkalite = {line}") for line in WRONG},
    **{
        f"shared = {shared}": Project(
            (WORKERS,), f"kafkalite =\n    security = SASL_PLAINTEXT\n    shared = {shared}", SHARING
        )
        for shared in ("true", "false")
    },
    "page": Project(on_the_page(), FIRST, ("-n2", "--dist=loadfile") if LONG else ()),
    "page with users": Project(on_the_page("alter_user"), OF_USERS),
    **({"page with Spark": Project(on_the_page("pyspark"))} if LONG else {}),
}

#: Runs one project after the other, without third-party plugins, which take a second per run.
RUN = """
import json, os, sys
import pytest
os.environ["PYTEST_ADDOPTS"] = "-q -p no:cacheprovider -p no:anyio -p no:hypothesispytest"
for folder, arguments in json.load(sys.stdin):
    os.chdir(folder)
    code = pytest.main(arguments)
    print(f"== {folder} {int(code)}", flush=True)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The parent folder of all projects."""
    return tmp_path_factory.mktemp("projects")


@pytest.fixture(scope="module")
def ran(folder: Path) -> dict[str, Ran]:
    """The results of each project, with kafkalite installed with the entry points of our setup.cfg."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    installed = folder / "site" / "kafkalite_here-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: kafkalite-here\nVersion: 0\n")
    lines = setup["options.entry_points"]["pytest11"].strip()
    (installed / "entry_points.txt").write_text(f"[pytest11]\n{lines}\n")
    runs = []
    for number, (name, project) in enumerate(PROJECTS.items()):
        (folder / name).mkdir()
        (folder / name / "pytest.ini").write_text(f"[pytest]\n{project.ini}")
        for part, text in enumerate(project.tests):
            # The modules of all projects share one process, and so need unique names.
            (folder / name / f"test_{number}_{part}.py").write_text(text)
        runs.append((str(folder / name), project.arguments))
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps(runs),
        env={**os.environ, "PYTHONPATH": f"{installed.parent}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    found = re.findall(r"(.*?)^== .*? (\d+)$", done.stdout, re.DOTALL | re.MULTILINE)
    assert len(found) == len(PROJECTS), done.stdout + done.stderr
    return {name: Ran(int(code), printed) for name, (printed, code) in zip(PROJECTS, found, strict=True)}


@pytest.mark.behaviour("pytest plugin", "A foreign project uses the fixtures of cluster, topic and faults")
def test_a_foreign_project_uses_cluster_topic_and_faults(ran: dict[str, Ran]) -> None:
    passed(ran["foreign"], "4 passed")


@pytest.mark.behaviour("pytest plugin", "Clusters have the scope of a session, a module or a function")
@pytest.mark.behaviour("pytest plugin", "Topics with fixed names are new and empty for each test")
@pytest.mark.behaviour("pytest plugin", "TLS and SASL are one line, and clients get what they need to connect")
@pytest.mark.behaviour("pytest plugin", "Each test has a schema registry without schemas")
def test_scopes_topics_security_and_registry(ran: dict[str, Ran]) -> None:
    passed(ran["scopes"], "7 passed")


@pytest.mark.behaviour("pytest plugin", "Workers of pytest-xdist have a cluster each, or share one")
def test_workers_share_a_cluster_or_have_their_own(ran: dict[str, Ran], folder: Path) -> None:
    for shared, outcome, clusters in (("true", "6 passed, 2 errors", 1), ("false", "8 passed", 2)):
        name = f"shared = {shared}"
        assert outcome in ran[name].printed, ran[name].printed
        assert ("remove shared=true" in ran[name].printed) is (clusters == 1)
        assert len({path.read_text() for path in (folder / name).glob("*.servers")}) == clusters


@pytest.mark.behaviour("pytest plugin", "Every test of the documentation passes as it stands there")
def test_the_documentation_is_right(ran: dict[str, Ran]) -> None:
    passed(ran["page"], "10 passed")
    passed(ran["page with users"], "1 passed")
    if LONG:
        passed(ran["page with Spark"], "1 passed")


def test_a_project_overrides_the_configuration(ran: dict[str, Ran]) -> None:
    passed(ran["overrides"], "1 passed")


@pytest.mark.behaviour("pytest plugin", "A wrong configuration is named")
def test_a_wrong_configuration_is_named(ran: dict[str, Ran]) -> None:
    for line, words in WRONG.items():
        assert ran[line].code != 0 and words in ran[line].printed, ran[line].printed


@pytest.mark.behaviour("pytest plugin", "A project that does not use the plugin loads nothing of it")
def test_a_project_that_does_not_use_it_loads_nothing(ran: dict[str, Ran]) -> None:
    passed(ran["nothing"], "1 passed")


def passed(ran: Ran, summary: str) -> None:
    assert ran.code == 0 and summary in ran.printed, ran.printed


START = """
import json, sys, time
began, worked = time.perf_counter(), time.process_time()
from kafka_sink import EmbeddedCluster
EmbeddedCluster
imported = time.perf_counter()
with EmbeddedCluster() as cluster:
    started, work = time.perf_counter(), time.process_time()
found = {"with imports": started - began, "without": started - imported, "of a processor": work - worked}
print(json.dumps({**found, "heavy": [name for name in ("numpy", "pyarrow", "click", "rich") if name in sys.modules]}))
"""


@pytest.mark.behaviour("EmbeddedCluster", "A node starts fast in a fresh process")
def test_a_node_starts_fast_in_a_fresh_process(figure: Figure) -> None:
    # As with installed packages: from the second run on there is bytecode.
    command = [sys.executable, "-c", START]
    runs = [json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout) for _ in range(2)]
    for name in ("with imports", "without", "of a processor"):
        figure(f"start of one node, {name}", f"{1000 * min(run[name] for run in runs):.0f} ms")
    assert runs[-1]["heavy"] == [], "nothing that a broker does not need is loaded with it"
