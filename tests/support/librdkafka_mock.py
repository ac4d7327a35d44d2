"""librdkafka's mock cluster: third-party brokers that respond with the errors that a test orders.

The Python package has no API for them, so ctypes calls the shared library that it includes. Tests on a real Kafka
cover the features that the mock brokers lack (real replication, checks of sequences across restarts).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import confluent_kafka

from kafka_sink.common.errors import ErrorCode
from kafka_sink.protocol.api_key import ApiKey

_PRODUCER = 0
_ERROR_BYTES = 512


@cache
def _library() -> ctypes.CDLL | None:
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    found = next(iter(sorted(folder.glob("librdkafka*"))), None)
    if found is None:
        return None
    library = ctypes.CDLL(str(found))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_handle_mock_cluster"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library


def is_available() -> bool:
    """Whether this platform's confluent-kafka includes librdkafka as a shared library."""
    return _library() is not None


class MockCluster:
    """*brokers* brokers with ids from 1, for as long as the context lasts."""

    def __init__(self, brokers: int = 3) -> None:
        library = _library()
        assert library is not None
        self._library = library
        text = ctypes.create_string_buffer(_ERROR_BYTES)
        conf = ctypes.c_void_p(library.rd_kafka_conf_new())
        for name, value in {"test.mock.num.brokers": brokers, "log_level": 0}.items():
            result = library.rd_kafka_conf_set(conf, name.encode(), str(value).encode(), text, _ERROR_BYTES)
            assert result == 0, text.value
        self._handle = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, conf, text, _ERROR_BYTES))
        assert self._handle.value, text.value
        self._cluster = ctypes.c_void_p(library.rd_kafka_handle_mock_cluster(self._handle))

    def __enter__(self) -> MockCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._library.rd_kafka_destroy(self._handle)

    @property
    def bootstrap_servers(self) -> str:
        return str(self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode())

    def create_topic(self, name: str, partitions: int, replication_factor: int = 1) -> None:
        self._check(
            self._library.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, replication_factor)
        )

    def fail_next(self, api_key: ApiKey, codes: Sequence[ErrorCode]) -> None:
        """Respond to the next requests of *api_key*, to any broker, with *codes*, one each."""
        errors = (ctypes.c_int * len(codes))(*codes)
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, ctypes.c_int16(api_key), ctypes.c_size_t(len(codes)), errors
        )

    def set_leader(self, topic: str, partition: int, broker: int) -> None:
        self._check(self._library.rd_kafka_mock_partition_set_leader(self._cluster, topic.encode(), partition, broker))

    def set_round_trip(self, broker: int, milliseconds: int) -> None:
        self._check(self._library.rd_kafka_mock_broker_set_rtt(self._cluster, broker, milliseconds))

    def set_down(self, broker: int) -> None:
        self._check(self._library.rd_kafka_mock_broker_set_down(self._cluster, broker))

    def set_up(self, broker: int) -> None:
        self._check(self._library.rd_kafka_mock_broker_set_up(self._cluster, broker))

    @staticmethod
    def _check(code: int) -> None:
        assert code == 0, ErrorCode.of(code)
