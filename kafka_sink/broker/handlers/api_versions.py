"""ApiVersions (key 18): what this broker serves, and the transaction version that the cluster has settled on (KIP-584).

Answers versions it does not know as well (KIP-511).
"""

from __future__ import annotations

import re
from typing import Final

from kafka_sink.broker.coordinator.transaction_metadata import VERSION_WITH_EPOCH_BUMP
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.errors import ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 4)
#: What a client may call itself (KIP-511); versions below 3 do not say.
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_FIRST_WITH_SOFTWARE: Final = 3
#: Versions that are told of and not served, as Kafka does it (KAFKA-18659): older clients of librdkafka do not compress
#: where Produce 0 is missing.
_LEAST: Final = {ApiKey.PRODUCE: 0}
_TRANSACTION_VERSION: Final = "transaction.version"


def handle(context: BrokerContext, request: ApiRequest[ApiVersionsRequest]) -> None:
    """Answer with the versions of every API; of an unknown version the body is not looked at."""
    response, version = answer(context, request.body, request.version)
    request.respond_in_version(response, version)


def answer(context: BrokerContext, body: ApiVersionsRequest, version: int) -> tuple[ApiVersionsResponse, int]:
    """The answer and its version: to a version that is not known, 0, which every client can read."""
    if version not in VERSIONS:
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_api_keys(context)), 0
    names = (body.client_software_name, body.client_software_version)
    if version >= _FIRST_WITH_SOFTWARE and not all(_SOFTWARE.fullmatch(name) for name in names):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST), version
    level = context.config.transaction_version
    # Clients of version 3 take a level of 0 for damage (KIP-1022).
    lowest = 0 if version > _FIRST_WITH_SOFTWARE else 1
    response = ApiVersionsResponse(
        api_keys=_api_keys(context),
        supported_features=[SupportedFeatureKey(_TRANSACTION_VERSION, lowest, VERSION_WITH_EPOCH_BUMP)],
        finalized_features_epoch=0,
        finalized_features=[FinalizedFeatureKey(_TRANSACTION_VERSION, level, level)],
    )
    return response, version


def _api_keys(context: BrokerContext) -> list[ApiVersion]:
    return [
        ApiVersion(key, _LEAST.get(key, versions.min), versions.max)
        for key, versions in sorted(context.versions.items())
    ]


API: Final = ApiHandler(ApiKey.API_VERSIONS, VERSIONS, handle)
