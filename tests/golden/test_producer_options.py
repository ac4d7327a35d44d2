"""Every option of Kafka's Java producer is known: as supported, as one without effect, or as one that is refused."""

from __future__ import annotations

import logging

import pytest

from kafka_sink.client.options import other_names
from kafka_sink.common import config as c
from kafka_sink.common.errors import ConfigError
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.spark.options import parse_options
from kafka_sink.spark.write_spec import REFUSED, producer_spec
from tests.golden.make_producer_options import names, names_in
from tests.support.cases import with_each

SERVERS = {"bootstrap.servers": "127.0.0.1:9092"}
#: Options of earlier versions, which configurations may still contain.
OF_OLDER_VERSIONS = {"auto.include.jmx.reporter"}
#: Options of Java's security providers, which Kafka's producer passes on to them.
OF_PROVIDERS = {
    name
    for name in {*other_names.NO_EFFECT, *other_names.NOT_SUPPORTED}
    if name.startswith(("config.providers.env.", "config.providers.file.", "config.providers.dir."))
}


@pytest.mark.behaviour("Sink options and commit messages", "No option of Kafka's Java producer is unknown")
def test_every_name_of_java_is_known() -> None:
    known = {*c.keys(ProducerConfig), *other_names.NO_EFFECT, *other_names.NOT_SUPPORTED}
    assert len(names()) > 100
    assert [name for name in names() if name not in known] == []


def test_tables_hold_names_of_java_alone_and_each_once() -> None:
    tables = [set(c.keys(ProducerConfig)), set(other_names.NO_EFFECT), set(other_names.NOT_SUPPORTED)]
    assert not tables[0] & tables[1] and not tables[0] & tables[2] and not tables[1] & tables[2]
    assert (tables[1] | tables[2]) - set(names()) == OF_OLDER_VERSIONS | OF_PROVIDERS


@pytest.mark.behaviour("Sink options and commit messages", "Options without effect are accepted with one warning")
def test_options_without_effect_are_named_in_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        given = SERVERS | dict.fromkeys(other_names.NO_EFFECT, "s3cret")
        parse_options({f"kafka.{name}": value for name, value in given.items()})
    (warning,) = [record.getMessage() for record in caplog.records]
    assert all(f"kafka.{name} (" in warning for name in other_names.NO_EFFECT)
    assert "s3cret" not in warning


@pytest.mark.behaviour("Sink options and commit messages", "Options that would change a promise are refused")
@with_each("name", [*other_names.NOT_SUPPORTED, *REFUSED])
def test_options_that_change_a_promise_are_refused(name: str) -> None:
    with pytest.raises(ConfigError) as raised:
        producer_spec({**SERVERS, name: "s3cret"})
    assert str(raised.value).startswith(f"option kafka.{name} is not supported: ")
    assert str(raised.value).endswith("; remove it")
    assert "s3cret" not in str(raised.value)
    assert "{" not in str(raised.value).replace("${file:…}", "")


def test_page_of_java_is_read() -> None:
    page = '<h4><a id="b"></a><a id="x_b" href="#x_b">b</a></h4>\n<h4><a id="a.c"></a></h4>'
    assert names_in(page) == ["a.c", "b"]
