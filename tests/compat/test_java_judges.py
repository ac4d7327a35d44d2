"""kafkalite reads text that users paste as Kafka's Java client does: every difference is a row of
docs/internals/differences.md."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kafka_sink.common import config as c
from kafka_sink.producer.config import ProducerConfig
from tests.compat.java_judges.judged import JUDGED
from tests.compat.java_judges.judging import Difference, JavaJudges, Judged
from tests.compat.kafka_version import requires_kafka
from tests.support.amounts import JUDGED_CASES
from tests.support.real_kafka import skip_on_other_brokers, skip_without_kafka

pytestmark = requires_kafka("4.3.0", "what the page says of Java's client")

PAGE: Final = Path(__file__).parents[2] / "docs" / "internals" / "differences.md"
HEADING: Final = "## Client configurations, compared with Java\n"
SEED: Final = 45
OPTIONS_OF: Final = (
    "org.apache.kafka.clients.producer.ProducerConfig",
    "org.apache.kafka.clients.consumer.ConsumerConfig",
    "org.apache.kafka.clients.admin.AdminClientConfig",
    "org.apache.kafka.connect.runtime.distributed.DistributedConfig",
)
WANTED: Final = [(judged, difference) for judged in JUDGED.values() for difference in judged.differences]


@pytest.fixture(scope="module")
def java_judges() -> Iterator[JavaJudges]:
    skip_without_kafka()
    skip_on_other_brokers("Java's client")
    with JavaJudges() as judges:
        yield judges


@pytest.mark.behaviour(
    "Judged by Java", "Random cases are taken for what Java takes them for, but for what the page names"
)
@pytest.mark.parametrize("name", JUDGED)
def test_cases_have_only_named_differences_to_java(java_judges: JavaJudges, name: str) -> None:
    for case in range(int(JUDGED_CASES * JUDGED[name].share)):
        JUDGED[name].difference(java_judges, JUDGED[name].random(random.Random(f"{SEED} {name} {case}")))


@pytest.mark.parametrize(("judged", "difference"), WANTED, ids=[difference.name for _, difference in WANTED])
def test_named_difference_still_exists(java_judges: JavaJudges, judged: Judged, difference: Difference) -> None:
    assert judged.difference(java_judges, difference.example) == difference.name


@pytest.mark.behaviour("Judged by Java", "No option of a client of Kafka's, or of Connect, is unknown")
@pytest.mark.parametrize("kind", OPTIONS_OF)
def test_no_option_that_java_knows_is_unknown(java_judges: JavaJudges, kind: str) -> None:
    names = java_judges.ask("OptionNames", kind).taken
    assert len(names) > 80
    taken = {*c.keys(ProducerConfig), *c.without_effect(ProducerConfig, names), *ProducerConfig.NOT_SUPPORTED}
    assert [name for name in names if name not in taken and not name.startswith("internal.")] == []


@pytest.mark.behaviour("Judged by Java", "The page names every difference, and no other")
def test_page_names_every_difference_and_no_other() -> None:
    _, _, section = PAGE.read_text(encoding="utf-8").partition(HEADING)
    named = re.findall(r"^\* \*\*(.+?)\*\*", section, re.M)
    assert sorted(named) == sorted(difference.name for _, difference in WANTED)
