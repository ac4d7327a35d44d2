"""Our producer behind a network that resets, delays, swallows and drips answers, in front of the embedded broker.

Each test sends an ordered load and lets librdkafka read what is there: nothing may be missing, twice, or out of its
key's order. KAFKALITE_FAULT_RECORDS sets how many records a test sends.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kafka_sink import EmbeddedCluster, KafkaProducer, ProducerRecord
from kafka_sink.common.errors import DisconnectError, KafkaTimeoutError
from kafka_sink.protocol.api_key import ApiKey
from tests.conftest import Figure
from tests.support import amounts
from tests.support.fault_proxy import Delay, Drip, Fault, FaultProxy, Plan, Shape, every, only
from tests.support.ordered_load import OrderedLoad
from tests.support.readback import read_topic

RECORDS = amounts.FAULT_RECORDS
PORTIONS = 100
#: How long the load goes on for the faults that it shall meet.
LIMIT_S = 60.0
REQUEST_TIMEOUT_MS = 1_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(nodes=2) as running:
        yield running


def make_producer(bootstrap_servers: str, **properties: object) -> KafkaProducer:
    return KafkaProducer(
        {
            "bootstrap.servers": bootstrap_servers,
            "request.timeout.ms": REQUEST_TIMEOUT_MS,
            "batch.size": 4_000,
            **{name.replace("_", "."): value for name, value in properties.items()},
        }
    )


def run_load(
    cluster: EmbeddedCluster,
    topic: str,
    figure: Figure,
    plan: Plan,
    *,
    shape: Shape | None = None,
    records: int = RECORDS,
    faults: int = 0,
) -> None:
    """Send *records* through a proxy with *plan*, more until it has had so many *faults*, and prove that the topic
    holds them."""
    cluster.create_topic(topic, partitions=6)
    with FaultProxy(cluster.bootstrap_servers, plan, shape) as proxy:
        began = time.monotonic()
        with make_producer(proxy.bootstrap_servers) as producer:
            load = OrderedLoad(producer, topic)
            while load.sent < records or (proxy.faults < faults and time.monotonic() < began + LIMIT_S):
                load.send(records // PORTIONS)
                # The faults are of so many requests, and what waits shares one.
                time.sleep(0 if load.sent < records else 0.01)
            producer.flush(timeout=100)
            retries = producer.metrics()["record-retry-total"]
        took = time.monotonic() - began
    assert load.errors[:3] == []
    assert load.acknowledged == load.sent
    verdict = load.judge(read_topic(cluster.bootstrap_servers, topic))
    figure("records", load.sent)
    figure("faults", proxy.faults)
    figure("sent again", int(retries))
    figure("missing/twice/out of order", f"{verdict.missing}/{verdict.duplicates}/{verdict.out_of_order}")
    figure("longest stall", f"{load.longest_stall_s:.1f} s")
    figure("rate", f"{load.sent / took:,.0f} records/s")
    assert verdict.is_clean, verdict
    assert proxy.faults >= faults


LOST = {
    "reset-before": every(7, Fault.RESET_BEFORE),
    "reset-after": every(7, Fault.RESET_AFTER),
    "half-then-close": every(11, Fault.HALF_THEN_CLOSE),
    "swallowed": every(23, Fault.SWALLOW),
    "twice": every(23, Fault.TWICE),
}
LATE = {
    "silence": only({5, 40}, Fault.SILENCE),
    "late": only({5, 40}, Delay(REQUEST_TIMEOUT_MS / 1000 + 0.5)),
    "half": only({5, 40}, Fault.HALF),
    "byte-by-byte": only({5, 40}, Drip(1.0)),
}


@pytest.mark.behaviour("Faults: network", "Answers that are lost, cut or doubled lose, repeat and reorder nothing")
@pytest.mark.parametrize("name", LOST)
def test_answers_that_are_lost_lose_and_repeat_nothing(cluster: EmbeddedCluster, figure: Figure, name: str) -> None:
    run_load(cluster, name, figure, LOST[name], faults=3)


@pytest.mark.behaviour("Faults: network", "Answers later than request.timeout.ms lose, repeat and reorder nothing")
@pytest.mark.parametrize("name", LATE)
def test_answers_after_request_timeout_lose_and_repeat_nothing(
    cluster: EmbeddedCluster, figure: Figure, name: str
) -> None:
    run_load(cluster, name, figure, LATE[name], faults=2)


def test_faults_of_metadata_and_versions_stop_nothing(cluster: EmbeddedCluster, figure: Figure) -> None:
    def plan(key: ApiKey, number: int) -> Fault | None:
        if key in (ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.INIT_PRODUCER_ID) and number == 1:
            return Fault.RESET_AFTER
        if key in (ApiKey.METADATA, ApiKey.API_VERSIONS) and number == 2:
            return Fault.HALF_THEN_CLOSE
        return Fault.RESET_BEFORE if key is ApiKey.PRODUCE and number == 3 else None

    run_load(cluster, "metadata-faults", figure, plan, records=2_000)


@pytest.mark.behaviour("Faults: network", "A slow and lossy network loses nothing")
def test_a_slow_and_lossy_network_loses_nothing(cluster: EmbeddedCluster, figure: Figure) -> None:
    shape = Shape(latency_s=0.05, jitter_s=0.05, loss=0.01, bytes_per_s=1_000_000 / 8)
    run_load(cluster, "slow", figure, lambda key, number: None, shape=shape, records=10_000)


@pytest.mark.behaviour("Delivery time-out", "A request without an answer ends after request.timeout.ms")
@pytest.mark.behaviour(
    "Faults: network",
    "An answer that never comes, comes half or byte by byte, is tried again within delivery.timeout.ms",
)
def test_answer_that_never_comes_ends_after_request_timeout(cluster: EmbeddedCluster, figure: Figure) -> None:
    cluster.create_topic("never", partitions=1)
    faults: dict[str, Fault | Drip] = {"silence": Fault.SILENCE, "half": Fault.HALF, "1 byte per s": Drip(1.0)}
    for name, fault in faults.items():
        with (
            FaultProxy(cluster.bootstrap_servers, every(1, fault)) as proxy,
            make_producer(proxy.bootstrap_servers, delivery_timeout_ms=5_000) as producer,
        ):
            began = time.monotonic()
            future = producer.send(ProducerRecord("never", b"v"))
            # Where the last attempt ends after delivery.timeout.ms, its own error is told.
            with pytest.raises((KafkaTimeoutError, DisconnectError), match="was not answered within 1000 ms"):
                future.result(60)
            took = time.monotonic() - began
            figure(name, f"{took:.1f} s of delivery.timeout.ms 5 s, {proxy.requests[ApiKey.PRODUCE]} attempts")
            assert proxy.requests[ApiKey.PRODUCE] >= 2
