"""Run other projects' suites against the embedded broker: ``scripts/test.sh --suites [NAME …]``.

    kafka-python   its integration tests, from the source distribution on PyPI
    kgo            franz-go's client, from the Go module proxy; needs Go
    sarama         its functional tests, from the Go module proxy, through toxiproxy; needs Go
    aiokafka       needs KAFKALITE_AIOKAFKA, the folder of a checkout: its distributions have no tests

and programs of other projects (programs.py), which read a topic, keep state and write results. Each is killed once
(kill -9) and so is its broker, and both start again; what the program wrote is compared record for record:

    streams        Kafka Streams, exactly_once_v2, a store with its changelog
    connect        Kafka Connect, distributed, its source of files exactly once
    quixstreams    Quix Streams, exactly once, state with its changelog; in an environment of its own
    faust          Faust (faust-streaming), at least once, a table with its changelog; in an environment of its own
    kafkajs        a consumer's records written in transactions that commit its offsets; needs node

With ``--kafka`` before the names they run against Apache Kafka, for comparison. What cannot be had on this machine is
skipped with the reason. Sources go to .work/suites. Prints each test that fails with what is known of it, and exits
with 1 if one fails of which nothing is known.
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

from kafka_sink.broker.security_config import AUTHORIZER
from tests.suites.clusters import ON_KAFKA, cluster
from tests.suites.programs import PROGRAMS
from tests.suites.running import WORK, CannotBeHadError, run
from tests.support.ports import free_ports

LIMIT_S: Final = 1800
#: Outcome by name of the test.
Outcomes = dict[str, str]

_DOCKER: Final = "it stops, starts or reads a container"
_SPAWNS: Final = "it starts a Kafka of its own"


@dataclass(frozen=True)
class Suite:
    """*run* returns the outcomes; *known* are tests that fail here, as patterns, with the reason."""

    run: Callable[[], Outcomes]
    known: Mapping[str, str]


def of_pytest(folder: Path, *tests: str, **variables: str) -> Outcomes:
    """The outcomes of pytest in *folder*, which is on the path."""
    report = WORK / "report.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:kafkalite", f"--junitxml={report}", "--timeout=90"]
    command += ["--timeout-method=signal", "--rootdir", str(folder), *tests]
    environment = {**os.environ, "PYTHONPATH": str(folder), **variables}
    with (WORK / "pytest.log").open("w") as log:
        subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=log, timeout=LIMIT_S, check=False)
    found: Outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        found[case.attrib["name"]] = (
            "fail" if kinds & {"failure", "error"} else "skip" if "skipped" in kinds else "pass"
        )
    return found


def of_go(folder: Path, *arguments: str, **variables: str) -> Outcomes:
    """The outcomes of ``go test`` in *folder*."""
    command = ["go", "test", "-json", f"-timeout={LIMIT_S}s", *arguments]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **variables}, stdout=subprocess.PIPE, timeout=LIMIT_S, check=False
    )
    (WORK / "go.log").write_bytes(done.stdout)
    found: Outcomes = {}
    for line in done.stdout.splitlines():
        event: dict[str, Any] = json.loads(line) if line.startswith(b"{") else {}
        if "Test" in event and event["Action"] in ("pass", "fail", "skip"):
            found[event["Test"]] = event["Action"]
    return found


def go_module(name: str, version: str) -> Path:
    """A copy of a module's source that can be built."""
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
    """Its distribution leaves out the module that starts processes, of which only a name is needed here."""
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
    with cluster(super_users="User:ANONYMOUS", authorizer_class_name=AUTHORIZER) as running:
        return of_pytest(
            folder,
            "test/integration",
            KAFKA_URI=f"kafka://{running.bootstrap_servers}",
            KAFKA_VERSION="4.3.0",
            KAFKA_ROOT=str(folder),
        )


def kgo() -> Outcomes:
    """Its tests write until they have had enough of rebalances; the amount bounds them."""
    folder = go_module("github.com/twmb/franz-go", "v1.22.3")
    with cluster(nodes=3) as running:
        return of_go(
            folder,
            "./pkg/kgo",
            KGO_SEEDS=running.bootstrap_servers,
            KGO_TEST_RF="3",
            KGO_TEST_RECORDS="50000",
        )


def sarama() -> Outcomes:
    """Clients see the addresses of toxiproxy, which has the ports that the suite names."""
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


def aiokafka() -> Outcomes:
    """Its tests take the address of a broker instead of a container."""
    checkout = os.environ.get("KAFKALITE_AIOKAFKA")
    if checkout is None:
        raise CannotBeHadError("set KAFKALITE_AIOKAFKA to the folder of a checkout; its distributions have no tests")
    with cluster() as running:
        host, _, port = running.bootstrap_servers.rpartition(":")
        return of_pytest(Path(checkout), "tests", KAFKA_HOST=host, KAFKA_PORT=port, KAFKA_VERSION="4.3.0")


SUITES: Final = {
    "kafka-python": Suite(
        kafka_python,
        {
            "test_create_partitions": "it names broker 0, and fails on Kafka's broker 1 too",
            "test_group": "its session time-out is below the brokers' minimum; it fails on Kafka too",
            "test_ssl_handshake|test_legacy_kafka_client_ssl": _SPAWNS,
        },
    ),
    "kgo": Suite(kgo, {"TestConsumeRegex": "there is no topic __consumer_offsets: offsets are in a database"}),
    "sarama": Suite(
        sarama,
        {
            "TestFuncAdminListConsumerGroupOffsets|TestFuncTxnProduceWithBrokerFailure": _DOCKER,
            "TestFuncIdempotentBufferedSequence": _DOCKER,
        },
    ),
    "aiokafka": Suite(aiokafka, {}),
    **{name: Suite(partial(run, name, program), {}) for name, program in PROGRAMS.items()},
}


def main(names: list[str]) -> int:
    """Run the suites *names*; all that can be had, if there are none."""
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
