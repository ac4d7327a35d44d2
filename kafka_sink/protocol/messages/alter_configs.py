"""AlterConfigs (key 33): every setting of a topic or broker at once; what is not named goes back to its default."""

from __future__ import annotations

from kafka_sink.protocol.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    STRING,
    RequestBody,
    Struct,
    array,
    field,
    message,
    struct,
)

_VERSIONS = "0-2"
_FLEXIBLE = "2+"


@struct
class AlterableConfig(Struct):
    """A setting; a null value is its default."""

    name: str = field(STRING, "0+")
    value: str | None = field(STRING, "0+", nullable="0+")


@struct
class AlterConfigsResource(Struct):
    """A topic or broker and all the settings it is to have."""

    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")
    configs: list[AlterableConfig] = field(array(AlterableConfig), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class AlterConfigsRequest(RequestBody["AlterConfigsResponse"]):
    """*validate_only* changes nothing."""

    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource), "0+")
    validate_only: bool = field(BOOL, "0+")


@struct
class AlterConfigsResourceResponse(Struct):
    """The outcome for one resource."""

    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class AlterConfigsResponse(Struct):
    """The outcome for every resource."""

    throttle_time_ms: int = field(INT32, "0+")
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse), "0+")
