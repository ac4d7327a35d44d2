"""The code of docs/security.md, on a cluster that refuses clients with less security."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from pyspark.sql import SparkSession

from kafka_sink.broker.embedded_broker import EmbeddedCluster
from tests.support.certificates import Authority
from tests.support.key_stores import keytool
from tests.support.pages import blocks
from tests.support.readback import read_topic
from tests.support.secure_cluster import address, secure_cluster, users
from tests.support.spark_version import requires_data_sources
from tests.support.token_server import SECRET, Issuer, TokenServer, token_server

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
PASSWORD = 'al"ice\\s-s3cret'
STORES = b"st0re-p4ss"
IN_A_LINE = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')


def in_a_file(text: str) -> str:
    return text.replace("\\", "\\\\")


#: Code that other tests run: tests/integration/test_aws_tokens.py simulates MSK, and
#: tests/compat/test_kerberos_on_kafka.py has a KDC.
ELSEWHERE = ("my_tokens.py", "sasl.oauthbearer.aws", "GSSAPI")
USE, *RECIPES = [code for code in blocks(PAGE, "python") if not any(each in code for each in ELSEWHERE)]
(TOKENS,) = [code for code in blocks(PAGE, "python") if "my_tokens.py" in code]


@pytest.fixture(scope="module")
def etc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that is /etc/kafka on the page."""
    folder = tmp_path_factory.mktemp("etc")
    authority = Authority()
    identity = authority.issue(common_name="alice")
    (folder / "tls").mkdir()
    line = f'ScramLoginModule required username="alice" password="{IN_A_LINE}";'
    for name, text in {
        "broker.pem": authority.issue("127.0.0.1").pem(),
        "ca.pem": authority.pem,
        "client.pem": identity.pem("k3y-p4ss"),
        "secrets.properties": (
            f"client={SECRET}\nclient.key=k3y-p4ss\nstores={STORES.decode()}\nalice={in_a_file(PASSWORD)}\n"
            f"alice.in.a.line={in_a_file(IN_A_LINE)}\nsasl.jaas.config={in_a_file(line)}\n"
        ),
        "tls/ca.crt": authority.pem,
        "tls/tls.key": identity.key_pem(),
        "tls/tls.crt": identity.certificate_pem,
        "my_tokens.py": TOKENS,
    }.items():
        (folder / name).write_text(text)
    encryption = BestAvailableEncryption(STORES)
    keystore = pkcs12.serialize_key_and_certificates(b"me", identity.key, identity.chain[0], None, encryption)
    (folder / "keystore.p12").write_bytes(keystore)
    given = ["-storetype", "JKS", "-storepass", STORES.decode(), "-keystore", str(folder / "truststore.jks")]
    keytool("-importcert", "-noprompt", "-alias", "ca", "-file", folder / "ca.pem", *given)
    return folder


@pytest.fixture(scope="module")
def cluster(etc: Path) -> Iterator[EmbeddedCluster]:
    """A cluster whose SSL listener requests client certificates, and refuses wrong ones."""
    given: dict[str, Any] = {"ssl_truststore_certificates": (etc / "ca.pem").read_text()}
    broker = (etc / "broker.pem").read_text()
    line = users(alice=PASSWORD)
    with secure_cluster(broker, **given, ssl_client_auth="requested", sasl_jaas_config=line) as running:
        yield running


@pytest.fixture(scope="module")
def strict_cluster(etc: Path) -> Iterator[EmbeddedCluster]:
    """A cluster whose SSL listener requires client certificates."""
    given: dict[str, Any] = {"ssl_truststore_certificates": (etc / "ca.pem").read_text()}
    with secure_cluster((etc / "broker.pem").read_text(), **given, ssl_client_auth="required") as running:
        yield running


@pytest.fixture(scope="module")
def idp() -> Iterator[TokenServer]:
    """The token server that is https://login.example.com on the page."""
    with token_server(Issuer(None)) as running:
        yield running


@requires_data_sources
@pytest.mark.behaviour("SASL", "The recipes of docs/security.md work, on the driver and on executors")
@pytest.mark.parametrize("number", range(len(RECIPES)))
def test_the_recipes_of_the_page_work(
    number: int,
    spark: SparkSession,
    etc: Path,
    cluster: EmbeddedCluster,
    strict_cluster: EmbeddedCluster,
    idp: TokenServer,
) -> None:
    recipe = RECIPES[number].replace("/etc/kafka", str(etc))
    recipe = recipe.replace("https://login.example.com/oauth2/token", idp.url)
    (protocol,) = re.findall(r'security\.protocol": "(\w+)"', recipe) or ["PLAINTEXT"]
    server = strict_cluster if "keystore" in recipe else cluster
    if "my_tokens" in recipe:
        spark.sparkContext.addPyFile(str(etc / "my_tokens.py"))
    # Quotes and backslashes in a JAAS line must be escaped, as the page says.
    recipe = recipe.replace(':alice}";', ':alice.in.a.line}";').replace("broker:9092", address(server, protocol))
    server.create_topic(f"orders{number}", 1)
    names: dict[str, Any] = {"df": spark.range(10).selectExpr("cast(id as string) as value")}
    exec(recipe, names)
    exec(USE.replace('"orders"', f'"orders{number}"'), names)
    assert len(read_topic(server.bootstrap_servers, f"orders{number}")) == 10


@pytest.mark.behaviour("kafkalite check", "The command line of docs/security.md works")
def test_the_command_line_of_the_page_works(cluster: EmbeddedCluster, etc: Path, tmp_path: Path) -> None:
    (file,), (command,) = blocks(PAGE, "properties"), blocks(PAGE, "sh")
    file = file.replace("broker:9092", address(cluster, "SASL_SSL")).replace("/etc/kafka", str(etc))
    (tmp_path / "client.properties").write_text(file)
    done = subprocess.run(
        [sys.executable, "-m", "kafka_sink.cli", *command.replace("orders", "t").split()[1:]],
        cwd=tmp_path,
        env={**os.environ, "KAFKA_PASSWORD": PASSWORD},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == "" and PASSWORD not in done.stdout
