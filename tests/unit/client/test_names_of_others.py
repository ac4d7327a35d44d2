"""Names of options of other clients: in shared files, of other programs, misspelt."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from kafka_sink.client.blocking.admin import AdminConfig
from kafka_sink.client.options import other_names
from kafka_sink.common import config as c
from kafka_sink.common.errors import ConfigError
from kafka_sink.consumer.config import ConsumerConfig
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.registry.config import RegistryConfig
from tests.golden.make_producer_options import names as of_javas_producer
from tests.support.cases import with_each

KINDS = (ProducerConfig, ConsumerConfig, AdminConfig)
SERVERS = {"bootstrap.servers": "127.0.0.1:9092"}
#: The properties of librdkafka 2.9 and of kafka-python 3.0, and a few of brokers, topics and Kafka's first producer.
FOREIGN = Path(__file__).with_name("foreign_options.txt").read_text(encoding="utf-8").split()


def refusal(name: str, prefix: str = "") -> str:
    with pytest.raises(ConfigError) as caught:
        c.parse(ProducerConfig, {**SERVERS, name: "s3cret"}, prefix=prefix)
    assert "s3cret" not in str(caught.value)
    return str(caught.value)


@pytest.mark.behaviour(
    "What people paste", "One properties file serves producers, consumers, admin clients and every command"
)
@pytest.mark.parametrize("kind", KINDS)
def test_options_of_every_reader_are_taken_and_named_once(
    kind: type[ProducerConfig], caplog: pytest.LogCaptureFixture
) -> None:
    own = c.keys(kind)
    of_others = {name: reader for name, reader in other_names.READERS.items() if name not in own}
    of_others |= {"producer.acks": "for the producer of", "main.consumer.group.id": "for the main.consumer of"}
    of_others |= {"key.converter.schemas.enable": "for Kafka Connect", "topic.retention.ms": "for Kafka Streams"}
    of_registries = (
        "ssl.truststore.location",
        "basic.auth.credentials.source",
        "basic.auth.user.info",
        "bearer.auth.token",
    )
    of_others |= {f"schema.registry.{name}": "for clients of a schema registry" for name in of_registries}
    assert c.parse(kind, {**SERVERS, **dict.fromkeys(of_others, "s3cret")}) == c.parse(kind, SERVERS)
    (warning,) = caplog.messages
    assert all(f"{name} ({reader}" in warning for name, reader in of_others.items())
    assert "s3cret" not in warning


def test_readers_are_those_of_the_tables_here() -> None:
    assert set(other_names.PRODUCERS) <= set(of_javas_producer())
    assert set(other_names.PRODUCERS) == c.keys(ProducerConfig).keys() - c.keys(AdminConfig).keys()
    # Confluent's serializers are configured one by one, for keys or for values.
    own = {"key.use.schema.id", "value.use.schema.id"}
    assert c.keys(RegistryConfig).keys() - own <= set(other_names.REGISTRY_CLIENTS)
    of_java = {name for name in c.keys(ConsumerConfig) if name != "max.decompressed.bytes"}
    assert of_java - c.keys(ProducerConfig).keys() <= set(other_names.CONSUMERS)
    names = [name for each in other_names.BY_READER.values() for name in each]
    assert len(names) == len(set(names))


@pytest.mark.behaviour("What people paste", "A name of another client gets Kafka's name of it, and no name a wrong one")
@with_each(
    ("name", "hint"),
    [
        ("security_protocol", ": set kafka.security.protocol"),
        ("metadata.broker.list", ": set kafka.bootstrap.servers"),
        ("message.timeout.ms", ": set kafka.delivery.timeout.ms"),
        ("queue.buffering.max.ms", ": set kafka.linger.ms"),
        ("sasl_plain_username", ": set kafka.sasl.username"),
        ("group_id", ": remove it; group.id is for consumers"),
        ("ssl_cafile", ": name the file of certificates with kafka.ssl.truststore.location (PEM)"),
        ("queue.buffering.max.kbytes", ": set kafka.buffer.memory, in bytes and not in KiB"),
        ("statistics.interval.ms", ": remove it; metrics() and prometheus() have the figures"),
        ("linger", " (did you mean kafka.linger.ms?)"),
        ("Bootstrap.Servers", ": set kafka.bootstrap.servers"),
        ("retention.ms", ""),
        ("message.format.version", ""),
        ("transaction.state.log.min.isr", ""),
    ],
)
def test_names_of_other_clients_get_the_right_one(name: str, hint: str) -> None:
    assert refusal(name, "kafka.") == f"unknown option kafka.{name}{hint}"


def test_no_foreign_name_is_taken_for_another_option(caplog: pytest.LogCaptureFixture) -> None:
    taken = {*c.keys(ProducerConfig), *ProducerConfig.NO_EFFECT, *ProducerConfig.NOT_SUPPORTED}
    guessed = {}
    for name in FOREIGN:
        if name not in taken and c.reader_of(ProducerConfig, name) is None:
            hint = c.hint(ProducerConfig, name, "")
            assert "{" not in hint
            if "did you mean" in hint:
                guessed[name] = hint
    assert guessed == {}


def test_what_hints_name_are_options() -> None:
    known = c.keys(ProducerConfig)
    for name in {*other_names.SAME, *other_names.OTHERWISE}:
        hint = other_names.instead_of(name, "kafka.", known) or ""
        assert name not in known and name not in other_names.READERS
        for option in re.findall(r"kafka\.([a-z][a-z0-9.]*[a-z])(?!…)", hint):
            assert option in known or any(each.startswith(f"{option}.") for each in known), hint


def test_misspelt_names_are_found_and_never_taken_for_others() -> None:
    source, found, tried = random.Random(1), 0, 0
    for kind in KINDS:
        for name in c.keys(kind):
            for _ in range(5):
                at = source.randrange(len(name) - 1)
                misspelt = source.choice(
                    [name[:at] + name[at + 1 :], name[:at] + "x" + name[at:], name.replace(".", "-"),
                     name[:at] + name[at + 1] + name[at] + name[at + 2 :]]
                )  # fmt: skip
                if misspelt not in c.keys(kind):
                    meant = c.misspelt(misspelt, c.keys(kind))
                    assert meant in (name, None)
                    found, tried = found + (meant is not None), tried + 1
    assert found > 0.97 * tried
