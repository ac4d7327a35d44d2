"""The pytest plugin in a project of somebody else: a pytest of its own, in its own folder, without our conftest."""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Figure
from tests.support.amounts import only_long

ROOT = Path(__file__).parents[2]
RunPytest = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_pytest(tmp_path: Path) -> RunPytest:
    """Runs a pytest in a new project; kafkalite is installed there with the entry points of our setup.cfg."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    installed = tmp_path / "site" / "kafkalite_here-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: kafkalite-here\nVersion: 0\n")
    lines = setup["options.entry_points"]["pytest11"].strip()
    (installed / "entry_points.txt").write_text(f"[pytest11]\n{lines}\n")
    project = tmp_path / "project"
    project.mkdir()

    def run(test: str, *arguments: str, ini: str = "") -> subprocess.CompletedProcess[str]:
        (project / "pytest.ini").write_text(f"[pytest]\n{textwrap.dedent(ini)}")
        (project / "test_theirs.py").write_text(textwrap.dedent(test))
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
            cwd=project,
            env={**os.environ, "PYTHONPATH": f"{installed.parent}{os.pathsep}{ROOT}"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.mark.behaviour("pytest plugin", "A foreign project uses the fixtures of cluster, topic and faults")
def test_a_foreign_project_uses_cluster_topic_and_faults(run_pytest: RunPytest) -> None:
    done = run_pytest(
        """
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
        """,
        "--strict-markers",
        ini="""
        kafkalite =
            nodes = 2
            auto.create.topics.enable = false
        """,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


@pytest.mark.behaviour("pytest plugin", "Clusters have the scope of a session, a module or a function")
@pytest.mark.behaviour("pytest plugin", "Topics with fixed names are new and empty for each test")
@pytest.mark.behaviour("pytest plugin", "TLS and SASL are one line, and clients get what they need to connect")
@pytest.mark.behaviour("pytest plugin", "Each test has a schema registry without schemas")
def test_scopes_topics_security_and_registry(run_pytest: RunPytest) -> None:
    done = run_pytest(
        """
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
                assert producer.send(ProducerRecord("orders", b"x", partition=1)).get(60_000).offset == 0
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
        """,
        "--strict-markers",
        ini="""
        kafkalite =
            security = SASL_SSL
            auto_create_topics_enable = false
        """,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed" in done.stdout


@pytest.mark.behaviour("pytest plugin", "Workers of pytest-xdist have a cluster each, or share one")
@pytest.mark.parametrize("shared", [True, False])
def test_workers_share_a_cluster_or_have_their_own(shared: bool, run_pytest: RunPytest, tmp_path: Path) -> None:
    done = run_pytest(
        f"""
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
            (pathlib.Path({str(tmp_path)!r}) / f"{{worker}}.servers").write_text(kafkalite_cluster.bootstrap_servers)

        def test_faults(kafkalite_faults): ...
        """,
        "-n2",
        "--dist=each",
        ini=f"""
        kafkalite =
            security = SASL_PLAINTEXT
            shared = {str(shared).lower()}
        """,
    )
    assert ("4 passed, 2 errors" if shared else "6 passed") in done.stdout, done.stdout + done.stderr
    assert ("remove shared=true" in done.stdout) is shared
    servers = {path.read_text() for path in tmp_path.glob("*.servers")}
    assert len(servers) == (1 if shared else 2)


@pytest.mark.behaviour("pytest plugin", "Every test of the documentation passes as it stands there")
@pytest.mark.parametrize("with_spark", [False, pytest.param(True, marks=only_long)])
def test_the_documentation_is_right(with_spark: bool, run_pytest: RunPytest, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    tests = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def test_" in block]
    chosen = [block for block in tests if ("pyspark" in block) is with_spark]
    for number, block in enumerate(chosen):
        (tmp_path / "project" / f"test_{number}.py").write_text(block)
    (settings,) = re.findall(r"```ini\n# pytest.ini\n\[pytest\]\n(.*?)```", page, re.DOTALL)
    done = run_pytest("", "-n0" if with_spark else "-n2", "--dist=loadfile", ini="" if with_spark else settings)
    assert done.returncode == 0 and re.search(rf"\b{1 if with_spark else 5} passed", done.stdout), done.stdout


def test_a_project_overrides_the_configuration(run_pytest: RunPytest) -> None:
    done = run_pytest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def kafkalite_config():
            return {"nodes": 3, "num.partitions": 4}

        def test_it(kafkalite_cluster):
            assert len(kafkalite_cluster.nodes) == 3
        """
    )
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.behaviour("pytest plugin", "A wrong configuration is named")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("num.partition = 3", "did you mean num.partitions?"),
        ("nodes = three", "nodes must be a whole number, got 'three'"),
        ("nodes", "expected NAME=VALUE, such as num.partitions=3, not 'nodes'"),
        ("security = SASL", "security: 'SASL' is unknown, expected one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("mechanism = PLAIN", "mechanism has no effect without security"),
    ],
)
def test_a_wrong_configuration_is_named(run_pytest: RunPytest, line: str, words: str) -> None:
    done = run_pytest("def test_it(kafkalite_cluster): ...", ini=f"kafkalite = {line}")
    assert done.returncode != 0 and words in done.stdout, done.stdout + done.stderr


@pytest.mark.behaviour("pytest plugin", "A project that does not use the plugin loads nothing of it")
def test_a_project_that_does_not_use_it_loads_nothing(run_pytest: RunPytest) -> None:
    done = run_pytest(
        """
        import sys

        def test_it(request):
            assert request.config.pluginmanager.has_plugin("kafkalite")
            ours = {name for name in sys.modules if name.startswith("kafka_sink")}
            assert ours == {"kafka_sink", "kafka_sink.testing", "kafka_sink.testing.plugin"}
            assert not {"pyspark", "numpy", "pyarrow", "click"} & set(sys.modules)
        """,
        "-p",
        "no:hypothesispytest",
    )
    assert done.returncode == 0, done.stdout + done.stderr


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
def test_a_node_starts_fast_in_a_fresh_process(figure: Figure, tmp_path: Path) -> None:
    # As it is where packages are installed: from the second run on there is bytecode.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(tmp_path)
    command = [sys.executable, "-c", START]
    runs = [
        json.loads(subprocess.run(command, cwd=ROOT, env=env, capture_output=True, check=True).stdout) for _ in range(4)
    ]
    for name in ("with imports", "without", "of a processor"):
        figure(f"start of one node, {name}", f"{1000 * min(run[name] for run in runs):.0f} ms")
    assert runs[-1]["heavy"] == [], "nothing that a broker does not need is loaded with it"
