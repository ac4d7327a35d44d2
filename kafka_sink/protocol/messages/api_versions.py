"""ApiVersions (key 18): which versions of which APIs a broker has, and its features (KIP-511, KIP-584)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0-4"
_FLEXIBLE = "3+"


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ApiVersionsRequest(s.RequestBody["ApiVersionsResponse"]):
    """Asks a broker what it can do; the names tell it who asks."""

    client_software_name: str = s.field(s.STRING, "3+", ignorable=True)
    client_software_version: str = s.field(s.STRING, "3+", ignorable=True)


@s.struct
class ApiVersion(s.Struct):
    """The versions of one API."""

    api_key: int = s.field(s.INT16, "0+")
    min_version: int = s.field(s.INT16, "0+")
    max_version: int = s.field(s.INT16, "0+")


@s.struct
class SupportedFeatureKey(s.Struct):
    """A feature the broker has, with the levels it can run at."""

    name: str = s.field(s.STRING, "3+")
    min_version: int = s.field(s.INT16, "3+")
    max_version: int = s.field(s.INT16, "3+")


@s.struct
class FinalizedFeatureKey(s.Struct):
    """A feature the whole cluster has agreed on."""

    name: str = s.field(s.STRING, "3+")
    max_version_level: int = s.field(s.INT16, "3+")
    min_version_level: int = s.field(s.INT16, "3+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class ApiVersionsResponse(s.Struct):
    """*finalized_features_epoch* −1 says that finalized features are not known."""

    error_code: int = s.field(s.INT16, "0+")
    api_keys: list[ApiVersion] = s.field(s.array(ApiVersion), "0+")
    throttle_time_ms: int = s.field(s.INT32, "1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = s.field(s.array(SupportedFeatureKey), "3+", tag=0, ignorable=True)
    finalized_features_epoch: int = s.field(s.INT64, "3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = s.field(s.array(FinalizedFeatureKey), "3+", tag=2, ignorable=True)
    zk_migration_ready: bool = s.field(s.BOOL, "3+", tag=3, ignorable=True)
