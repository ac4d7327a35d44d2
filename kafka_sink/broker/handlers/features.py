"""The first request of a client: API versions and features; and SASL requests in a wrong state.

A connection's authenticator handles SASL requests in the right state. Those that reach a handler come from a listener
without SASL, or from a client that is already authenticated, and are rejected.
"""

from __future__ import annotations

import re
from typing import Final

from kafka_sink.broker.handlers.context import ApiRequest, BrokerContext, api_handler
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import GROUP_VERSION_FEATURE, TRANSACTION_VERSION_FEATURE, TransactionVersion
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import connection as m

#: Valid names and versions of client software (KIP-511); versions below 3 do not have them.
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_FIRST_WITH_SOFTWARE: Final = 3
#: Lowest versions that are advertised although they are not served, as in Kafka (KAFKA-18659): older clients of
#: librdkafka do not compress if Produce 0 is missing.
_LEAST: Final = {ApiKey.PRODUCE: 0}


@api_handler(ApiKey.API_VERSIONS, "0-4")
def api_versions(request: ApiRequest[m.ApiVersionsRequest]) -> None:
    """ApiVersions (key 18): the versions that this broker serves, and the levels of the cluster's features (KIP-584).

    Requests of unknown versions are answered as well (KIP-511). Answers with the versions of every API; the body of an
    unknown version is not read.
    """
    response, version = answer(request.broker, request.body, request.version)
    request.respond_in_version(response, version)


def answer(context: BrokerContext, body: m.ApiVersionsRequest, version: int) -> tuple[m.ApiVersionsResponse, int]:
    """The answer and its version: version 0, which every client can read, if the requested version is unknown."""
    if version not in api_versions.versions:
        return m.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_api_keys(context)), 0
    names = (body.client_software_name, body.client_software_version)
    if version >= _FIRST_WITH_SOFTWARE and not all(_SOFTWARE.fullmatch(name) for name in names):
        return m.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST), version
    # The level of each feature, and the highest that it may have.
    levels = {
        TRANSACTION_VERSION_FEATURE: (context.config.transaction_version, TransactionVersion.V2),
        GROUP_VERSION_FEATURE: (1, 1),
    }
    # Clients of version 3 treat a minimum level of 0 as an error (KIP-1022).
    lowest = 0 if version > _FIRST_WITH_SOFTWARE else 1
    response = m.ApiVersionsResponse(
        api_keys=_api_keys(context),
        supported_features=[m.SupportedFeatureKey(name, lowest, highest) for name, (_, highest) in levels.items()],
        finalized_features_epoch=0,
        finalized_features=[m.FinalizedFeatureKey(name, level, level) for name, (level, _) in levels.items()],
    )
    return response, version


def _api_keys(context: BrokerContext) -> list[m.ApiVersion]:
    return [
        m.ApiVersion(key, _LEAST.get(key, versions.min), versions.max)
        for key, versions in sorted(context.versions.items())
    ]


@api_handler(ApiKey.SASL_HANDSHAKE, "0-1")
def sasl_handshake(request: ApiRequest[m.SaslHandshakeRequest]) -> None:
    """SaslHandshake (key 17) in a wrong state."""
    request.respond(m.SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))


@api_handler(ApiKey.SASL_AUTHENTICATE, "0-2")
def sasl_authenticate(request: ApiRequest[m.SaslAuthenticateRequest]) -> None:
    """SaslAuthenticate (key 36) in a wrong state."""
    message = "SaslAuthenticate request received after successful authentication"
    request.respond(m.SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message))
