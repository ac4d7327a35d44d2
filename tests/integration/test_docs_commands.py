"""Every ``kafkalite`` command on the pages of the documentation runs as printed."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka_sink import EmbeddedCluster, KafkaProducer, ProducerRecord
from kafka_sink.broker.config import AUTHORIZER, BrokerConfig
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.client.blocking.group_admin import GroupAdmin
from kafka_sink.common.model import TopicPartition
from kafka_sink.registry.client import RegistryClient
from kafka_sink.registry.config import registry_configs
from kafka_sink.testing import EmbeddedRegistry
from tests.support.command_line import run_command
from tests.support.pages import blocks

DOCS = Path(__file__).parents[2] / "docs"
#: Lines of a page that are no complete commands, and the commands to run for them.
WHOLE = {
    "kafkalite topics list|create|describe|alter|delete …": [
        "kafkalite topics list",
        "kafkalite topics create made --partitions 2",
        "kafkalite topics describe made --configs",
        "kafkalite topics alter made --partitions 3",
        "kafkalite topics delete made",
    ],
    "kafkalite groups list|describe|delete …": [
        "kafkalite groups list",
        "kafkalite groups describe readers",
        "kafkalite groups delete old",
    ],
    "kafkalite txn list|describe|abort|commit --prefix orders-sink/": [
        f"kafkalite txn {verb} --prefix orders-sink/" for verb in ("list", "describe", "abort", "commit")
    ],
}
#: By command: the test that runs it, for servers and for commands that need a cluster with TLS or two nodes.
ELSEWHERE = {
    "kafkalite broker ": "test_cli.py, test_ui.py, test_conf_files.py",
    "kafkalite ui ": "test_ui.py",
    "kafkalite check orders --exactly-once orders-sink": "test_check.py",
    "kafkalite topics move-leader": "test_admin_clients.py",
    "kafkalite verify lines": "tests/spark/test_tutorial.py",
    "kafkalite topics create lines": "tests/spark/test_tutorial.py",
}
#: Commands that fail here because their target does not exist, with their error.
REFUSED = {
    "--abort-at 4711": "4711",
    "--commit-at 4711": "4711",
    "txn abort payments-producer-1": "payments-producer-1",
    "txn accept orders-sink orders --version 7": "its writer has to be given",
}
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
}
PROTO = 'syntax = "proto3"; message Order { int64 id = 1; string name = 2; }'


def commands(page: Path) -> list[str]:
    """Return the lines of the page's shell blocks that run ``kafkalite``, without comments, with variables replaced."""
    found: list[str] = []
    for code in blocks(page, "sh"):
        variables: dict[str, str] = {}
        for line in re.sub(r"\\\n *", " ", code).splitlines():
            text = re.sub(r"\s+#.*", "", line).strip()
            if assigned := re.fullmatch(r'(\w+)="(.*)"', text):
                variables[f"${assigned[1]}"] = assigned[2]
            for name, value in variables.items():
                text = text.replace(name, value)
            if re.search(r"(^|\| |\()kafkalite ", text):
                found += WHOLE.get(text, [text])
    return found


PAGES = {page.name: lines for page in sorted(DOCS.rglob("*.md")) if (lines := commands(page))}


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    config = BrokerConfig(authorizer_class_name=AUTHORIZER, super_users="User:ANONYMOUS")
    with EmbeddedCluster(config=config) as running:
        yield running


@pytest.fixture
def environment(cluster: EmbeddedCluster, tmp_path: Path) -> dict[str, str]:
    """Create the files that the pages name, and topics with their rows."""
    rows = [json.dumps({"id": number, "name": "x"}) for number in range(5)]
    for topic in ("orders", "orders.rejected", "copy-of-orders"):
        cluster.create_topic(topic, partitions=1)
        with KafkaProducer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            for number, row in enumerate(rows if topic == "orders.rejected" else []):
                producer.send(ProducerRecord(topic, row.encode(), key=str(number).encode()))
    with GroupAdmin(cluster.bootstrap_servers) as admin:
        for group in ("readers", "old"):
            admin.set_offsets(group, {TopicPartition("orders", 0): 0})
    for name in ("client.properties", "registry.properties"):
        (tmp_path / name).write_text("client.id=docs\n")
    (tmp_path / "records.jsonl").write_text("".join(json.dumps({"value": row}) + "\n" for row in rows))
    return {
        **os.environ,
        "KAFKALITE_BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
        "PYTHONPATH": str(DOCS.parent),
        "PYTHON": sys.executable,
    }


@pytest.mark.behaviour("Documentation", "Every command on the pages runs as it stands there")
@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_run(
    page: str, cluster: EmbeddedCluster, environment: dict[str, str], tmp_path: Path
) -> None:
    with EmbeddedRegistry() as registry:
        client = RegistryClient(*registry_configs({"schema.registry.url": registry.url}))
        if page == "protobuf.md":
            client.register("orders-value", PROTO, "PROTOBUF")
        else:
            client.register("orders-value", json.dumps(SCHEMA))
            client.register("orders-key", '"string"')
        for line in PAGES[page]:
            if any(line.startswith(words) for words in ELSEWHERE):
                continue
            done = ran(line, cluster, registry.url, environment, tmp_path)
            said = next((said for words, said in REFUSED.items() if words in line), None)
            assert (done.returncode != 0) == (said is not None), f"{line}\n{done.stdout}{done.stderr}"
            assert said is None or said in done.stderr, line


def ran(
    line: str, cluster: EmbeddedCluster, registry: str, environment: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run *line* with the addresses of this test; ``verify`` compares the topic with a file of its own rows."""
    text = re.sub(r"https?://(localhost|registry):8081", registry, line)
    text = re.sub(r"--bootstrap-server \S+", f"--bootstrap-server {cluster.bootstrap_servers}", text)
    text = text.replace("/data/", f"{folder}/")
    if "verify orders" in text:
        with_key = "--key" in text
        columns = {"customer" if with_key else "key": pa.array([], "string")}
        columns["payload" if with_key else "value"] = pa.array([], "string")
        if not with_key:
            with AdminClient(cluster.bootstrap_servers) as admin:
                admin.delete_topics(["orders"])
            cluster.create_topic("orders", partitions=1)
        pq.write_table(pa.table(columns), folder / "orders.parquet")
    if text.startswith("kafkalite report"):
        report = {"rows": 1, "bytes": 1, "wire_bytes": 1, "tasks": 1, "elapsed_ms": 1, "partitions": {}}
        (folder / "orders.jsonl").write_text(json.dumps({**report, "ack_p50_ms": 1, "ack_p99_ms": 1}) + "\n")
    if "consume orders --format" in text:
        # As on the pages, a record in this format has been written before.
        text += " --from-beginning --max 1" if "--isolation" not in text else ""
    if not re.search("[|;<>$()]", text):
        return in_this_process(text, cluster, folder)
    script = f'kafkalite() {{ "$PYTHON" -m kafka_sink.cli "$@"; }}\nset -e -o pipefail\n{text}\n'
    # Changes of ACLs ask for confirmation.
    return subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        input="y\n",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def in_this_process(line: str, cluster: EmbeddedCluster, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a *line* that needs no shell in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        at = {"KAFKALITE_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
        return run_command(shlex.split(line)[1:], "y\n", at)
