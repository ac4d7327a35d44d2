"""The parts of the proof, as data: each proves promises of the pages with one command.

A part depends on paths of the repository, files and folders, and must run again when one of them has changed. When in
doubt a path is included; generated files are excluded from all parts (:data:`tests.proof.ledger.WRITTEN`).
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutation.targets import TARGETS
from tests.support.wings import wings

ROOT: Final = Path(__file__).parents[2]

#: The lines of a part's output with its counts, "5 passed, 1 skipped"; the counts of several lines are added.
PYTEST: Final = r"=+ (?P<counts>.*\d (?:passed|failed|skipped|errors?)\b.*) in [\d.]+s"
_FUZZ: Final = r"(?P<counts>[\d,]+ cases, [\d,]+ findings), seed"
_WORLDS: Final = r".*: (?P<counts>\d+ states) \("
_SUITE: Final = r"\S+: (?P<counts>\d+ passed, .*), \d+ s$"
_MUTANTS: Final = r"\S+: (?P<counts>\d+ mutants, .*), \d+ s$"
#: The pattern of a part that prints no counts.
_NONE: Final = r"(?!)"
#: The lines of a part that cannot run on this machine, with the reason.
_NO_SUITE: Final = r"^\S+: skipped: (.+)"
_NO_KERBEROS: Final = r"^SKIPPED \[\d+\] \S+: (Kerberos: missing .+)"
_NO_BROWSER: Final = r"^SKIPPED \[\d+\] \S+: (no browser: .+)"
_ROUNDS: Final = r"(?P<counts>\d+ rounds, \d+ batches)"
_HOSTS: Final = r"hosts: (?P<counts>\d+ queries, .* restarts)$"

_README: Final = "README.md#guarantees"
_SPEED: Final = "README.md#speed"
_SPARKS: Final = "docs/versions.md#versions-of-spark"
_PYTHONS: Final = "docs/versions.md#versions-of-python-and-systems"
_KAFKAS: Final = "docs/versions.md#versions-of-kafka"
_OTHERS: Final = "docs/versions.md#brokers-that-are-not-apache-kafka"
_INPUT: Final = "SECURITY.md#input-from-others"
_STABLE: Final = "docs/upgrading.md#promises-of-a-version"
_SECRETS: Final = "SECURITY.md#exposure-of-secrets"
#: The promises that the normal run of all tests proves, on each Python.
_OF_ALL: Final = (
    _README,
    _PYTHONS,
    _STABLE,
    "docs/versions.md#hosted-kafkas",
    "SECURITY.md#trust",
    _SECRETS,
    "SECURITY.md#the-embedded-broker",
)


@dataclass(frozen=True)
class Part:
    """A part. *proves* are the sections of pages with the promises, as ``page#heading``. *minutes* is an estimate. The
    *risk* is from 1 (possible loss or repetition of rows, and code that breaks most often) to 4. *counts* matches lines
    of the output, from their beginning, and *lacks* a line with the reason why the machine cannot run the part. *kafka*
    is the version of Kafka, if the part runs on one.
    """

    group: str
    case: str
    proves: tuple[str, ...]
    command: tuple[str, ...]
    paths: tuple[str, ...]
    minutes: int
    risk: int
    counts: str = PYTEST
    kafka: str = ""
    lacks: str = _NO_SUITE

    @property
    def name(self) -> str:
        return f"{self.group}-{self.case}" if self.case else self.group

    @property
    def judges_prose(self) -> bool:
        """Return whether the part also checks docstrings and comments, as those for the pages and for all tests do."""
        return not {"docs", "tests"}.isdisjoint(self.paths)


def _packages(*wanted: str) -> tuple[str, ...]:
    """Return the folders of wings and of packages by their names."""
    known = wings(ROOT)
    return tuple(f"kafka_sink/{package}" for name in wanted for package in known.get(name, (name,)))


#: The files that install the project and run pytest.
_RUNS: Final = ("setup.cfg", "pyproject.toml", "scripts/lib.sh", "scripts/test.sh", "tests/conftest.py")
_SHARED: Final = (*_RUNS, "tests/support", "tests/fakes")
_KAFKA: Final = ("scripts/kafka.sh", "scripts/kafka-ivy.xml", "scripts/jars.sha256")
_EVERYTHING: Final = (
    *("kafka_sink", "pyspark_kafkalite", "spark_jobs", "tests", "scripts", "conf", "examples"),
    *("setup.cfg", "pyproject.toml"),
)
_PAGES: Final = (
    *("docs", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "CITATION.cff"),
    *("LICENSE", ".github", ".ci"),
)
#: The package's top-level modules, and the wings that a Spark job runs, without the broker that tests write to.
_SINK: Final = (
    *("kafka_sink/__init__.py", "kafka_sink/errors.py", "kafka_sink/admin.py", "pyspark_kafkalite", "spark_jobs"),
    *_packages("base", "sink"),
)
_SPARK_TESTS: Final = ("tests/spark", "tests/exactly_once", "tests/bench")
_OF_SPARK: Final = (*_SINK, *_packages("broker", "consumer", "cli"), *_SHARED, *_SPARK_TESTS)

_PYTHON_VERSIONS: Final = ("3.11", "3.12", "3.13")
#: Spark, Python and the part's risk: the oldest and the newest differ most from the versions of the normal run.
_SPARK_VERSIONS: Final = (
    ("3.5", "3.11", 1),
    ("4.0", "3.11", 2),
    ("4.0", "3.13", 3),
    ("4.1", "3.11", 3),
    ("4.2", "3.11", 3),
    ("4.3", "3.12", 2),
)
#: Files in folders of other parts that have an effect only on the parts of some groups. Without KAFKALITE_BROKER,
#: nothing in the first one acts. The second one is the list of the tests that a run of all tests leaves out; all other
#: parts run every test of the files that they name (``test_only_runs_of_all_tests_leave_tests_out``).
RUN_BY: Final = {
    "tests/support/other_brokers.py": ("broker",),
    "tests/support/by_parts.py": ("suite", "pages"),
}
#: The tests that read pages.
_TESTS_OF_PAGES: Final = (
    "tests/architecture",
    *(
        f"tests/integration/test_{name}.py"
        for name in ("alerts", "changing_a_schema", "docs_commands", "package", "producer_page", "pytest_plugin")
    ),
    *(
        f"tests/spark/test_{name}.py"
        for name in ("clusters_page", "error_rows", "pages", "permissions_page", "security_page", "tutorial")
    ),
    *(f"tests/hostile/test_{name}.py" for name in ("bounds", "security_promises")),
    *(f"tests/unit/spark/test_{name}.py" for name in ("dependent_options", "format_table", "hosted_table", "options")),
    "tests/exactly_once/test_protocols.py",
    "tests/unit/broker/test_served_apis.py",
    "tests/unit/exactly_once/test_situation.py",
)
#: The tests that need a KDC, and the package gssapi.
_TESTS_OF_KERBEROS: Final = (
    "tests/integration/test_gssapi.py",
    *(f"tests/compat/test_{name}.py" for name in ("kerberos_on_kafka", "peers_identities", "identities_bulk")),
    "tests/hostile/test_attacks.py",
)
_SUITES: Final = {
    **{"kafka-python": 6, "kgo": 6, "kafka-go": 8, "sarama": 10, "aiokafka": 12, "faststream": 6},
    **dict.fromkeys(("streams", "connect", "quixstreams", "faust", "kafkajs", "flink"), 3),
    **dict.fromkeys(("kafka-go-program", "rskafka", "kcat"), 2),
}
#: Readers of other programs' bytes by their package, and minutes: one for each. Then the attacks on several readers.
_FUZZED: Final = {
    **{"network": 9, "records": 7, "broker": 6, "common": 6, "spark": 4, "exactly_once": 3, "protocol": 3, "trust": 3},
    **dict.fromkeys(("client", "ui", "http"), 2),
    **dict.fromkeys(("producer", "columns", "testing", "reports", "registry", "cli", "formats"), 1),
}
_ATTACKED: Final = {"attacks": 10, "java": 8}
#: Texts that select worlds of tests/exploration, and minutes for the states of the long run.
_EXPLORED: Final = {
    "1 batches of 1 tasks; 1 drivers": 8,
    "1 batches of 2 tasks; 1 drivers": 5,
    "2 batches of 1 tasks; 1 drivers": 5,
    "1 batches of 1 tasks; 2 drivers": 5,
    "1 batches of 2 tasks; 2 drivers": 5,
    "2 batches of 2 tasks; 2 drivers": 6,
    "2 batches of 2 tasks; 3 drivers": 6,
    **{f", {others};": 3 for others in ("apart", "copies", "last epochs", "two clusters", "moved", "accepted")},
    ", expired;": 5,
}
#: Folders whose tests do more in the long run, and minutes.
_LONG: Final = {
    **{"sim": 15, "exactly_once": 15, "compat": 30, "spark": 40, "integration": 25, "property": 5, "hostile": 8},
    **{"unit": 4, "bench": 6, "exploration": 8, "architecture": 3},
}
#: Separate parts explore the worlds, for which the long run would take an hour.
_OTHERS_THAN_WORLDS: Final = {"exploration": ("-k", "not interleaving")}
#: The parts of the group fuzz attack each reader for minutes, for which the long run would take hours.
_WITHOUT_MINUTES: Final = {"hostile": ("env", "KAFKALITE_READER_MINUTES=0")}
_CHAOS_TESTS: Final = (
    *("scripts/pages.py", "tests/chaos", "tests/support"),
    *("tests/bench/resources.py", "tests/compat/kafka_cluster.py"),
)
_SOAK_TESTS: Final = (
    *("tests/spark/soak.py", "tests/spark/soak_driver.py"),
    *("tests/bench/resources.py", "tests/bench/listeners.py", "tests/bench/topics.py"),
)
_HOSTS_TESTS: Final = ("tests/support", "tests/compat/kafka_cluster.py", *_SOAK_TESTS)
_CHAOS: Final = {
    "plaintext": ("--minutes", "20"),
    "sasl-ssl": ("--minutes", "20", "--security", "SASL_SSL"),
    "cluster": ("--minutes", "20", "--cluster"),
    "oldest": ("--minutes", "20", "--kafka", "3.6.2"),
}
#: Where the benchmarks leave the files that docs/internals/speed.md is generated from.
_SAVED: Final = ("--results", "tests/bench/results")
#: The options of ``scripts/bench.sh`` for each table, and minutes.
_BENCHES: Final = {
    "spark": (("spark", "--goals", *_SAVED), 12),
    "spark-ssl": (("spark", "--security", "SSL", "--rows", "10000000", *_SAVED), 3),
    "spark-sasl-ssl": (("spark", "--security", "SASL_SSL", "--rows", "10000000", *_SAVED), 3),
    "columns": (("columns", *_SAVED), 4),
    "records": (("records", *_SAVED), 5),
    "avro": (("avro", *_SAVED), 1),
    "json": (("json",), 1),
    "protobuf": (("protobuf",), 1),
    "stream": (("stream", *_SAVED), 5),
    "stream-sasl-ssl": (("stream", "--security", "SASL_SSL", *_SAVED), 5),
    "trigger": (("trigger", *_SAVED), 5),
    "task": (("task", *_SAVED), 3),
    "small": (("small", *_SAVED), 4),
    "exactly-once": (("exactly-once", *_SAVED), 4),
    "memory": (("memory", *_SAVED), 5),
    "limits": (("limits", *_SAVED), 6),
    "scale": (("scale",), 3),
    "broker": (("broker", *_SAVED), 4),
}
_MUTATION: Final = tuple(f"tests/mutation/{name}.py" for name in ("__main__", "mutants", "targets"))
#: The targets of ``python -m tests.mutation``, with their package, and minutes.
_MUTATED: Final = {
    **{"situation": ("exactly_once", 3), "description": ("exactly_once", 2), "progress": ("exactly_once", 6)},
    **{"writers": ("exactly_once", 2), "columns": ("columns", 12), "encoding": ("records", 20)},
    **{"decoding": ("records", 20), "validation": ("records", 22), "batching": ("producer", 30)},
    **{"partitioners": ("producer", 15), "bounded": ("common", 2)},
}
#: The modules of the target ``log``, each a part of its own, because all of them together take almost an hour.
_MUTATED_OF_LOG: Final = {
    **{"cleaner": 5, "compaction": 3, "filesystem": 3, "log_manager": 2, "partition_log": 6, "producer_state": 5},
    **{"recovery": 4, "segment": 10, "segments": 4},
}


def kafka_versions() -> tuple[str, ...]:
    """Return the versions that scripts/kafka.sh runs, the oldest first."""
    command = ["bash", str(ROOT / "scripts" / "kafka.sh"), "versions"]
    return tuple(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def _parts() -> Iterator[Part]:
    command: tuple[str, ...]
    paths: tuple[str, ...]
    test, kafkas = "scripts/test.sh", kafka_versions()
    newest = kafkas[-1]
    for python in _PYTHON_VERSIONS:
        yield Part("suite", python, _OF_ALL, (test, "--python", python), _EVERYTHING, 10, 1, kafka=newest)
    pages = (test, "--no-kafka", *_TESTS_OF_PAGES)
    yield Part("pages", "", ("README.md#write-a-dataframe", _STABLE), pages, (*_EVERYTHING, *_PAGES), 5, 2)
    yield Part("site", "", ("README.md#documentation",), ("scripts/docs.sh",), ("kafka_sink", "scripts", *_PAGES), 1, 3)
    for spark, python, risk in _SPARK_VERSIONS:
        command = (test, "--spark", spark, "--python", python)
        yield Part("spark", f"{spark}-python-{python}", (_SPARKS, _PYTHONS, _SECRETS), command, _OF_SPARK, 8, risk)
    paths = ("kafka_sink", *_SHARED, *_KAFKA, "tests/compat", "tests/exactly_once", "tests/bench", "tests/golden")
    for kafka in kafkas:
        risk = 1 if kafka == newest else 2
        yield Part("kafka", kafka, (_KAFKAS,), (test, "--kafka", kafka), paths, 6, risk, kafka=kafka)
    for broker, minutes in {"kfake": 5, "tansu": 45}.items():
        of_broker = (*paths, "tests/brokers")
        yield Part("broker", broker, (_OTHERS,), (test, "--broker", broker), of_broker, minutes, 3)
    paths = (*_packages("base", "broker"), *_RUNS, "tests/suites", "tests/support", *_KAFKA)
    for suite, minutes in _SUITES.items():
        command = (test, "--suites", suite)
        yield Part("suites", suite, ("SECURITY.md#the-embedded-broker",), command, paths, minutes, 3, _SUITE)
    paths = (*_SINK, *_RUNS, *_KAFKA, "scripts/chaos.sh", *_CHAOS_TESTS)
    for case, options in _CHAOS.items():
        version = "3.6.2" if case == "oldest" else newest
        yield Part("chaos", case, (_README,), ("scripts/chaos.sh", *options), paths, 25, 1, _ROUNDS, version)
    yield from _without_spark(test, newest)
    yield from _of_clusters(test, newest)
    for table, (options, minutes) in _BENCHES.items():
        paths = (*_SINK, *_packages("broker"), *_RUNS, *_KAFKA, "scripts/bench.sh", "tests/bench", "tests/support")
        yield Part("bench", table, (_SPEED,), ("scripts/bench.sh", *options), paths, minutes, 4, _NONE, newest)


def _without_spark(test: str, newest: str) -> Iterator[Part]:
    for package, minutes in (_FUZZED | _ATTACKED).items():
        of_package = ("kafka_sink",) if package in _ATTACKED else _packages("base", package)
        judged = ("tests/compat/java_judges", *_KAFKA) if package == "java" else ("tests/compat/java_judges",)
        paths = (*of_package, *_SHARED, *judged, "tests/hostile", "tests/golden", "tests/property")
        command = (test, *("--no-kafka",) * (package != "java"), "--fuzz", str(minutes), "--group", package)
        yield Part("fuzz", package, (_INPUT,), command, paths, minutes, 2, _FUZZ)
    for number, (world, minutes) in enumerate(_EXPLORED.items(), 1):
        command = (*("python", "-m", "tests.exploration.explore"), "--states", "100000", "--only", world)
        of_world = (*_packages("base", "exactly_once", "client", "http", "broker/coordinator"), "tests/exploration")
        yield Part("exploration", str(number), (_README,), command, of_world, minutes, 1, _WORLDS)
    for folder, minutes in _LONG.items():
        command = (*_WITHOUT_MINUTES.get(folder, ()), test)
        command = (*command, *("--no-kafka",) * (folder not in ("compat", "spark", "integration")), "--long")
        command = (*command, f"tests/{folder}", *_OTHERS_THAN_WORLDS.get(folder, ()))
        paths = ("kafka_sink", "pyspark_kafkalite", "spark_jobs", *_SHARED, *_KAFKA, f"tests/{folder}", "examples")
        paths = (*paths, *_PAGES) if folder == "architecture" else paths
        yield Part("long", folder, (_README,), command, paths, minutes, 2, kafka=newest)
    paths = ("kafka_sink", *_SHARED, *_KAFKA, "tests/integration", "tests/compat", "tests/hostile", "scripts/kdc.sh")
    command = (test, *_TESTS_OF_KERBEROS, "-k", "kerberos or gssapi")
    yield Part("kerberos", "", (_SECRETS,), command, paths, 4, 2, kafka=newest, lacks=_NO_KERBEROS)
    command = (test, "--no-kafka", "--long", "tests/integration/test_ui_browser.py", "tests/architecture/test_docs.py")
    paths = ("kafka_sink", *_SHARED, "scripts", "tests/integration", "tests/architecture", *_PAGES)
    yield Part("browser", "", ("README.md#documentation",), command, paths, 4, 3, lacks=_NO_BROWSER)
    yield from _of_mutants()


def _of_mutants() -> Iterator[Part]:
    whole = [(target, target, package, (), minutes) for target, (package, minutes) in _MUTATED.items()]
    modules = [
        (f"log-{module}", "log", "broker", ("--only", f".broker.log.{module}:"), minutes)
        for module, minutes in _MUTATED_OF_LOG.items()
    ]
    for case, target, package, only, minutes in (*whole, *modules):
        tests = tuple(dict.fromkeys("/".join(test.split("/")[:3]) for test in TARGETS[target].tests))
        paths = (*_packages("base", package), "tests/conftest.py", "tests/fakes", "tests/support", *tests)
        paths = (*paths, *_MUTATION, f"tests/mutation/equivalent/{target}.toml")
        command = ("python", "-m", "tests.mutation", target, *only)
        yield Part("mutation", case, (_README,), command, paths, minutes, 3, _MUTANTS)


def _of_clusters(test: str, newest: str) -> Iterator[Part]:
    page = "README.md#documentation"
    paths = (*_SINK, *_packages("broker"), *_SHARED, *_KAFKA, "tests/matrix", "tests/compat", "tests/bench")
    yield Part("matrix", "", ("SECURITY.md#trust",), (test, "--matrix"), paths, 60, 2, kafka=newest)
    of_cluster = (*_SINK, *_packages("broker", "consumer", "cli", "ui"), *_SHARED, "tests/spark/conftest.py")
    paths = (*of_cluster, "tests/spark/test_yarn.py", "tests/exactly_once", "scripts/pages.py", "docs/clusters.md")
    paths = (*paths, "scripts/yarn-ivy.xml")
    for mode in ("client", "cluster"):
        yield Part("yarn", mode, (page,), (test, "--yarn", "-k", f"[{mode}]"), paths, 8, 3)
    paths = (*of_cluster, "tests/spark/test_kubernetes.py", *_KAFKA, "scripts/pages.py", "docs/clusters.md")
    paths = (*paths, "examples/kubernetes", "scripts/kubernetes.sh")
    yield Part("kubernetes", "", (page,), (test, "--kubernetes"), paths, 20, 2, kafka=newest)
    paths = (*_SINK, *_packages("broker", "consumer", "cli"), "conf", "setup.cfg", "scripts/demo.sh", "scripts/lib.sh")
    yield Part("demo", "", ("README.md#write-a-dataframe",), ("scripts/demo.sh", "--avro"), paths, 2, 2, _NONE)
    paths = (*_SINK, *_RUNS, *_KAFKA, "scripts/soak.sh", "tests/support", *_SOAK_TESTS)
    yield Part("soak", "", (_README,), ("scripts/soak.sh", "--minutes", "25"), paths, 27, 2, _NONE, newest)
    paths = (*_SINK, *_RUNS, *_KAFKA, "scripts/hosts.sh", "tests/hosts", *_HOSTS_TESTS)
    yield Part("hosts", "", (_README,), ("scripts/hosts.sh", "--minutes", "120"), paths, 125, 2, _HOSTS, newest)


PARTS: Final = tuple(_parts())
