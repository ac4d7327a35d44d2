"""The programs of other projects, and their sources."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.suites.running import ROOT, SOURCES, WORK, CannotBeHadError, Feed, Program
from tests.support.ports import free_ports


def _fetch(command: list[str], what: str, folder: Path = ROOT) -> None:
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).rpartition("\n")[2]
        raise CannotBeHadError(f"{what} cannot be had: {last}")


def _with_jars(what: str, ivy_file: str, folder: str) -> dict[str, str]:
    """Return the environment in which scripts/kafka.sh also has the jars of a program, which are fetched once, and
    replace Kafka's jars of other versions."""
    jars, libs = WORK / folder, WORK / f"{folder}-libs"
    kafka = ROOT / ".work" / "kafka" / "libs"
    fetch = "scripts/kafka.sh fetch && . scripts/lib.sh && ensure_venv && ensure_java && fetch_jars $0 $1"
    _fetch(["bash", "-c", fetch, f"scripts/{ivy_file}", str(jars)], what)
    shutil.rmtree(libs, ignore_errors=True)
    libs.mkdir()
    own = {_artifact(jar) for jar in jars.glob("*.jar")}
    for jar in (*jars.glob("*.jar"), *(jar for jar in kafka.glob("*.jar") if _artifact(jar) not in own)):
        (libs / jar.name).symlink_to(jar)
    return {"KAFKALITE_KAFKA_LIBS": str(libs)}


def _artifact(jar: Path) -> str:
    return re.split(r"-\d", jar.name)[0]


def _with_kafka_jars() -> dict[str, str]:
    return _with_jars("Kafka Streams and Connect", "programs-ivy.xml", "jars")


def _script(*words: str) -> list[str]:
    return ["bash", str(ROOT / "scripts" / "kafka.sh"), *words]


def _streams() -> Program:
    def command(servers: str, name: str, folder: Path) -> list[str]:
        return _script("run-sources", str(SOURCES / "java"), "CountingStream", servers, name, str(folder))

    return Program(command, environment=_with_kafka_jars())


def _flink() -> Program:
    """Return Flink in one process, whose job resumes from its last retained checkpoint."""
    jars = _with_jars("Flink", "flink-ivy.xml", "flink")

    def command(servers: str, name: str, folder: Path) -> list[str]:
        return _script("run-sources", str(SOURCES / "flink"), "CountingJob", servers, name, str(folder))

    return Program(command, environment={**jars, "KAFKA_OPTS": "--add-opens=java.base/java.util=ALL-UNNAMED"})


def _connect() -> Program:
    """Return a worker of Kafka Connect whose connector reads a file, and writes its lines exactly once."""
    port = free_ports()

    def command(servers: str, name: str, folder: Path) -> list[str]:
        settings = {
            "bootstrap.servers": servers,
            "group.id": name,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "exactly.once.source.support": "enabled",
            "listeners": f"http://127.0.0.1:{port}",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "2000",
            "producer.transaction.timeout.ms": "10000",
            **{f"{kind}.storage.topic": f"{name}-{kind}" for kind in ("config", "offset", "status")},
            **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
        }
        path = folder / "worker.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return _script("run", "org.apache.kafka.connect.cli.ConnectDistributed", str(path))

    def began(name: str, folder: Path) -> Feed:
        lines = folder / "lines.txt"
        lines.touch()
        threading.Thread(target=_add_connector, args=[port, name, lines], daemon=True).start()

        def feed(key: str, count: int) -> None:
            with lines.open("a") as file:
                file.write(f"{key} {count}\n")

        return feed

    return Program(command, environment=_with_kafka_jars(), began=began)


def _add_connector(port: int, name: str, lines: Path) -> None:
    settings = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "file": str(lines),
        "topic": f"{name}-out",
        "exactly.once.support": "required",
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/connectors/lines/config",
        json.dumps(settings).encode(),
        {"Content-Type": "application/json"},
        method="PUT",
    )
    for _ in range(100):
        try:
            urllib.request.urlopen(request, timeout=30).close()
        except OSError:
            time.sleep(1)
        else:
            return


