"""UpdateFeatures (key 57): refused, because the level of the one feature is an option of this broker (KIP-584)."""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.authorization import is_refused
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import TRANSACTION_VERSION_FEATURE, TransactionVersion
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
    if update.feature != TRANSACTION_VERSION_FEATURE:
        return f"feature {update.feature!r} is unknown; this broker has {TRANSACTION_VERSION_FEATURE} only"
    if not 0 <= update.max_version_level <= TransactionVersion.V2:
        return f"{update.feature} has no level {update.max_version_level}"
    if update.max_version_level == context.config.transaction_version:
        return None
    return f"{update.feature} is an option of this broker: start it with {update.feature}={update.max_version_level}"


API: Final = ApiHandler(ApiKey.UPDATE_FEATURES, VERSIONS, handle)
