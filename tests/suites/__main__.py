"""Run other projects' suites against the embedded broker: ``scripts/test.sh --suites [NAME …]``.

    kafka-python   its integration tests, from the source distribution on PyPI
    kgo            franz-go's client, from the Go module proxy; needs Go
    kafka-go       from the Go module proxy; needs Go, and the ports 9092 and 9093
    sarama         its functional tests, from the Go module proxy, through toxiproxy; needs Go
    aiokafka       needs KAFKALITE_AIOKAFKA, the folder of a checkout: its distributions have no tests
    faststream     its tests with aiokafka and with confluent-kafka; needs KAFKALITE_FASTSTREAM, as before

and programs of other projects (programs.py), which read a topic, keep state and write results. Each is killed once
(kill -9) and so is its broker, and both start again; the results are compared record by record:

    streams        Kafka Streams, exactly_once_v2, a store with its changelog
    connect        Kafka Connect, distributed, its source of files exactly once
    quixstreams    Quix Streams, exactly once, state with its changelog; in a separate environment
    faust          Faust (faust-streaming), at least once, a table with its changelog; in a separate environment
    kafkajs        a consumer's records written in transactions that commit its offsets; needs node
    flink          Flink, whose KafkaSink is EXACTLY_ONCE, state with checkpoints
    kafka-go-program   a consumer group's records written, at least once; needs Go
    rskafka        records written, and their offsets kept in a file, at least once; needs cargo
    kcat           an entire topic copied repeatedly, at least once; needs kcat

With ``--kafka`` before the names they run against Apache Kafka, for comparison. A suite that is not available on this
machine is skipped with the reason. Sources are stored in .work/suites. Prints each failed test with its known reason,
and exits with 1 if a test fails without one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from kafka_sink.broker.config import AUTHORIZER
from tests.suites.clusters import ON_KAFKA, cluster, cluster_with_logins
from tests.suites.programs import PROGRAMS, python_with
from tests.suites.running import WORK, CannotBeHadError, run
from tests.support.ports import free_ports

LIMIT_S: Final = 1800
#: Name of the test → outcome.
Outcomes = dict[str, str]

_GO_OUTCOMES: Final = {"run": "fail", "pass": "pass", "fail": "fail", "skip": "skip"}

_DOCKER: Final = "it stops, starts or reads a container"
_OFFSETS: Final = "it looks for the topic __consumer_offsets, which does not exist: offsets are in a database"
_SPAWNS: Final = "it starts a Kafka of its own"


@dataclass(frozen=True)
class Suite:
    """A suite. *run* returns the outcomes; *known* has patterns of tests that fail here, with the reasons."""

    run: Callable[[], Outcomes]
    known: Mapping[str, str]


def of_pytest(folder: Path, *tests: str, python: str = sys.executable, **variables: str) -> Outcomes:
    """Return the outcomes of pytest in *folder*, which is on the path."""
    report = WORK / "report.xml"
    report.unlink(missing_ok=True)
    command = [python, "-m", "pytest", "-q", "-p", "no:kafkalite", f"--junitxml={report}", "--timeout=90"]
    command += ["--timeout-method=signal", "--rootdir", str(folder), *tests]
    environment = {**os.environ, "PYTHONPATH": str(folder), **variables}
    with (WORK / "pytest.log").open("w") as log:
        subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=log, timeout=LIMIT_S, check=False)
    found: Outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        # Different classes of a suite have tests of the same name.
        found[f"{case.attrib['name']}/{case.attrib['classname']}"] = (
            "fail" if kinds & {"failure", "error"} else "skip" if "skipped" in kinds else "pass"
        )
    return found


def of_go(folder: Path, *arguments: str, **variables: str) -> Outcomes:
    """Return the outcomes of ``go test`` in *folder*; a test that did not end has failed."""
    path = WORK / "go.log"
    with path.open("w") as log:
        command = ["go", "test", "-json", f"-timeout={LIMIT_S}s", *arguments]
        subprocess.run(command, cwd=folder, env={**os.environ, **variables}, stdout=log, check=False)
    found: Outcomes = {}
    for line in path.read_text().splitlines():
        event: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
        if "Test" in event and event["Action"] in _GO_OUTCOMES:
            found[event["Test"]] = _GO_OUTCOMES[event["Action"]]
    return found


def go_module(name: str, version: str) -> Path:
    """Return a copy of a module's source that can be built."""
    folder = WORK / f"{name.rpartition('/')[2]}-{version}"
    if not folder.exists():
        if shutil.which("go") is None:
            raise CannotBeHadError("it needs Go (https://go.dev/dl)")
        told = subprocess.run(
            ["go", "mod", "download", "-json", f"{name}@{version}"], stdout=subprocess.PIPE, check=True
        )
        shutil.copytree(json.loads(told.stdout)["Dir"], folder, copy_function=shutil.copyfile)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def kafka_python() -> Outcomes:
    """Run kafka-python's tests; their distribution lacks the module that starts processes, so its names are stubs."""
    folder = WORK / "kafka_python-3.0.12"
    if not folder.exists():
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary=kafka-python"]
        subprocess.run([*command, "-d", str(WORK), "kafka-python==3.0.12"], check=True)
        shutil.unpack_archive(WORK / "kafka_python-3.0.12.tar.gz", WORK)
    (folder / "test" / "__init__.py").touch()
    (folder / "test" / "service.py").write_text(
        "class ExternalService:\n    def __init__(self, host, port): self.host, self.port = host, port\n"
        "    def open(self): ...\n    def stop(self): ...\n\n\nclass SpawnedService: ...\n"
    )
    # These are the properties of the brokers that the suite starts itself.
    with cluster(num_partitions=2, super_users="User:ANONYMOUS", authorizer_class_name=AUTHORIZER) as running:
        return of_pytest(
            folder,
            "test/integration",
            KAFKA_URI=f"kafka://{running.bootstrap_servers}",
            KAFKA_VERSION="4.3.0",
            KAFKA_ROOT=str(folder),
        )