def python_with(*requirements: str) -> str:
    """Return the Python of a separate environment with *requirements*, the first of which names it."""
    folder = WORK / "environments" / requirements[0]
    if not folder.exists():
        _fetch([sys.executable, "-m", "venv", "--clear", str(folder)], requirements[0])
        try:
            _fetch([str(folder / "bin" / "pip"), "install", "-q", *requirements], requirements[0])
        except CannotBeHadError:
            shutil.rmtree(folder)
            raise
    return str(folder / "bin" / "python")


def _in_python(requirement: str, source: str, *, exact: bool) -> Callable[[], Program]:
    """Return a program in a separate environment with *requirement*."""

    def program() -> Program:
        python = python_with(requirement)
        return Program(lambda servers, name, data: [python, str(SOURCES / source), servers, name, str(data)], exact)

    return program


def _kafkajs() -> Program:
    folder = WORK / "node"
    if shutil.which("npm") is None:
        raise CannotBeHadError("kafkajs needs node and npm")
    folder.mkdir(exist_ok=True)
    if not (folder / "node_modules" / "kafkajs").exists():
        _fetch(["npm", "install", "--silent", "--no-audit", "--no-fund", "kafkajs@2.2.4"], "kafkajs", folder)
    return Program(
        lambda servers, name, _: ["node", str(SOURCES / "passing_kafkajs.js"), servers, name],
        environment={"NODE_PATH": str(folder / "node_modules"), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
    )


def _kafka_go() -> Program:
    folder = WORK / "go"
    if shutil.which("go") is None:
        raise CannotBeHadError("kafka-go needs Go (https://go.dev/dl)")
    folder.mkdir(exist_ok=True)
    shutil.copyfile(SOURCES / "passing_kafkago.go", folder / "main.go")
    (folder / "go.mod").write_text("module passing\n\nrequire github.com/segmentio/kafka-go v0.4.51\n")
    _fetch(["go", "mod", "tidy"], "kafka-go", folder)
    _fetch(["go", "build", "-o", "passing"], "kafka-go", folder)
    return Program(lambda servers, name, _: [str(folder / "passing"), servers, name], exact=False)


_CARGO: Final = """\
[package]
name = "passing"
edition = "2021"

[dependencies]
rskafka = "=0.6.0"
tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
"""


def _rskafka() -> Program:
    folder = WORK / "rust"
    if shutil.which("cargo") is None:
        raise CannotBeHadError("rskafka needs cargo (https://rustup.rs)")
    (folder / "src").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(SOURCES / "passing_rskafka.rs", folder / "src" / "main.rs")
    (folder / "Cargo.toml").write_text(_CARGO)
    _fetch(["cargo", "build", "-q"], "rskafka", folder)
    program = str(folder / "target" / "debug" / "passing")
    return Program(lambda servers, name, data: [program, servers, name, str(data)], exact=False)


def _kcat() -> Program:
    """Return kcat, which repeatedly copies its entire input and exits: the kcat that writes waits for a full block of
    input, or for its end."""
    if shutil.which("kcat") is None:
        raise CannotBeHadError("kcat is not on this machine (Debian's package kcat)")
    copy = (
        'kcat -C -q -u -e -b "$0" -t "$1-in" -K " " | '
        'kcat -P -b "$0" -t "$1-out" -K " " -X enable.idempotence=true; sleep 0.5'
    )
    return Program(lambda servers, name, _: ["bash", "-c", copy, servers, name], exact=False)


PROGRAMS: Final[dict[str, Callable[[], Program]]] = {
    "streams": _streams,
    "connect": _connect,
    "quixstreams": _in_python("quixstreams==3.28.1", "counting_quix.py", exact=True),
    "faust": _in_python("faust-streaming==0.15.3", "counting_faust.py", exact=False),
    "kafkajs": _kafkajs,
    "flink": _flink,
    "kafka-go-program": _kafka_go,
    "rskafka": _rskafka,
    "kcat": _kcat,
}
