"""AlterConfigs (key 33): every setting of a topic or broker at once; what is not named goes back to its default."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0-2"
_FLEXIBLE = "2+"


@s.struct
class AlterableConfig(s.Struct):
    """A setting; a null value is its default."""

    name: str = s.field(s.STRING, "0+")
    value: str | None = s.field(s.STRING, "0+", nullable="0+")


@s.struct
class AlterConfigsResource(s.Struct):
    """A topic or broker and all the settings it is to have."""

    resource_type: int = s.field(s.INT8, "0+")
    resource_name: str = s.field(s.STRING, "0+")
    configs: list[AlterableConfig] = s.field(s.array(AlterableConfig), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class AlterConfigsRequest(s.RequestBody["AlterConfigsResponse"]):
    """*validate_only* changes nothing."""

    resources: list[AlterConfigsResource] = s.field(s.array(AlterConfigsResource), "0+")
    validate_only: bool = s.field(s.BOOL, "0+")


@s.struct
class AlterConfigsResourceResponse(s.Struct):
    """The outcome for one resource."""

    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")
    resource_type: int = s.field(s.INT8, "0+")
    resource_name: str = s.field(s.STRING, "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class AlterConfigsResponse(s.Struct):
    """The outcome for every resource."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    responses: list[AlterConfigsResourceResponse] = s.field(s.array(AlterConfigsResourceResponse), "0+")