def kgo() -> Outcomes:
    """Run kgo's tests, which write until a number of rebalances has happened; the number of records bounds them."""
    folder = go_module("github.com/twmb/franz-go", "v1.22.3")
    with cluster(nodes=3) as running:
        return of_go(
            folder, "./pkg/kgo", KGO_SEEDS=running.bootstrap_servers, KGO_TEST_RF="3", KGO_TEST_RECORDS="50000"
        )


def kafka_go() -> Outcomes:
    """Run kafka-go's tests, which name the ports and the users. Excluded are those of golang.org/x/net/nettest, because
    they require other answers than Kafka's since 2.3.1 (its README), and those that end all tests on any broker,
    because their helper getOffsets calls a function that is not set."""
    folder = go_module("github.com/segmentio/kafka-go", "v0.4.51")
    passwords = {"adminplain": "admin-secret", **{f"adminscram{bits}": f"admin-secret-{bits}" for bits in (256, 512)}}
    with cluster_with_logins(
        9092,
        passwords,
        message_max_bytes=200_000_000,
        authorizer_class_name=AUTHORIZER,
        super_users="User:ANONYMOUS",
        allow_everyone_if_no_acl_found="true",
    ):
        left_out = "-skip=TestReaderConsumerGroup/(verify_offset_committed|consumer_group_commits_on_close)"
        return of_go(folder, "-mod=mod", left_out, "./...", KAFKA_VERSION="4.3.0", KAFKA_SKIP_NETTEST="1")


