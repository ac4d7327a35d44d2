"""What a client asks first: API versions and features; and SASL requests in a wrong state.

A connection's authenticator handles SASL requests in the right state. Those that reach a handler come from a listener
without SASL, or from a client that is already authenticated, and are rejected.
"""

from __future__ import annotations

import re
from typing import Final

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.handlers.authorization import is_refused
from kafka_sink.broker.handlers.context import ApiRequest, BrokerContext, api_handler
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import GROUP_VERSION_FEATURE, TRANSACTION_VERSION_FEATURE, TransactionVersion
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import sasl as m
from kafka_sink.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kafka_sink.protocol.messages.cluster import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

#: Valid names and versions of client software (KIP-511); versions below 3 do not have them.
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_FIRST_WITH_SOFTWARE: Final = 3
#: Lowest versions that are advertised although they are not served, as in Kafka (KAFKA-18659): older clients of
#: librdkafka do not compress if Produce 0 is missing.
_LEAST: Final = {ApiKey.PRODUCE: 0}


@api_handler(ApiKey.API_VERSIONS, "0-4")
def api_versions(context: BrokerContext, request: ApiRequest[ApiVersionsRequest]) -> None:
    """ApiVersions (key 18): the versions that this broker serves, and the levels of the cluster's features (KIP-584).

    Requests of unknown versions are answered as well (KIP-511). Answers with the versions of every API; the body of an
    unknown version is not read.
    """
    response, version = answer(context, request.body, request.version)
    request.respond_in_version(response, version)


def answer(context: BrokerContext, body: ApiVersionsRequest, version: int) -> tuple[ApiVersionsResponse, int]:
    """The answer and its version: version 0, which every client can read, if the requested version is unknown."""
    if version not in api_versions.versions:
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_api_keys(context)), 0
    names = (body.client_software_name, body.client_software_version)
    if version >= _FIRST_WITH_SOFTWARE and not all(_SOFTWARE.fullmatch(name) for name in names):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST), version
    levels = feature_levels(context.config)
    # Clients of version 3 treat a minimum level of 0 as an error (KIP-1022).
    lowest = 0 if version > _FIRST_WITH_SOFTWARE else 1
    response = ApiVersionsResponse(
        api_keys=_api_keys(context),
        supported_features=[SupportedFeatureKey(name, lowest, highest) for name, (_, highest) in levels.items()],
        finalized_features_epoch=0,
        finalized_features=[FinalizedFeatureKey(name, level, level) for name, (level, _) in levels.items()],
    )
    return response, version


def feature_levels(config: BrokerConfig) -> dict[str, tuple[int, int]]:
    """Each feature with its level and the highest level that it may have."""
    return {
        TRANSACTION_VERSION_FEATURE: (config.transaction_version, TransactionVersion.V2),
        GROUP_VERSION_FEATURE: (1, 1),
    }


def _api_keys(context: BrokerContext) -> list[ApiVersion]:
    return [
        ApiVersion(key, _LEAST.get(key, versions.min), versions.max)
        for key, versions in sorted(context.versions.items())
    ]


#: From here on there is one outcome for the whole request.
_FIRST_WITHOUT_RESULTS: Final = 2


@api_handler(ApiKey.UPDATE_FEATURES, "0-2")
def update_features(context: BrokerContext, request: ApiRequest[UpdateFeaturesRequest]) -> None:
    """UpdateFeatures (key 57): refused; a feature has one level here, or the level is an option of the broker
    (KIP-584). Accepts what is already so; one change is enough to refuse all.
    """
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
        return f"feature {update.feature!r:.200} is unknown; this broker has {' and '.join(levels)} only"
    level, highest = levels[update.feature]
    if not 0 <= update.max_version_level <= highest:
        return f"{update.feature} has no level {update.max_version_level}"
    if update.max_version_level == level:
        return None
    if update.feature == GROUP_VERSION_FEATURE:
        return f"{update.feature} is always {level} here; clients choose with group.protocol"
    return f"{update.feature} is an option of this broker: start it with {update.feature}={update.max_version_level}"


@api_handler(ApiKey.SASL_HANDSHAKE, "0-1")
def sasl_handshake(context: BrokerContext, request: ApiRequest[m.SaslHandshakeRequest]) -> None:
    """SaslHandshake (key 17) in a wrong state."""
    request.respond(m.SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))


@api_handler(ApiKey.SASL_AUTHENTICATE, "0-2")
def sasl_authenticate(context: BrokerContext, request: ApiRequest[m.SaslAuthenticateRequest]) -> None:
    """SaslAuthenticate (key 36) in a wrong state."""
    message = "SaslAuthenticate request received after successful authentication"
    request.respond(m.SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message))
