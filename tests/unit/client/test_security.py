"""Options of TLS and SASL that contradict each other or are missing, and their error messages."""

from __future__ import annotations

import logging
import socket
from contextlib import closing
from pathlib import Path

import pytest

from kafka_sink.client.login.channel_security import create_channel_builder
from kafka_sink.client.login.credentials import PasswordCredentials
from kafka_sink.client.login.sasl_authenticator import SaslClientAuthenticator
from kafka_sink.client.options.config import ClientConfig
from kafka_sink.common.config import keys, parse
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.tls_config import ClientSslConfig
from kafka_sink.network.channel.channel import ChannelBuilder
from kafka_sink.network.frames import READ_AHEAD_BYTES, UNLIMITED_MEMORY_POOL, FrameReader
from kafka_sink.network.transport.tls_transport import TlsTransport
from kafka_sink.registry.config import registry_configs
from tests.fakes.clock import FakeClock
from tests.support.cases import with_each

SCRAM_LINE = 'ScramLoginModule required username="alice" password="s3cr3t";'


def build(protocol: str, **options: object) -> ChannelBuilder:
    properties = {name.replace("_", "."): value for name, value in options.items()}
    config = parse(ClientConfig, {"bootstrap.servers": "h:1", "security.protocol": protocol, **properties})
    return create_channel_builder(config, FakeClock(), "me")


@with_each(
    ("protocol", "is_encrypted", "logs_in"),
    [("PLAINTEXT", False, False), ("SSL", True, False), ("SASL_PLAINTEXT", False, True), ("SASL_SSL", True, True)],
)
def test_security_protocol_selects_transport_and_login(protocol: str, is_encrypted: bool, logs_in: bool) -> None:
    builder = build(protocol, sasl_mechanism="scram-sha-512", sasl_username="a", sasl_password="b")
    reader = FrameReader("1", 100, UNLIMITED_MEMORY_POOL, memoryview(bytearray(READ_AHEAD_BYTES)))
    ours, theirs = socket.socketpair()
    with theirs, closing(builder.build_channel("1", ours, connected=True, reader=reader, peer_host="h")) as channel:
        assert isinstance(channel.transport, TlsTransport) == is_encrypted
        assert isinstance(channel.authenticator, SaslClientAuthenticator) == logs_in


def test_security_protocol_without_meaning_is_refused() -> None:
    with pytest.raises(ConfigError, match="one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"):
        build("TLS")


