"""Exactly once on a broker that is not Apache Kafka, which ``scripts/test.sh --broker NAME`` selects."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Figure
from tests.support.four_ways import WAYS
from tests.support.killed_spark import KilledSpark
from tests.support.other_brokers import CHOSEN
from tests.support.real_kafka import RealKafka
from tests.support.step_proxy import StepProxy

KILLS = 3
#: Lines of each of nine files.
LINES = 6000

pytestmark = pytest.mark.skipif(not CHOSEN, reason="scripts/test.sh --broker NAME chooses a broker")


@pytest.mark.timeout(900)
def test_killed_spark_is_exact_on_other_brokers(real_kafka: RealKafka, tmp_path: Path, figure: Figure) -> None:
    with StepProxy(real_kafka.bootstrap_servers) as proxy:
        spark = KilledSpark(proxy, real_kafka.bootstrap_servers, WAYS, tmp_path, lines=LINES)
        verdicts = spark.run(KILLS)
    for way, verdict in verdicts.items():
        figure(way, verdict)
    assert all(verdict.is_exact and verdict.rows >= 50_000 for verdict in verdicts.values()), verdicts
