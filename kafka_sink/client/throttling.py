"""From which version on a client holds itself back when a broker reports a throttle time (KIP-219).

Read by the NetworkClient for every answer. Before these versions the broker delays its answer instead; waiting again
would punish twice.
"""

from __future__ import annotations

from typing import Final

from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.schema import Struct

#: First version per API; APIs younger than KIP-219 (not listed) always leave it to the client.
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
    """How long to send the broker nothing after *body*; 0 = go on."""
    reported = int(getattr(body, "throttle_time_ms", 0))
    return reported if version >= _CLIENT_THROTTLES_FROM.get(api_key, 0) else 0
