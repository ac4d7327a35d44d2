"""ApiVersions (key 18): which versions of which APIs a broker has, and its features (KIP-511, KIP-584)."""

from __future__ import annotations

from kafka_sink.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    RequestBody,
    Struct,
    array,
    field,
    message,
    struct,
)

_VERSIONS = "0-4"
_FLEXIBLE = "3+"


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ApiVersionsRequest(RequestBody["ApiVersionsResponse"]):
    """Asks a broker what it can do; the names tell it who asks."""

    client_software_name: str = field(STRING, "3+", ignorable=True)
    client_software_version: str = field(STRING, "3+", ignorable=True)


@struct
class ApiVersion(Struct):
    """The versions of one API."""

    api_key: int = field(INT16, "0+")
    min_version: int = field(INT16, "0+")
    max_version: int = field(INT16, "0+")


@struct
class SupportedFeatureKey(Struct):
    """A feature the broker has, with the levels it can run at."""

    name: str = field(STRING, "3+")
    min_version: int = field(INT16, "3+")
    max_version: int = field(INT16, "3+")


@struct
class FinalizedFeatureKey(Struct):
    """A feature the whole cluster has agreed on."""

    name: str = field(STRING, "3+")
    max_version_level: int = field(INT16, "3+")
    min_version_level: int = field(INT16, "3+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ApiVersionsResponse(Struct):
    """*finalized_features_epoch* −1 says that finalized features are not known."""

    error_code: int = field(INT16, "0+")
    api_keys: list[ApiVersion] = field(array(ApiVersion), "0+")
    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(array(SupportedFeatureKey), "3+", tag=0, ignorable=True)
    finalized_features_epoch: int = field(INT64, "3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field(array(FinalizedFeatureKey), "3+", tag=2, ignorable=True)
    zk_migration_ready: bool = field(BOOL, "3+", tag=3, ignorable=True)
