"""Options of Confluent's serializers: each is an option here, refused, or named as one without effect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

from kafka_sink.client.options.other_names import REGISTRY_CLIENTS
from kafka_sink.common import config as c
from kafka_sink.common.errors import ConfigError
from kafka_sink.registry.config import RegistryConfig
from kafka_sink.spark.options import parse_options
from tests.support.cases import with_each

PAGE = (Path(__file__).parents[3] / "docs/avro.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| `([\w.]+)` \| (implemented|without effect|refused)(?:, but for `(\w+)`)? \|", PAGE, re.MULTILINE
)
OPTIONS = {
    "kafka.bootstrap.servers": "b:1",
    "topic": "t",
    "value.format": "json",
    "schema.registry.url": "http://r:1",
}


def test_the_page_has_the_options_of_all_serializers() -> None:
    # The serializers have no public list of their options.
    of_python = {
        name
        for each in (AvroSerializer, JSONSerializer, ProtobufSerializer)
        for name in re.findall(r"``([a-z]+(?:\.[a-z]+)+)``", each.__doc__ or "")
        if name != "schema.id.deserializer"
    }
    assert {"use.schema.id", "skip.known.types", "validate.strict"} <= of_python | {"validate.strict"}
    names = [name for name, _, _ in ROWS]
    assert names == sorted(REGISTRY_CLIENTS)
    assert of_python <= set(names), of_python - set(names)


@pytest.mark.behaviour("Schema registry", "An option of Confluent's serializers is an option here, refused or named")
@with_each(("name", "here", "taken"), ROWS)
def test_each_option_is_taken_as_the_page_says(
    name: str, here: str, taken: str, caplog: pytest.LogCaptureFixture
) -> None:
    if here == "implemented":
        assert name in c.keys(RegistryConfig)
        return
    if here == "without effect":
        parse_options({**OPTIONS, name: "x"})
    else:
        for prefix in ("", "kafka."):
            with pytest.raises(ConfigError, match=re.escape(f"option {name}: 'x' would change the payloads")):
                parse_options({**OPTIONS, prefix + name: "x"})
    if here == "without effect" or taken:
        caplog.clear()
        parse_options({**OPTIONS, name: taken or "x"})
        assert any(f"without effect here: {name}" in each for each in caplog.messages)


@pytest.mark.parametrize("name", ["rule.executors.encrypt.class", "kafka.rule.actions.x.param.y"])
def test_options_of_rules_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="the rules of data contracts are not run; remove it"):
        parse_options({**OPTIONS, name: "x"})


@pytest.mark.behaviour(
    "What people paste", "An option of the sink with kafka. before it is refused, with the right name"
)
@with_each(
    "name",
    ["schema.registry.url", "use.schema.id", "value.subject.name.strategy", "value.format", "topicPartitions", "topic"],
)
def test_the_sinks_own_options_have_no_prefix(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_options({**OPTIONS, f"kafka.{name}": "x"})
    assert str(refused.value).endswith(f"it is an option of the sink; set {name}")


@with_each(
    ("options", "message"),
    [
        ({"auto.register.schemas": "true"}, "has no effect while schemas are registered"),
        ({"use.latest.version": "true"}, "exclude each other"),
        ({"value.subject.name.strategy": "RecordNameStrategy"}, "needs TopicNameStrategy"),
        ({"value.schema": "{}"}, r"has no effect with use\.schema\.id=5"),
        ({"key.format": "avro"}, r"set key\.use\.schema\.id and value\.use\.schema\.id"),
        ({"value.use.schema.id": "6"}, r"use\.schema\.id and value\.use\.schema\.id exclude each other"),
    ],
)
def test_a_chosen_schema_excludes_what_would_decide(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_options({**OPTIONS, "use.schema.id": "5", **options})
