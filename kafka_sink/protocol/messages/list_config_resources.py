"""ListConfigResources (key 74): what has settings (KIP-1142)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0-1"
_FLEXIBLE = "0+"


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ListConfigResourcesRequest(s.RequestBody["ListConfigResourcesResponse"]):
    """No *resource_types* asks for all kinds; version 0 asks for those of client metrics."""

    resource_types: list[int] = s.field(s.array(s.INT8), "1+")


@s.struct
class ConfigResource(s.Struct):
    """One of them."""

    resource_name: str = s.field(s.STRING, "0+")
    resource_type: int = s.field(s.INT8, "1+", default=16, ignorable=True)


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ListConfigResourcesResponse(s.Struct):
    """The names, by kind."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")
    config_resources: list[ConfigResource] = s.field(s.array(ConfigResource), "0+")
