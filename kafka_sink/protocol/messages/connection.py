"""The first requests of a connection: ApiVersions (key 18), the versions of a broker's APIs and its features (KIP-511,
KIP-584); and authentication with SASL (KIP-43, KIP-152).
"""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0-4"
_FLEXIBLE = "3+"


class ApiVersionsRequest(s.RequestBody["ApiVersionsResponse"], versions=_VERSIONS, flexible=_FLEXIBLE):
    """Requests the APIs and features of a broker; name and version identify the client's software."""

    client_software_name: str = s.field(s.STRING, "3+", ignorable=True)
    client_software_version: str = s.field(s.STRING, "3+", ignorable=True)


class ApiVersion(s.Struct):
    api_key: int = s.field(s.INT16, "0+")
    min_version: int = s.field(s.INT16, "0+")
    max_version: int = s.field(s.INT16, "0+")


class SupportedFeatureKey(s.Struct):
    """A feature that the broker supports, and the range of its levels."""

    name: str = s.field(s.STRING, "3+")
    min_version: int = s.field(s.INT16, "3+")
    max_version: int = s.field(s.INT16, "3+")


class FinalizedFeatureKey(s.Struct):
    """A finalized feature of the cluster, and the range of its levels."""

    name: str = s.field(s.STRING, "3+")
    max_version_level: int = s.field(s.INT16, "3+")
    min_version_level: int = s.field(s.INT16, "3+")


class ApiVersionsResponse(s.Struct, versions=_VERSIONS, flexible=_FLEXIBLE):
    """*finalized_features_epoch* −1 means that finalized features are not known."""

    error_code: int = s.field(s.INT16, "0+")
    api_keys: list[ApiVersion] = s.field(s.Array(ApiVersion), "0+")
    throttle_time_ms: int = s.field(s.INT32, "1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = s.field(s.Array(SupportedFeatureKey), "3+", tag=0, ignorable=True)
    finalized_features_epoch: int = s.field(s.INT64, "3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = s.field(s.Array(FinalizedFeatureKey), "3+", tag=2, ignorable=True)
    zk_migration_ready: bool = s.field(s.BOOL, "3+", tag=3, ignorable=True)


class SaslHandshakeRequest(s.RequestBody["SaslHandshakeResponse"], versions="0-1", flexible="none"):
    """SaslHandshake (key 17): choose the SASL mechanism.

    After version 0 bare SASL tokens follow, after version 1 SaslAuthenticate requests (KIP-152).

    *mechanism* is the one that the client selects.
    """

    mechanism: str = s.field(s.STRING, "0+")


class SaslHandshakeResponse(s.Struct, versions="0-1", flexible="none"):
    error_code: int = s.field(s.INT16, "0+")
    mechanisms: list[str] = s.field(s.Array(s.STRING), "0+")


class SaslAuthenticateRequest(s.RequestBody["SaslAuthenticateResponse"], versions="0-2", flexible="2+"):
    """SaslAuthenticate (key 36): one step of a SASL exchange (KIP-152); the bytes are the mechanism's."""

    auth_bytes: bytes = s.field(s.BYTES, "0+")


class SaslAuthenticateResponse(s.Outcome, versions="0-2", flexible="2+"):
    """The server's token; reauthentication is due within *session_lifetime_ms*, 0 = never (KIP-368)."""

    auth_bytes: bytes = s.field(s.BYTES, "0+")
    session_lifetime_ms: int = s.field(s.INT64, "1+", default=0, ignorable=True)
