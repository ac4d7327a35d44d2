"""Every API this project speaks: its messages and its versions.

Read by client (negotiation), broker (ApiVersions, dispatch) and :mod:`header`, on any thread; never changed at run
time. It must never claim a version that the messages do not have. A new API is a module in ``messages`` and a
line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import (
    api_versions,
    create_topics,
    delete_topics,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)
from kafka_sink.protocol.schema import MAX_VERSION, Struct, VersionRange


@dataclass(frozen=True, slots=True)
class Api:
    """One API: its request and response, the versions both have, and the first version that is flexible."""

    key: ApiKey
    request: type[Struct]
    response: type[Struct]
    versions: VersionRange
    flexible_from: int


def _api(key: ApiKey, request: type[Struct], response: type[Struct]) -> Api:
    schema = request.SCHEMA
    if schema.versions is None or schema.versions != response.SCHEMA.versions:
        raise TypeError(f"{request.__name__} and {response.__name__} differ in their versions")
    flexible_from = schema.flexible.min if schema.flexible.max >= 0 else MAX_VERSION + 1
    return Api(key, request, response, schema.versions, flexible_from)


#: Every API by its key.
APIS: Final[Mapping[ApiKey, Api]] = MappingProxyType(
    {
        entry.key: entry
        for entry in (
            _api(ApiKey.PRODUCE, produce.ProduceRequest, produce.ProduceResponse),
            _api(ApiKey.FETCH, fetch.FetchRequest, fetch.FetchResponse),
            _api(ApiKey.LIST_OFFSETS, list_offsets.ListOffsetsRequest, list_offsets.ListOffsetsResponse),
            _api(ApiKey.METADATA, metadata.MetadataRequest, metadata.MetadataResponse),
            _api(
                ApiKey.FIND_COORDINATOR,
                find_coordinator.FindCoordinatorRequest,
                find_coordinator.FindCoordinatorResponse,
            ),
            _api(ApiKey.API_VERSIONS, api_versions.ApiVersionsRequest, api_versions.ApiVersionsResponse),
            _api(ApiKey.CREATE_TOPICS, create_topics.CreateTopicsRequest, create_topics.CreateTopicsResponse),
            _api(ApiKey.DELETE_TOPICS, delete_topics.DeleteTopicsRequest, delete_topics.DeleteTopicsResponse),
            _api(
                ApiKey.INIT_PRODUCER_ID, init_producer_id.InitProducerIdRequest, init_producer_id.InitProducerIdResponse
            ),
        )
    }
)


def api(key: int) -> Api:
    """The API with *key*.

    :raises ValueError: Kafka has no such API, or it has no messages here.
    """
    entry = APIS.get(ApiKey(key))
    if entry is None:
        raise ValueError(f"{ApiKey(key).name} has no messages here")
    return entry