def sarama() -> Outcomes:
    """Run sarama's tests through toxiproxy, which listens on the ports that the suite names."""
    folder = go_module("github.com/IBM/sarama", "v1.61.1")
    proxy = WORK / "bin" / "server"
    if not proxy.exists():
        command = ["go", "install", "github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0"]
        subprocess.run(command, env={**os.environ, "GOBIN": str(proxy.parent)}, check=True)
    port, api = free_ports(5), free_ports()
    address = f"http://127.0.0.1:{api}"
    with ExitStack() as running:
        process = subprocess.Popen([str(proxy), "-port", str(api)], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        running.callback(process.kill)
        advertised = "PLAINTEXT://127.0.0.1:29091"
        running.enter_context(cluster(port, 5, auto_create_topics_enable="false", advertised_listeners=advertised))
        for number in range(5):
            asked = {"name": f"kafka{number + 1}", "listen": f"127.0.0.1:{29091 + number}", "enabled": True}
            body = json.dumps({**asked, "upstream": f"127.0.0.1:{port + number}"}).encode()
            urllib.request.urlopen(urllib.request.Request(f"{address}/proxies", body), timeout=30).close()
        return of_go(folder, "-run=Func", "-tags=functional", ".", TOXIPROXY_ADDR=address, KAFKA_VERSION="4.3.0")


#: Replaces the fixtures that start a container.
_WITHOUT_CONTAINER: Final = """

@pytest.fixture(scope="session")
def kafka_server():
    return KafkaServer(os.environ["KAFKA_HOST"], int(os.environ["KAFKA_PORT"]), 0, 0, 0, None)


@pytest.fixture(scope="session")
def ssl_folder():
    return pathlib.Path("tests/ssl_cert")


@pytest.fixture(scope="class")
def acl_manager():
    return None


kafka_config = kerberos_utils = acl_manager
"""


def aiokafka() -> Outcomes:
    """Run aiokafka's tests in a copy of the checkout, with the address of a broker instead of a container."""
    checkout = os.environ.get("KAFKALITE_AIOKAFKA")
    if checkout is None:
        raise CannotBeHadError("set KAFKALITE_AIOKAFKA to the folder of a checkout; its distributions have no tests")
    python = python_with("aiokafka", "cramjam", "pytest-asyncio", "pytest-mock", "pytest-timeout")
    folder = WORK / "aiokafka"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(checkout, folder)
    (folder / "docker.py").write_text("class models:\n    class containers:\n        Container = object\n")
    with (folder / "tests" / "conftest.py").open("a") as file:
        file.write(_WITHOUT_CONTAINER)
    with cluster(num_partitions=2) as running:
        host, _, port = running.bootstrap_servers.rpartition(":")
        return of_pytest(
            folder,
            "tests",
            "--docker-image=kafka:4.3.0",
            "--override-ini=filterwarnings=default",
            python=python,
            KAFKA_HOST=host,
            KAFKA_PORT=port,
            AIOKAFKA_NO_EXTENSIONS="1",
        )


def faststream() -> Outcomes:
    """Run faststream's tests in a copy of the checkout, on the port that they name."""
    checkout = os.environ.get("KAFKALITE_FASTSTREAM")
    if checkout is None:
        raise CannotBeHadError("set KAFKALITE_FASTSTREAM to the folder of a checkout; its distributions have no tests")
    plugins = ("pytest-asyncio", "pytest-timeout", "pytest-rerunfailures", "dirty-equals", "freezegun")
    others = ("fastapi", "httpx", "pydantic-settings", "PyYAML")
    # The tests for one broker import modules for others.
    python = python_with("faststream[kafka,confluent,nats,rabbit,redis,mqtt,cli,prometheus,otel]", *plugins, *others)
    folder = WORK / "faststream"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(checkout, folder)
    with cluster(9092):
        return of_pytest(
            folder, "tests/brokers/kafka", "tests/brokers/confluent", "--override-ini=addopts=", python=python
        )


SUITES: Final = {
    "kafka-python": Suite(
        kafka_python,
        {
            "test_create_partitions": "it names broker 0, and fails on Kafka's broker 1 too",
            "test_alter_replica_log_dirs": "a broker with one log directory has no AlterReplicaLogDirs",
            "test_group": "its session time-out is below the brokers' minimum; it fails on Kafka too",
            "test_ssl_handshake|test_legacy_kafka_client_ssl": _SPAWNS,
        },
    ),
    "kgo": Suite(kgo, {"TestConsumeRegex|Test848RegexBrokerResolves": _OFFSETS}),
    "kafka-go": Suite(kafka_go, {"TestReaderConsumerGroup($|/consumer_group_rebalance)": "it fails on Kafka too"}),
    "sarama": Suite(
        sarama,
        {
            "TestFuncAdminListConsumerGroupOffsets|TestFuncTxnProduceWithBrokerFailure": _DOCKER,
            "TestFuncIdempotentBufferedSequence": _DOCKER,
            "TestFuncAdminIncrementalAlterConfigs": "all brokers have the same options, so those of one are refused",
            "TestFuncAdminUpdateFeatures": "it is not announced, because transaction.version is an option",
        },
    ),
    "aiokafka": Suite(
        aiokafka,
        {
            "test_exclude_internal_topics": _OFFSETS,
            "test_ssl_consume|test_producer_ssl|test_create_ssl_context": "a container makes its certificates",
            "test_admin_client_sasl.*|test_sasl_(deny|plaintext|unknown).*": "a container's tools make its ACLs",
            "test_sender__handler_base_do": "it names broker 0, and fails on Kafka's broker 1 too",
        },
    ),
    "faststream": Suite(faststream, {}),
    **{name: Suite(partial(run, name, program), {}) for name, program in PROGRAMS.items()},
}


def main(names: list[str]) -> int:
    """Run the suites *names*, or without names all that are available; return the exit code."""
    if names[:1] == ["--kafka"]:
        os.environ[ON_KAFKA] = "1"
        names = names[1:]
    WORK.mkdir(parents=True, exist_ok=True)
    return int(sum(_unknown_failures(name, SUITES[name]) for name in names or SUITES) > 0)


def _unknown_failures(name: str, suite: Suite) -> int:
    began = time.monotonic()
    try:
        outcomes = suite.run()
    except CannotBeHadError as missing:
        print(f"{name}: skipped: {missing}", flush=True)
        return 0
    counted = Counter(outcomes.values())
    print(
        f"{name}: {counted['pass']} passed, {counted['fail']} failed, {counted['skip']} skipped, "
        f"{time.monotonic() - began:.0f} s",
        flush=True,
    )
    unknown = int(not outcomes)
    for test in (test for test, outcome in outcomes.items() if outcome == "fail"):
        reason = next((why for pattern, why in suite.known.items() if re.match(f"(?:{pattern})(?:/|$)", test)), None)
        unknown += reason is None
        print(f"  {test}: {reason or 'NOT KNOWN'}", flush=True)
    return unknown


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
