"""Messages about the security of options, and secrets that no text shows."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from kafka_sink.common.config import parse
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.tls_config import ClientSslConfig
from kafka_sink.preflight.check import check_all
from kafka_sink.preflight.findings import CheckReport, CheckTarget, RegistryTarget
from kafka_sink.producer.config import inline_secrets
from kafka_sink.spark.options import parse_options
from kafka_sink.trust.tls_context import TlsContexts

OPTIONS = {"kafka.bootstrap.servers": "b:1", "topic": "t"}
LOGIN = 'ScramLoginModule required username="{}" password="{}";'
IN_CLEAR = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.username=a", "sasl.password=${env:HOME}"]


@pytest.mark.parametrize("name", ["rule.executors._default_.param.secret", "kafka.rule.executors.x.param.secret"])
def test_secrets_of_rules_are_not_shown(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_options({**OPTIONS, "value.format": "avro", "schema.registry.url": "http://r:1", name: "s3cr3t"})
    assert "s3cr3t" not in str(refused.value)


@pytest.mark.parametrize(
    ("line", "is_inline"),
    [
        (LOGIN.format("${env:USER}", "s3cr3t"), True),
        (LOGIN.format("alice", "${file:/p:k}"), False),
        (LOGIN.format("alice", "${env:X}").replace("=", " = "), False),
        ("OAuthBearerLoginModule required clientId='${env:ID}' clientSecret=s3cr3t;", True),
        ("${file:/etc/client.properties:sasl.jaas.config}", False),
    ],
)
def test_a_secret_beside_a_reference_is_found(line: str, is_inline: bool) -> None:
    assert inline_secrets({"sasl.jaas.config": line}) == (["sasl.jaas.config"] if is_inline else [])


@pytest.mark.parametrize(
    ("servers", "registry"), [("SASL_SSL://alice:s3cr3t@b:1", ""), ("b:x", "https://alice:s3cr3t,x@r:1")]
)
def test_a_check_shows_no_login_in_an_address(servers: str, registry: str) -> None:
    of_registry = RegistryTarget({"schema.registry.url": registry}) if registry else None
    report = CheckReport(check_all(CheckTarget({"bootstrap.servers": servers}, registry=of_registry), "here"))
    assert not report.is_ok
    assert "s3cr3t" not in repr(report)


@pytest.mark.parametrize("name", ["ssl.ca.location", "ssl_cafile", "ssl.crl.location", "sasl.plain.password"])
def test_plugins_have_no_options_of_security(name: str) -> None:
    with pytest.raises(ConfigError, match="unknown option kafka"):
        parse_options({**OPTIONS, "kafka.partitioner.class": "my.Router", f"kafka.{name}": "x"})


@pytest.mark.parametrize(
    ("given", "said"),
    [(IN_CLEAR, "sends the password unencrypted"), (IN_CLEAR[1:], "these options have no effect: sasl.mechanism")],
)
def test_commands_say_what_is_not_secure(given: list[str], said: str) -> None:
    command = [sys.executable, "-m", "kafka_sink.cli", "topics", "list", "--bootstrap-server", "127.0.0.1:1"]
    options = [word for text in given for word in ("-X", text)]
    done = subprocess.run(
        [*command, "--timeout", "0.1", *options], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr.count(said) == 1, done.stderr


def test_acks_by_reference_are_refused_where_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = parse_options({**OPTIONS, "kafka.acks": "${env:RD7_ACKS}"}).spec.producer
    monkeypatch.setenv("RD7_ACKS", "0")
    with pytest.raises(ConfigError, match=r"kafka\.acks: '0' is not allowed"):
        producer.here()


def test_suites_that_are_left_out_are_named(caplog: pytest.LogCaptureFixture) -> None:
    suites = "TLS_AES_256_GCM_SHA384,TLS_RSA_WITH_TYPO,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
    with caplog.at_level(logging.WARNING):
        TlsContexts(parse(ClientSslConfig, {"ssl.cipher.suites": suites}), server=False)
    assert "left out: TLS_AES_256_GCM_SHA384, TLS_RSA_WITH_TYPO" in caplog.text
