"""The versions from which a client applies the throttle time that a broker reports (KIP-219).

Used by the NetworkClient for every answer. In earlier versions the broker delays its answer instead; the client would
throttle a second time.
"""

from __future__ import annotations

from typing import Final

from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.schema import Struct

#: The first version per API; for APIs newer than KIP-219 (not listed) the client always throttles.
_CLIENT_THROTTLES_FROM: Final[dict[ApiKey, int]] = {
    ApiKey.PRODUCE: 6,
    ApiKey.FETCH: 8,
    ApiKey.LIST_OFFSETS: 3,
    ApiKey.METADATA: 6,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.API_VERSIONS: 2,
    ApiKey.CREATE_TOPICS: 3,
    ApiKey.DELETE_TOPICS: 2,
    ApiKey.INIT_PRODUCER_ID: 1,
    ApiKey.ADD_PARTITIONS_TO_TXN: 1,
    ApiKey.ADD_OFFSETS_TO_TXN: 1,
    ApiKey.END_TXN: 1,
    ApiKey.TXN_OFFSET_COMMIT: 1,
    ApiKey.CREATE_PARTITIONS: 1,
    ApiKey.DELETE_RECORDS: 1,
    ApiKey.DESCRIBE_CONFIGS: 2,
    ApiKey.OFFSET_COMMIT: 4,
    ApiKey.OFFSET_FETCH: 4,
}


def throttle_ms(api_key: ApiKey, version: int, body: Struct) -> int:
    """How long to send no request to the broker after *body*; 0 = not throttled."""
    reported = int(getattr(body, "throttle_time_ms", 0))
    return reported if version >= _CLIENT_THROTTLES_FROM.get(api_key, 0) else 0
