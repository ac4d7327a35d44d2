"""Dependencies between the consumer's options."""

from __future__ import annotations

import pytest

from kafka_sink.common.errors import ConfigError
from kafka_sink.consumer.log_reader import LogReader


def test_receive_limit_must_cover_fetch_max_bytes() -> None:
    properties = {"bootstrap.servers": "127.0.0.1:9092", "fetch.max.bytes": 200_000_000}
    LogReader(properties).close()
    properties["receive.message.max.bytes"] = 200_000_511
    with pytest.raises(ConfigError, match=r"receive\.message\.max\.bytes .* is less than fetch\.max\.bytes"):
        LogReader(properties)
    LogReader({**properties, "receive.message.max.bytes": 200_000_512}).close()
