"""IncrementalAlterConfigs (key 44): change single settings of topics and brokers (KIP-339)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s
from kafka_sink.protocol.messages.alter_configs import AlterConfigsResourceResponse

_VERSIONS = "0-1"
_FLEXIBLE = "1+"


@s.struct
class AlterableConfig(s.Struct):
    """A change: *config_operation* 0 sets, 1 deletes, 2 appends to a list, 3 takes from a list."""

    name: str = s.field(s.STRING, "0+")
    config_operation: int = s.field(s.INT8, "0+")
    value: str | None = s.field(s.STRING, "0+", nullable="0+")


@s.struct
class AlterConfigsResource(s.Struct):
    """A topic or broker and the changes to it."""

    resource_type: int = s.field(s.INT8, "0+")
    resource_name: str = s.field(s.STRING, "0+")
    configs: list[AlterableConfig] = s.field(s.array(AlterableConfig), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class IncrementalAlterConfigsRequest(s.RequestBody["IncrementalAlterConfigsResponse"]):
    """*validate_only* changes nothing."""

    resources: list[AlterConfigsResource] = s.field(s.array(AlterConfigsResource), "0+")
    validate_only: bool = s.field(s.BOOL, "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class IncrementalAlterConfigsResponse(s.Struct):
    """The outcome for every resource."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    responses: list[AlterConfigsResourceResponse] = s.field(s.array(AlterConfigsResourceResponse), "0+")
