"""UpdateFeatures (key 57): changes the finalized levels of features (KIP-584)."""

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
_FLEXIBLE = "0+"


@struct
class FeatureUpdateKey(Struct):
    """*upgrade_type* 1: only upwards, 2: also downwards, 3: also if data is lost by it."""

    feature: str = field(STRING, "0+")
    max_version_level: int = field(INT16, "0+")
    allow_downgrade: bool = field(BOOL, "0")
    upgrade_type: int = field(INT8, "1+", default=1)


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class UpdateFeaturesRequest(RequestBody["UpdateFeaturesResponse"]):
    """*timeout_ms* is how long the broker may wait."""

    timeout_ms: int = field(INT32, "0+", default=60000)
    feature_updates: list[FeatureUpdateKey] = field(array(FeatureUpdateKey), "0+")
    validate_only: bool = field(BOOL, "1+")


@struct
class UpdatableFeatureResult(Struct):
    """The outcome for one feature."""

    feature: str = field(STRING, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class UpdateFeaturesResponse(Struct):
    """The outcome for each feature; from version 2 on only for the whole."""

    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    results: list[UpdatableFeatureResult] = field(array(UpdatableFeatureResult), "0-1", ignorable=True)
