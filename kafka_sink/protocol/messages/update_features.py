"""UpdateFeatures (key 57): changes the finalized levels of features (KIP-584)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0-2"
_FLEXIBLE = "0+"


@s.struct
class FeatureUpdateKey(s.Struct):
    """*upgrade_type* 1: only upwards, 2: also downwards, 3: also if data is lost by it."""

    feature: str = s.field(s.STRING, "0+")
    max_version_level: int = s.field(s.INT16, "0+")
    allow_downgrade: bool = s.field(s.BOOL, "0")
    upgrade_type: int = s.field(s.INT8, "1+", default=1)


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class UpdateFeaturesRequest(s.RequestBody["UpdateFeaturesResponse"]):
    """*timeout_ms* is how long the broker may wait."""

    timeout_ms: int = s.field(s.INT32, "0+", default=60000)
    feature_updates: list[FeatureUpdateKey] = s.field(s.array(FeatureUpdateKey), "0+")
    validate_only: bool = s.field(s.BOOL, "1+")


@s.struct
class UpdatableFeatureResult(s.Struct):
    """The outcome for one feature."""

    feature: str = s.field(s.STRING, "0+")
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class UpdateFeaturesResponse(s.Struct):
    """The outcome for each feature; from version 2 on only for the whole."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")
    results: list[UpdatableFeatureResult] = s.field(s.array(UpdatableFeatureResult), "0-1", ignorable=True)
