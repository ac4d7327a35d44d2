"""Connections over SASL_SSL that are cut in the middle of frames and TLS records: no row is missing or duplicated."""

from __future__ import annotations

import pytest

from kafka_sink import KafkaProducer
from tests.bench.topics import fresh_topic
from tests.conftest import Figure
from tests.matrix.cells import BROKERS
from tests.matrix.conftest import MEGABYTES
from tests.support.cutting_proxy import CuttingProxy
from tests.support.ordered_load import OrderedLoad
from tests.support.readback import read_topic
from tests.support.securities import CUT, SecureServer

PARTITIONS = 4
VALUE_BYTES = 1_000
PORTION = 500
BATCH_BYTES = 65_536
#: The bytes that a connection transfers before it is cut: more than a handshake, and mostly more than a request, which
#: has a record batch for each partition.
LEAST_BYTES, MOST_BYTES = 64_000, 600_000
FLUSH_MS = 120_000


@pytest.mark.behaviour(
    "Security under load", "Connections that are cut in the middle of TLS records lose and repeat nothing"
)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("broker", BROKERS)
def test_cut_connections_lose_and_repeat_nothing(request: pytest.FixtureRequest, broker: str, figure: Figure) -> None:
    server: SecureServer = request.getfixturevalue(broker)
    properties = {**server.client_properties(CUT), "batch.size": BATCH_BYTES, "delivery.timeout.ms": FLUSH_MS}
    with fresh_topic(server.looks[CUT], PARTITIONS) as topic:
        with CuttingProxy(server.fronts, LEAST_BYTES, MOST_BYTES) as proxy, KafkaProducer(properties) as producer:
            load = OrderedLoad(producer, topic, VALUE_BYTES)
            while load.sent < MEGABYTES * 1_000_000 // VALUE_BYTES:
                load.send(PORTION)
            producer.flush(timeout=FLUSH_MS / 1000)
        assert load.errors[:3] == []
        assert load.acknowledged == load.sent
        verdict = load.judge(read_topic(server.looks[CUT], topic))
    figure("cuts", proxy.cuts)
    figure("missing/twice/out of order", f"{verdict.missing}/{verdict.duplicates}/{verdict.out_of_order}")
    assert verdict.is_clean, verdict
    assert proxy.cuts > MEGABYTES
