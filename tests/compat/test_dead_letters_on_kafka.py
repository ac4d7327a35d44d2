"""A stream with bad rows on a real Kafka, killed with all of its Spark; KAFKALITE_SPARK_KILLS sets how often."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.kafka_version import requires_kafka
from tests.conftest import Figure
from tests.support import amounts
from tests.support.four_ways import STREAM
from tests.support.killed_spark import KilledSpark
from tests.support.real_kafka import RealKafka
from tests.support.spark_version import requires_data_sources
from tests.support.step_proxy import StepProxy

KILLS = amounts.SPARK_KILLS

pytestmark = [
    requires_kafka("3.6", "the verification of transactions (KIP-890, part 1)"),
    pytest.mark.timeout(300 + 120 * KILLS),
]


@amounts.only_long
@requires_data_sources
@pytest.mark.behaviour(
    "Dead letters", "With exactly once bad rows are dead letters once on a real Kafka, whenever Spark is killed"
)
def test_bad_rows_are_dead_letters_once_on_kafka(real_kafka: RealKafka, tmp_path: Path, figure: Figure) -> None:
    with StepProxy(real_kafka.bootstrap_servers) as proxy:
        verdict = KilledSpark(proxy, real_kafka.bootstrap_servers, [STREAM], tmp_path).run(KILLS)[STREAM]
    figure(STREAM, verdict)
    assert verdict.is_exact, verdict
    assert verdict.rejected == verdict.batches
