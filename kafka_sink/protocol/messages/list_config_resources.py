"""ListConfigResources (key 74): what has settings (KIP-1142)."""

from __future__ import annotations

from kafka_sink.protocol.schema import INT8, INT16, INT32, STRING, RequestBody, Struct, array, field, message, struct

_VERSIONS = "0-1"
_FLEXIBLE = "0+"


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ListConfigResourcesRequest(RequestBody["ListConfigResourcesResponse"]):
    """No *resource_types* asks for all kinds; version 0 asks for those of client metrics."""

    resource_types: list[int] = field(array(INT8), "1+")


@struct
class ConfigResource(Struct):
    """One of them."""

    resource_name: str = field(STRING, "0+")
    resource_type: int = field(INT8, "1+", default=16, ignorable=True)


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ListConfigResourcesResponse(Struct):
    """The names, by kind."""

    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    config_resources: list[ConfigResource] = field(array(ConfigResource), "0+")
