"""DescribeConfigs (key 32): settings of topics and brokers, and where they come from (KIP-226)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "1-4"
_FLEXIBLE = "4+"


@s.struct
class DescribeConfigsResource(s.Struct):
    """A topic (type 2) or broker (type 4); null *configuration_keys* ask for all settings."""

    resource_type: int = s.field(s.INT8, "0+")
    resource_name: str = s.field(s.STRING, "0+")
    configuration_keys: list[str] | None = s.field(s.array(s.STRING), "0+", nullable="0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeConfigsRequest(s.RequestBody["DescribeConfigsResponse"]):
    """*include_synonyms* asks for every level at which a setting has a value."""

    resources: list[DescribeConfigsResource] = s.field(s.array(DescribeConfigsResource), "0+")
    include_synonyms: bool = s.field(s.BOOL, "1+", default=False)
    include_documentation: bool = s.field(s.BOOL, "3+", default=False)


@s.struct
class DescribeConfigsSynonym(s.Struct):
    """The value at one level."""

    name: str = s.field(s.STRING, "1+")
    value: str | None = s.field(s.STRING, "1+", nullable="0+")
    source: int = s.field(s.INT8, "1+")


@s.struct
class DescribeConfigsResourceResult(s.Struct):
    """A setting; the value of a sensitive one is null."""

    name: str = s.field(s.STRING, "0+")
    value: str | None = s.field(s.STRING, "0+", nullable="0+")
    read_only: bool = s.field(s.BOOL, "0+")
    config_source: int = s.field(s.INT8, "1+", default=-1, ignorable=True)
    is_sensitive: bool = s.field(s.BOOL, "0+")
    synonyms: list[DescribeConfigsSynonym] = s.field(s.array(DescribeConfigsSynonym), "1+", ignorable=True)
    config_type: int = s.field(s.INT8, "3+", default=0, ignorable=True)
    documentation: str | None = s.field(s.STRING, "3+", nullable="0+", ignorable=True)


@s.struct
class DescribeConfigsResult(s.Struct):
    """The settings of one resource."""

    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")
    resource_type: int = s.field(s.INT8, "0+")
    resource_name: str = s.field(s.STRING, "0+")
    configs: list[DescribeConfigsResourceResult] = s.field(s.array(DescribeConfigsResourceResult), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeConfigsResponse(s.Struct):
    """What every resource is set to."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    results: list[DescribeConfigsResult] = s.field(s.array(DescribeConfigsResult), "0+")
