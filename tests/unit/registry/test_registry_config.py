"""The options of a schema registry, and the names of subjects."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import pytest

from kafka_sink.common.errors import ConfigError, KafkaError
from kafka_sink.http.exchange import Exchange, HttpAnswer, Server
from kafka_sink.registry.client import RegistryClient
from kafka_sink.registry.config import is_of_registry, registry_configs, registry_secrets
from kafka_sink.registry.subjects import subject_name, wire_header
from tests.support.cases import with_each

URL = {"schema.registry.url": "https://one:8081, http://two"}


def test_options_are_read_under_confluents_names() -> None:
    config, tls = registry_configs(
        {
            **URL,
            "schema.registry.ssl.truststore.certificates": "PEM",
            "auto.register.schemas": "false",
            "value.subject.name.strategy": "io.confluent.kafka.serializers.subject.RecordNameStrategy",
        }
    )
    assert config.urls == ("https://one:8081", "http://two")
    assert not config.auto_register
    assert config.value_strategy == "RecordNameStrategy"
    assert tls.ssl_truststore_certificates == "PEM"


@pytest.mark.behaviour("Schema registry", "Options that contradict each other are refused, and secrets are not shown")
@with_each(
    ("options", "expected"),
    [
        ({"auto.register.schemas": "false"}, "without schema.registry.url"),
        ({"schema.registry.ssl.keystore.key": "s3cr3t"}, "without schema.registry.url"),
        ({"schema.registry.url": "one:8081"}, "expected addresses that begin with http:// or https://"),
        ({**URL, "basic.auth.credentials.source": "USER_INFO"}, "belong together"),
        ({**URL, "basic.auth.credentials.source": "SASL_INHERIT"}, "expected one of URL, USER_INFO"),
        (
            {
                **URL,
                "basic.auth.credentials.source": "USER_INFO",
                "basic.auth.user.info": "me:s3cr3t",
                "bearer.auth.token": "s3cr3t",
            },
            "exclude each other",
        ),
        (
            {
                **URL,
                "use.latest.version": "true",
                "auto.register.schemas": "false",
                "key.subject.name.strategy": "RecordNameStrategy",
            },
            "use.latest.version=true needs TopicNameStrategy",
        ),
        ({**URL, "bearer.auth.credentials.source": "OAUTHBEARER"}, "needs bearer.auth.issuer.endpoint.url"),
        ({**URL, "bearer.auth.client.secret": "s3cr3t"}, "needs bearer.auth.issuer.endpoint.url"),
        (
            {
                **URL,
                "bearer.auth.credentials.source": "OAUTHBEARER",
                "bearer.auth.issuer.endpoint.url": "https://idp/token",
                "bearer.auth.client.id": "me",
                "bearer.auth.client.secret": "s3cr3t",
                "bearer.auth.token": "s3cr3t",
            },
            "excludes bearer.auth.token and basic.auth.user.info",
        ),
        ({**URL, "value.subject.name.strategy": "MyStrategy"}, "expected one of TopicNameStrategy"),
        ({**URL, "schema.registry.ssl.truststore.typ": "PEM"}, "unknown option schema.registry.ssl.truststore.typ"),
    ],
)
def test_contradicting_options_are_refused(options: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        registry_configs(options)
    assert expected in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


def test_secrets_are_named_unless_they_are_references() -> None:
    given = {"basic.auth.user.info": "me:s3cr3t", "bearer.auth.token": "${env:TOKEN}", "schema.registry.url": "x"}
    assert registry_secrets(given) == ("basic.auth.user.info",)
    config, _ = registry_configs({**URL, "bearer.auth.token": "s3cr3t"})
    assert "s3cr3t" not in repr(config)


@pytest.mark.parametrize(
    ("strategy", "topic", "name", "expected"),
    [
        ("TopicNameStrategy", "orders", None, "orders-value"),
        ("RecordNameStrategy", None, "org.shop.Order", "org.shop.Order"),
        ("TopicRecordNameStrategy", "orders", "org.shop.Order", "orders-org.shop.Order"),
    ],
)
def test_names_of_subjects(strategy: str, topic: str | None, name: str | None, expected: str) -> None:
    assert subject_name(strategy, "value", topic, name) == expected


@pytest.mark.parametrize(
    ("strategy", "topic", "name"),
    [("TopicNameStrategy", None, "R"), ("RecordNameStrategy", "t", None), ("TopicRecordNameStrategy", None, "R")],
)
def test_strategy_that_lacks_something_is_refused(strategy: str, topic: str | None, name: str | None) -> None:
    with pytest.raises(ConfigError, match=f"value.subject.name.strategy={strategy} needs"):
        subject_name(strategy, "value", topic, name)


def test_header_is_a_zero_and_four_bytes() -> None:
    assert wire_header(0x01020304) == b"\x00\x01\x02\x03\x04"


def test_addresses_are_shown_without_user_and_password() -> None:
    server = Server.parse("https://me:s3cr3t%40@host/path/")
    assert (server.shown, server.credentials) == ("https://host:443/path", "me:s3cr3t@")
    assert "s3cr3t" not in repr(server)
    assert Server.parse("http://[::1]:81").shown == "http://[::1]:81"


@pytest.mark.behaviour("Schema registry", "Credentials that go unencrypted to another machine are warned of, once")
def test_credentials_over_http_are_warned_of_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Exchange, "run", lambda *_: HttpAnswer(200, b"[]"))
    for urls in ("http://who:hidden@registry:81", "http://127.0.0.1:82", "https://registry:83"):
        for _ in range(2):
            source = {"basic.auth.credentials.source": "USER_INFO", "basic.auth.user.info": "who:hidden"}
            given = {"schema.registry.url": urls, **source}
            RegistryClient(*registry_configs(given)).types()
    (said,) = caplog.messages
    assert "are sent unencrypted to http://registry:81" in said and "use https:// in schema.registry.url" in said
    assert "hidden" not in said


def test_options_of_a_login_have_a_second_name() -> None:
    given = {"schema.registry.url": "https://registry", "schema.registry.basic.auth.user.info": "me:s3cr3t"}
    assert all(map(is_of_registry, given))
    assert registry_secrets(given) == ("schema.registry.basic.auth.user.info",)
    config, _ = registry_configs(given)
    assert (config.user_info, config.credentials_source) == ("me:s3cr3t", "USER_INFO")
    assert registry_configs({**given, "basic.auth.user.info": "me:s3cr3t"})[0] == config
    with pytest.raises(ConfigError, match=r"basic\.auth\.user\.info is set twice") as raised:
        registry_configs({**given, "basic.auth.user.info": "you:s3cr3t"})
    assert "s3cr3t" not in str(raised.value)


@pytest.mark.behaviour("Schema registry", "What a registry repeats of the credentials is hidden, whatever its status")
@pytest.mark.parametrize("status", [200, 422])
def test_what_a_registry_repeats_is_hidden(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "Zx9-TopSecret"
    sent = base64.b64encode(f"alice:{secret}".encode()).decode()
    client = RegistryClient(*registry_configs({"schema.registry.url": f"https://alice:{secret}@registry"}), rounds=1)
    asks: list[Callable[[], object]] = [
        *(lambda: client.schema(5), lambda: client.latest("s"), lambda: client.kind(7), client.types),
        *(lambda: client.register("s", '"int"'), lambda: client.incompatibilities("s", '"int"')),
    ]
    for echo in (f"Basic {sent}", f"x {secret}", "x" * 10_000):
        for field in ("id", "version", "schemaType", "messages", "message", "references"):
            for value in (echo, [echo], {"x": echo}, [{"name": echo, "subject": echo, "version": 1}]):
                body = json.dumps({"id": 1, "version": 1, "schema": '"int"', field: value}).encode()
                answer = HttpAnswer(status, body, credentials=sent)
                monkeypatch.setattr(Exchange, "run", lambda *_, found=answer: found)
                for ask in asks:
                    try:
                        said = repr(ask())
                    except KafkaError as error:
                        said = str(error)
                    assert secret not in said and sent not in said and len(said) < 5_000, (field, value, said[:300])
