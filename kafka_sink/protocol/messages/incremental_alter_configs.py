"""IncrementalAlterConfigs (key 44): change single settings of topics and brokers (KIP-339)."""

from __future__ import annotations

from kafka_sink.protocol.messages.alter_configs import AlterConfigsResourceResponse
from kafka_sink.protocol.schema import (
    BOOL,
    INT8,
    INT32,
    STRING,
    RequestBody,
    Struct,
    array,
    field,
    message,
    struct,
)

_VERSIONS = "0-1"
_FLEXIBLE = "1+"


@struct
class AlterableConfig(Struct):
    """A change: *config_operation* 0 sets, 1 deletes, 2 appends to a list, 3 takes from a list."""

    name: str = field(STRING, "0+")
    config_operation: int = field(INT8, "0+")
    value: str | None = field(STRING, "0+", nullable="0+")


@struct
class AlterConfigsResource(Struct):
    """A topic or broker and the changes to it."""

    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")
    configs: list[AlterableConfig] = field(array(AlterableConfig), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class IncrementalAlterConfigsRequest(RequestBody["IncrementalAlterConfigsResponse"]):
    """*validate_only* changes nothing."""

    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource), "0+")
    validate_only: bool = field(BOOL, "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class IncrementalAlterConfigsResponse(Struct):
    """The outcome for every resource."""

    throttle_time_ms: int = field(INT32, "0+")
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse), "0+")
