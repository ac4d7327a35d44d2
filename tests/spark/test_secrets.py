"""Spark neither stores nor shows nor sends the secrets that options only refer to."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from kafka_sink.broker.embedded_broker import EmbeddedCluster
from tests.support import amounts
from tests.support.certificates import Authority
from tests.support.ports import free_ports
from tests.support.readback import read_topic
from tests.support.secure_cluster import client_properties, secure_cluster, users
from tests.support.spark_version import requires_data_sources

ROOT = Path(__file__).parents[2]
USER_SECRET = "leak-s3cret-of-alice"
KEY_SECRET = "leak-s3cret-of-the-key"
#: An option of every write that is no secret: the search for secrets must find it in every place.
MARKER = "leak-marker"
#: Values of ``spark.sql.ui.explainMode``.
MODES = ("simple", "extended", "codegen", "cost", "formatted") if amounts.LONG else ("extended",)

# Every Python of Spark imports this module, which records the pickled data that the process receives and sends.
SITE = """
import os
import pyspark.serializers as serializers

def note(kind, name):
    method = getattr(kind, name)
    def noting(self, value, *more, **options):
        result = method(self, value, *more, **options)
        with open(os.path.join(os.environ["LEAK_DUMP"], str(os.getpid())), "ab") as file:
            file.write(value if name == "loads" else result)
        return result
    setattr(kind, name, noting)

for kind in (serializers.CPickleSerializer, serializers.CloudPickleSerializer):
    note(kind, "loads")
    note(kind, "dumps")
"""

PROGRAM = """
import json, sys, urllib.request
from pathlib import Path
from pyspark.sql import SparkSession
import kafka_sink

folder, remote, modes, conf, to = json.loads(Path(sys.argv[1]).read_text())
folder = Path(folder)
builder = SparkSession.builder.remote("local[2]") if remote else SparkSession.builder.master("local[2]")
for name, value in conf.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
if not remote:
    kafka_sink.register(spark)
rows = spark.range(100).selectExpr("cast(id as string) as value")
for mode in modes:
    spark.conf.set("spark.sql.ui.explainMode", mode)
    rows.write.format("kafkalite").mode("append").options(**to).save()
kafka_sink.write(rows, options=to, app_id="leak", version=1)
rows.write.parquet(str(folder / "in"))
writer = spark.readStream.schema("value string").parquet(str(folder / "in")).writeStream.format("kafkalite")
writer = writer.options(**to, deliveryGuarantee="exactly-once", transactionalIdPrefix="leak-stream")
query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
query.awaitTermination()
query.explain(True)
print(query.lastProgress)
print(kafka_sink.check(spark, to))

ui = "http://127.0.0.1:" + conf["spark.ui.port"]
pages = folder / "ui"
pages.mkdir()
def fetch(path):
    with urllib.request.urlopen(ui + path, timeout=60) as answer:
        text = answer.read()
    (pages / (path.replace("/", "_")[:60] + str(len(list(pages.iterdir()))))).write_bytes(text)
    return text
(app,) = json.loads(fetch("/api/v1/applications"))
base = "/api/v1/applications/" + app["id"]
for path in ("/environment", "/jobs", "/stages?details=true", "/sql?details=true&planDescription=true&length=1000"):
    fetch(base + path)
for execution in json.loads(fetch(base + "/sql?length=1000")):
    fetch("/SQL/execution/?id=" + str(execution["id"]))
for path in ("/environment/", "/StreamingQuery/", *(["/connect/"] if remote else [])):
    fetch(path)
spark.stop()
"""


@pytest.fixture
def cluster() -> Iterator[tuple[EmbeddedCluster, Authority]]:
    authority = Authority()
    broker = authority.issue("127.0.0.1")
    required: dict[str, Any] = {"ssl_truststore_certificates": authority.pem, "ssl_client_auth": "required"}
    required["sasl_jaas_config"] = users(alice=USER_SECRET)
    with secure_cluster(broker.pem(), **required) as running:
        yield running, authority


def run(program: Path, folder: Path, given: list[Any]) -> str:
    arguments = folder / "arguments.json"
    arguments.write_text(json.dumps(given))
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(SITE)
    done = subprocess.run(
        [sys.executable, str(program), str(arguments)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder / "site"), str(ROOT)]),
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "LEAK_DUMP": str(folder / "dump"),
            "LEAK_KEY_PASSWORD": KEY_SECRET,
        },
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


@requires_data_sources
@pytest.mark.behaviour("Faults: security", "Secrets by reference are nowhere in what Spark keeps, shows and sends")
@pytest.mark.parametrize(
    "remote",
    [
        False,
        pytest.param(
            True,
            marks=pytest.mark.skipif(amounts.PIPELINE_RUNS == 0, reason="KAFKALITE_PIPELINE_RUNS is not set"),
        ),
    ],
    ids=["classic", "connect"],
)
def test_no_secret_by_reference_is_seen_in_spark(
    remote: bool, cluster: tuple[EmbeddedCluster, Authority], tmp_path: Path
) -> None:
    running, authority = cluster
    identity = authority.issue(common_name="carol")
    key = identity.key_pem(KEY_SECRET)
    hidden, seen = tmp_path / "hidden", tmp_path / "seen"
    for folder in (hidden, seen, seen / "dump", seen / "events"):
        folder.mkdir()
    (hidden / "secrets.properties").write_text(f"alice = {USER_SECRET}\n")
    (hidden / "key.pem").write_text(key)
    (hidden / "chain.pem").write_text(identity.certificate_pem)
    (tmp_path / "ca.pem").write_text(authority.pem)
    properties = client_properties(
        running, "SASL_SSL", client_id=MARKER, max_block_ms="30000", delivery_timeout_ms="60000"
    ) | {
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "ssl.keystore.key": f"${{dir:{hidden}:key.pem}}",
        "ssl.keystore.certificate.chain": f"${{dir:{hidden}:chain.pem}}",
        "ssl.key.password": "${env:LEAK_KEY_PASSWORD}",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "ScramLoginModule required "
        f'username="alice" password="${{file:{hidden}/secrets.properties:alice}}";',
    }
    to = {f"kafka.{name}": str(value) for name, value in properties.items()} | {"topic": "t"}
    to["reportPath"] = str(seen / "report.jsonl")
    conf = {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(free_ports()),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{seen}/events",
        "spark.eventLog.compress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
    }
    (tmp_path / "program.py").write_text(PROGRAM)
    said = run(tmp_path / "program.py", seen, [str(seen), remote, MODES, conf, to])
    (seen / "said").write_text(said)
    assert len(read_topic(running.bootstrap_servers, "t")) == 100 * (len(MODES) + 2)

    secrets = [USER_SECRET, KEY_SECRET, key.splitlines()[1]]
    needles = [text.encode() for text in secrets]
    needles += [base64.b64encode(text)[4:-4] for text in needles]
    files = [path for path in seen.rglob("*") if path.is_file()]
    assert [path.name for path in files if any(needle in path.read_bytes() for needle in needles)] == []
    # The search works: it finds the marker in every place.
    marked = {path.relative_to(seen).parts[0] for path in files if MARKER.encode() in path.read_bytes()}
    assert marked >= ({"dump", "events", "ui"} if remote else {"dump", "ui"}), marked
    assert "is a secret" not in said
