"""The coordinator clients of a process."""

from __future__ import annotations

import gc

from kafka_sink.spark.task.shared_client import shared_client

PASSWORD = "s3cr3t-of-shared-client"


def test_keys_of_kept_clients_hold_no_secret() -> None:
    properties = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
    }
    first = shared_client(properties)
    assert shared_client(dict(reversed(properties.items()))) is first
    assert shared_client({**properties, "sasl.password": f"{PASSWORD}2"}) is not first
    caches = [each for each in gc.get_objects() if isinstance(each, dict)]
    kept_by_key = [each for each in caches if any(value is first for value in list(each.values()))]
    assert kept_by_key
    assert not [each for each in kept_by_key if PASSWORD in repr(list(each))]
