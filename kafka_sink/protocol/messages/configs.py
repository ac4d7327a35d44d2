"""Settings of topics and brokers: their alteration and description."""

from __future__ import annotations

from kafka_sink.protocol import schema as s


class AlterableConfig(s.Struct):
    """A setting; a null value is its default."""

    name: str = s.field(s.STRING, "0+")
    value: str | None = s.field(s.STRING, "0+", nullable="0+")


class AlterConfigsResource(s.Struct):
    """A topic or broker and all its new settings."""

    resource_type: int = s.field(s.INT8, "0+")
    resource_name: str = s.field(s.STRING, "0+")
    configs: list[AlterableConfig] = s.field(s.Array(AlterableConfig), "0+")


class AlterConfigsRequest(s.RequestBody["AlterConfigsResponse"], versions="0-2", flexible="2+"):
    """AlterConfigs (key 33): replace all settings of a topic or broker; a setting that is not named is reset."""

    resources: list[AlterConfigsResource] = s.field(s.Array(AlterConfigsResource), "0+")
    validate_only: bool = s.field(s.BOOL, "0+")


class AlterConfigsResourceResponse(s.Outcome):
    resource_type: int = s.field(s.INT8, "0+")
    resource_name: str = s.field(s.STRING, "0+")


class AlterConfigsResponse(s.Throttled, versions="0-2", flexible="2+"):
    responses: list[AlterConfigsResourceResponse] = s.field(s.Array(AlterConfigsResourceResponse), "0+")


class IncrementalAlterableConfig(s.Struct):
    """A change: *config_operation* 0 sets, 1 deletes, 2 appends to a list, 3 subtracts from a list."""

    name: str = s.field(s.STRING, "0+")
    config_operation: int = s.field(s.INT8, "0+")
    value: str | None = s.field(s.STRING, "0+", nullable="0+")


class IncrementalAlterConfigsResource(s.Struct):
    """A topic or broker and the changes to it."""

    resource_type: int = s.field(s.INT8, "0+")
    resource_name: str = s.field(s.STRING, "0+")
    configs: list[IncrementalAlterableConfig] = s.field(s.Array(IncrementalAlterableConfig), "0+")


class IncrementalAlterConfigsRequest(s.RequestBody["IncrementalAlterConfigsResponse"], versions="0-1", flexible="1+"):
    """IncrementalAlterConfigs (key 44): change single settings of topics and brokers (KIP-339)."""

    resources: list[IncrementalAlterConfigsResource] = s.field(s.Array(IncrementalAlterConfigsResource), "0+")
    validate_only: bool = s.field(s.BOOL, "0+")


class IncrementalAlterConfigsResponse(s.Throttled, versions="0-1", flexible="1+"):
    responses: list[AlterConfigsResourceResponse] = s.field(s.Array(AlterConfigsResourceResponse), "0+")


class DescribeConfigsResource(s.Struct):
    """A topic (type 2) or broker (type 4); null *configuration_keys* select all settings."""

    resource_type: int = s.field(s.INT8, "0+")
    resource_name: str = s.field(s.STRING, "0+")
    configuration_keys: list[str] | None = s.field(s.Array(s.STRING), "0+", nullable="0+")


class DescribeConfigsRequest(s.RequestBody["DescribeConfigsResponse"], versions="1-4", flexible="4+"):
    """DescribeConfigs (key 32): settings of topics and brokers, and their sources (KIP-226). *include_synonyms* adds
    the value of a setting at every level."""

    resources: list[DescribeConfigsResource] = s.field(s.Array(DescribeConfigsResource), "0+")
    include_synonyms: bool = s.field(s.BOOL, "1+", default=False)
    include_documentation: bool = s.field(s.BOOL, "3+", default=False)


class DescribeConfigsSynonym(s.Struct):
    name: str = s.field(s.STRING, "1+")
    value: str | None = s.field(s.STRING, "1+", nullable="0+")
    source: int = s.field(s.INT8, "1+")


class DescribeConfigsResourceResult(s.Struct):
    """A setting; the value of a sensitive one is null."""

    name: str = s.field(s.STRING, "0+")
    value: str | None = s.field(s.STRING, "0+", nullable="0+")
    read_only: bool = s.field(s.BOOL, "0+")
    config_source: int = s.field(s.INT8, "1+", default=-1, ignorable=True)
    is_sensitive: bool = s.field(s.BOOL, "0+")
    synonyms: list[DescribeConfigsSynonym] = s.field(s.Array(DescribeConfigsSynonym), "1+", ignorable=True)
    config_type: int = s.field(s.INT8, "3+", default=0, ignorable=True)
    documentation: str | None = s.field(s.STRING, "3+", nullable="0+", ignorable=True)


class DescribeConfigsResult(s.Outcome):
    resource_type: int = s.field(s.INT8, "0+")
    resource_name: str = s.field(s.STRING, "0+")
    configs: list[DescribeConfigsResourceResult] = s.field(s.Array(DescribeConfigsResourceResult), "0+")


class DescribeConfigsResponse(s.Throttled, versions="1-4", flexible="4+"):
    results: list[DescribeConfigsResult] = s.field(s.Array(DescribeConfigsResult), "0+")


class ListConfigResourcesRequest(s.RequestBody["ListConfigResourcesResponse"], versions="0-1", flexible="0+"):
    """ListConfigResources (key 74): the resources that have settings (KIP-1142). Empty *resource_types* select all
    types; version 0 selects client metrics."""

    resource_types: list[int] = s.field(s.Array(s.INT8), "1+")


class ConfigResource(s.Struct):
    resource_name: str = s.field(s.STRING, "0+")
    resource_type: int = s.field(s.INT8, "1+", default=16, ignorable=True)


class ListConfigResourcesResponse(s.Throttled, versions="0-1", flexible="0+"):
    error_code: int = s.field(s.INT16, "0+")
    config_resources: list[ConfigResource] = s.field(s.Array(ConfigResource), "0+")