@with_each(
    ("options", "problem"),
    [
        ({}, r"sasl\.mechanism=GSSAPI, Kafka's default, needs sasl\.kerberos"),
        ({"sasl_mechanism": "PLAIN"}, "PLAIN needs a user name: set sasl.jaas.config, or sasl.username and"),
        ({"sasl_mechanism": "PLAIN", "sasl_username": "alice"}, "PLAIN needs a password"),
        (
            {"sasl_mechanism": "PLAIN", "sasl_username": "a", "sasl_password": "s3cr3t\0x"},
            "must not contain the character",
        ),
        ({"sasl_mechanism": "PLAIN", "sasl_jaas_config": SCRAM_LINE}, "is for SCRAM-SHA-256 and SCRAM-SHA-512, but"),
        (
            {"sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": SCRAM_LINE, "sasl_password": "s3cr3t"},
            "are both set; remove one of them",
        ),
        (
            {"sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": SCRAM_LINE.replace(";", " tokenauth='true';")},
            "tokenauth=true is for delegation tokens, which are not supported; use a user and a password",
        ),
        ({"sasl_mechanism": "OAUTHBEARER"}, r"url, or sasl\.login\.callback\.handler\.class: a function"),
        ({"sasl_mechanism": "OAUTHBEARER", "sasl_login_callback_handler_class": "x.y"}, "x.y cannot be imported"),
        ({"sasl_mechanism": "GSSAPI"}, r"needs sasl\.kerberos\.service\.name: the first part of"),
    ],
)
def test_what_is_missing_or_contradicts_itself_is_named(options: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as error:
        build("SASL_SSL", **options)
    assert "s3cr3t" not in str(error.value)


def test_line_of_kerberos_takes_every_option_of_java() -> None:
    flags = "useKeyTab useTicketCache storeKey doNotPrompt debug refreshKrb5Config renewTGT isInitiator tryFirstPass"
    names = [*flags.split(), "useFirstPass", "storePass", "clearPass"]
    line = f"Krb5LoginModule REQUIRED {' '.join(f'{name}=true' for name in names)} keyTab='/k' principal='a@B'; // all"
    build("SASL_SSL", sasl_mechanism="GSSAPI", sasl_jaas_config=line, sasl_kerberos_service_name="kafka")


def test_unchecked_names_and_a_token_in_clear_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    line = 'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="dora";'
    build("SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_jaas_config=line)
    assert "SASL_PLAINTEXT" not in caplog.text
    build("SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER", sasl_jaas_config=line)
    assert "OAUTHBEARER over SASL_PLAINTEXT sends the token unencrypted" in caplog.text
    assert "host name" not in caplog.text
    build("SSL", ssl_endpoint_identification_algorithm="")
    assert "ssl.endpoint.identification.algorithm is empty: a certificate for any host name is accepted" in caplog.text


#: Every name of Kafka's for TLS, with a possible value.
OF_TLS = {
    "ssl.protocol": "SSL",
    "ssl.provider": "SunJSSE",
    "ssl.secure.random.implementation": "SHA1PRNG",
    "ssl.keymanager.algorithm": "SunX509",
    "ssl.trustmanager.algorithm": "PKIX",
    "ssl.endpoint.identification.algorithm": "",
    "ssl.truststore.certificates": "pem",
    "ssl.truststore.location": "/ca.pem",
    "ssl.truststore.password": "x",
    "ssl.truststore.type": "JKS",
    "ssl.keystore.certificate.chain": "pem",
    "ssl.keystore.key": "pem",
    "ssl.keystore.location": "/key.pem",
    "ssl.keystore.password": "x",
    "ssl.keystore.type": "PKCS12",
    "ssl.key.password": "x",
    "ssl.enabled.protocols": "TLSv1.2",
    "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
}
REFUSED_OF_TLS = {"ssl.engine.factory.class"}
NAMES = (Path(__file__).parents[2] / "golden" / "kafka_producer_options.txt").read_text(encoding="ascii").split()


@pytest.mark.behaviour("SASL", "The line of a token endpoint takes every ssl.* option, or says that it has no effect")
def test_token_endpoints_line_takes_every_option_of_tls(caplog: pytest.LogCaptureFixture) -> None:
    assert OF_TLS.keys() | REFUSED_OF_TLS == {name for name in NAMES if name.startswith("ssl.")}
    options = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token_endpoint_url": "https://idp/token"}
    line = 'OAuthBearerLoginModule required clientId="a" clientSecret="b"'
    for name, value in OF_TLS.items():
        caplog.clear()
        build("SASL_SSL", sasl_jaas_config=f'{line} {name}="{value}";', **options)
        has_effect = name in keys(ClientSslConfig)
        assert has_effect != any(f"without effect here: sasl.jaas.config: {name} (" in said for said in caplog.messages)
    with pytest.raises(ConfigError, match=r"ssl\.engine\.factory\.class is not supported: Java classes cannot be used"):
        build("SASL_SSL", sasl_jaas_config=f'{line} ssl.engine.factory.class="x.Y";', **options)


@pytest.mark.behaviour(
    "Schema registry", "Its ssl.* options are all that Kafka knows, or it is said that one has no effect"
)
def test_registry_takes_every_option_of_tls(caplog: pytest.LogCaptureFixture) -> None:
    for name, value in OF_TLS.items():
        caplog.clear()
        registry_configs({"schema.registry.url": "https://registry", f"schema.registry.{name}": value})
        has_effect = name in keys(ClientSslConfig)
        assert has_effect != any(f"without effect here: schema.registry.{name} (" in said for said in caplog.messages)


def test_clear_text_password_and_unused_options_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    build("SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=SCRAM_LINE)
    assert caplog.records == []
    build("SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_username="alice", sasl_password="s3cr3t")
    build("PLAINTEXT", sasl_mechanism="PLAIN", sasl_password="s3cr3t", ssl_key_password="s3cr3t")
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, "PLAIN over SASL_PLAINTEXT sends the password unencrypted; use SASL_SSL to encrypt it"),
        (
            logging.WARNING,
            "with security.protocol=PLAINTEXT, these options have no effect: "
            "ssl.key.password, sasl.mechanism, sasl.password",
        ),
    ]


def test_what_a_reference_stands_for_is_read_for_each_login(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret = tmp_path / "pw"
    secret.write_text("s3cr3t\n")
    reference = f"${{dir:{tmp_path}:pw}}"
    for options in (
        {"sasl_username": "alice", "sasl_password": reference},
        {"sasl_jaas_config": SCRAM_LINE.replace("s3cr3t", reference)},
    ):
        secret.write_text("s3cr3t\n")
        properties = {name.replace("_", "."): value for name, value in options.items()}
        credentials = PasswordCredentials(
            parse(ClientConfig, {"bootstrap.servers": "h:1", "sasl.mechanism": "SCRAM-SHA-256", **properties})
        )
        assert credentials() == ("alice", "s3cr3t")
        secret.write_text("n3w")
        assert credentials() == ("alice", "n3w")
        secret.unlink()
        assert credentials() == ("alice", "n3w")
        assert "the credentials cannot be read again; the previous ones stay in use: option sasl." in caplog.text
    assert "n3w" not in caplog.text and "s3cr3t" not in caplog.text


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            None,
            r"option sasl\.jaas\.config: \$\{dir:.*:line\} cannot be resolved on .*/line cannot be read: No such file",
        ),
        ("", r"option sasl\.jaas\.config: \$\{dir:.*:line\} refers to an empty value"),
        ("s3cr3t", r"option sasl\.jaas\.config: malformed, expected"),
        (SCRAM_LINE.replace("s3cr3t", 's3cr3t"'), r"option sasl\.jaas\.config: malformed after 2 options"),
        (SCRAM_LINE.replace("s3cr3t", ""), r"needs a password"),
    ],
)
def test_bad_content_behind_a_reference_is_explained(content: str | None, problem: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "line").write_text(content)
    with pytest.raises(ConfigError, match=problem) as error:
        build("SASL_SSL", sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=f"${{dir:{tmp_path}:line}}")
    assert "s3cr3t" not in str(error.value)
