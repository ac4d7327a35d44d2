"""The files in conf/ match the program: known keys, with the defaults of their tables."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.common.config import parse
from kafka_sink.common.properties import load_properties
from kafka_sink.producer.config import ProducerConfig

ROOT = Path(__file__).parents[2]
SERVERS = {"bootstrap.servers": "127.0.0.1:9092"}


@pytest.mark.parametrize("component", ["broker", "producer"])
def test_a_file_is_what_its_table_prints(component: str) -> None:
    render = runpy.run_path(str(ROOT / "scripts" / "print_conf.py"))["render"]
    shipped = (ROOT / "conf" / f"{component}.properties").read_text(encoding="utf-8")
    assert shipped == render(component), f"scripts/print_conf.py {component} > conf/{component}.properties"


def test_the_broker_read_from_its_file_is_the_default_broker() -> None:
    assert parse(BrokerConfig, load_properties(str(ROOT / "conf/broker.properties"))) == BrokerConfig()


def test_the_producer_read_from_its_file_is_the_default_producer() -> None:
    properties = {**load_properties(str(ROOT / "conf/producer.properties")), **SERVERS}
    assert parse(ProducerConfig, properties) == parse(ProducerConfig, SERVERS)


def test_every_setting_for_spark_has_a_comment_and_is_sparks() -> None:
    lines = (ROOT / "conf" / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    settings = [number for number, line in enumerate(lines) if line and not line.startswith("#")]
    assert settings
    for number in settings:
        assert lines[number].startswith("spark.")
        assert lines[number - 1].startswith("# ")
