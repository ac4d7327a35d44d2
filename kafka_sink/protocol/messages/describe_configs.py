"""DescribeConfigs (key 32): settings of topics and brokers, and where they come from (KIP-226)."""

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

_VERSIONS = "1-4"
_FLEXIBLE = "4+"


@struct
class DescribeConfigsResource(Struct):
    """A topic (type 2) or broker (type 4); null *configuration_keys* ask for all settings."""

    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")
    configuration_keys: list[str] | None = field(array(STRING), "0+", nullable="0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeConfigsRequest(RequestBody["DescribeConfigsResponse"]):
    """*include_synonyms* asks for every level at which a setting has a value."""

    resources: list[DescribeConfigsResource] = field(array(DescribeConfigsResource), "0+")
    include_synonyms: bool = field(BOOL, "1+", default=False)
    include_documentation: bool = field(BOOL, "3+", default=False)


@struct
class DescribeConfigsSynonym(Struct):
    """The value at one level."""

    name: str = field(STRING, "1+")
    value: str | None = field(STRING, "1+", nullable="0+")
    source: int = field(INT8, "1+")


@struct
class DescribeConfigsResourceResult(Struct):
    """A setting; the value of a sensitive one is null."""

    name: str = field(STRING, "0+")
    value: str | None = field(STRING, "0+", nullable="0+")
    read_only: bool = field(BOOL, "0+")
    config_source: int = field(INT8, "1+", default=-1, ignorable=True)
    is_sensitive: bool = field(BOOL, "0+")
    synonyms: list[DescribeConfigsSynonym] = field(array(DescribeConfigsSynonym), "1+", ignorable=True)
    config_type: int = field(INT8, "3+", default=0, ignorable=True)
    documentation: str | None = field(STRING, "3+", nullable="0+", ignorable=True)


@struct
class DescribeConfigsResult(Struct):
    """The settings of one resource."""

    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")
    configs: list[DescribeConfigsResourceResult] = field(array(DescribeConfigsResourceResult), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeConfigsResponse(Struct):
    """What every resource is set to."""

    throttle_time_ms: int = field(INT32, "0+")
    results: list[DescribeConfigsResult] = field(array(DescribeConfigsResult), "0+")
