"""What people paste is taken for what Kafka's Java client takes it for: every difference is a row of
docs/differences.md."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.compat.java_judges.judged import JUDGED
from tests.compat.java_judges.judging import Difference, JavaJudges, Judged
from tests.compat.kafka_version import requires_kafka
from tests.support.amounts import JUDGED_CASES
from tests.support.real_kafka import skip_on_other_brokers, skip_without_kafka

pytestmark = requires_kafka("4.3.0", "what the page says of Java's client")

PAGE: Final = Path(__file__).parents[2] / "docs" / "differences.md"
HEADING: Final = "## Configurations of clients, beside Java's\n"
SEED: Final = 45
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


@pytest.mark.behaviour("Judged by Java", "The page names every difference, and no other")
def test_page_names_every_difference_and_no_other() -> None:
    _, _, section = PAGE.read_text(encoding="utf-8").partition(HEADING)
    named = re.findall(r"^\* \*\*(.+?)\*\*", section, re.M)
    assert sorted(named) == sorted(difference.name for _, difference in WANTED)
