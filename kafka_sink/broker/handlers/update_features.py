"""UpdateFeatures (key 57): refused; a feature has one level here, or the level is an option of the broker (KIP-584)."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.api_versions import feature_levels
from kafka_sink.broker.handlers.authorization import is_refused
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import GROUP_VERSION_FEATURE
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 2)
#: From here on there is one outcome for the whole request.
_FIRST_WITHOUT_RESULTS: Final = 2


def handle(context: BrokerContext, request: ApiRequest[UpdateFeaturesRequest]) -> None:
    """Accept what is already so; one change is enough to refuse all."""
    if is_refused(context, request, AclOperation.ALTER, ResourceType.CLUSTER):
        return
    updates = request.body.feature_updates
    problem = next(filter(None, (_problem(context, item) for item in updates)), None)
    if problem is not None:
        refused = UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=problem)
        request.respond(refused)
        return
    with_results = request.version < _FIRST_WITHOUT_RESULTS
    results = [UpdatableFeatureResult(item.feature, error_message=None) for item in updates if with_results]
    request.respond(UpdateFeaturesResponse(error_message=None, results=results))


def _problem(context: BrokerContext, update: FeatureUpdateKey) -> str | None:
    """Why the update is refused; None if there is nothing to change."""
    levels = feature_levels(context.config)
    if update.feature not in levels:
        return f"feature {update.feature!r} is unknown; this broker has {' and '.join(levels)} only"
    level, highest = levels[update.feature]
    if not 0 <= update.max_version_level <= highest:
        return f"{update.feature} has no level {update.max_version_level}"
    if update.max_version_level == level:
        return None
    if update.feature == GROUP_VERSION_FEATURE:
        return f"{update.feature} is always {level} here; clients choose with group.protocol"
    return f"{update.feature} is an option of this broker: start it with {update.feature}={update.max_version_level}"


API: Final = ApiHandler(ApiKey.UPDATE_FEATURES, VERSIONS, handle)
