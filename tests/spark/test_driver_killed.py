"""All processes of Spark are killed with -9 while it writes in all ways of exactly once; every topic ends up exact.

KAFKALITE_SPARK_KILLS sets the number of kills.
"""

from __future__ import annotations

import pytest

from tests.conftest import Figure
from tests.support import amounts
from tests.support.broker_process import BrokerProcess
from tests.support.four_ways import STREAM, WAYS
from tests.support.killed_spark import KilledSpark, WayVerdict
from tests.support.spark_version import HAS_DATA_SOURCES, requires_data_sources
from tests.support.step_proxy import StepProxy

KILLS = amounts.SPARK_KILLS

# In each run the demo's test kills a Spark, and tests/exactly_once kills drivers without one.
pytestmark = [
    pytest.mark.timeout(300 + 120 * KILLS),
    pytest.mark.skipif(KILLS == 0, reason="KAFKALITE_SPARK_KILLS is not set"),
]


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, WayVerdict]:
    """Return the verdicts on all ways in one Spark: each kill hits all of them, each at another step."""
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"))
    broker.start()
    try:
        with StepProxy(broker.bootstrap_servers) as proxy:
            folder = tmp_path_factory.mktemp("spark")
            ways = [way for way in WAYS if HAS_DATA_SOURCES or way != STREAM]
            return KilledSpark(proxy, broker.bootstrap_servers, ways, folder).run(KILLS)
    finally:
        broker.kill()


@pytest.mark.behaviour(
    "Faults: exactly once", "What a killed Spark was writing is exact in the end, in four ways to write"
)
@pytest.mark.behaviour("Dead letters", "With exactly once bad rows are dead letters once, whenever Spark is killed")
@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=requires_data_sources if way == STREAM else ()) for way in WAYS]
)
def test_what_a_killed_spark_was_writing_is_exact_in_the_end(
    verdicts: dict[str, WayVerdict], way: str, figure: Figure
) -> None:
    figure(way, verdicts[way])
    assert verdicts[way].is_exact, verdicts[way]
    assert sum(verdicts[way].kills.values()) == KILLS
