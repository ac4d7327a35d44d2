"""AlterUserScramCredentials (key 51): users of SCRAM are made, changed and deleted while the cluster runs (KIP-554).

Source: apache/kafka ``ScramControlManager``. What is stored are keys, from which no password can be found. Connections
that a user has stay open until they must be authenticated again.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, TypeAlias

from kafka_sink.broker.handlers.authorization import require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext, once, stored_together
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.sasl_mechanisms import SCRAM_MECHANISMS
from kafka_sink.common.scram_credential import MIN_ITERATIONS, ScramCredential
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kafka_sink.protocol.schema import VersionRange

_Change: TypeAlias = ScramCredentialDeletion | ScramCredentialUpsertion

VERSIONS: Final = VersionRange(0, 0)
#: Kafka's ScramControlManager.MAX_ITERATIONS.
_MAX_ITERATIONS: Final = 16_384


def handle(context: BrokerContext, request: ApiRequest[AlterUserScramCredentialsRequest]) -> None:
    """Change the credential of each user; a failure does not affect the others."""
    changes: list[_Change] = [*request.body.deletions, *request.body.upsertions]
    times = Counter(change.name for change in changes)

    def alter(change: _Change) -> AlterUserScramCredentialsResult:
        require(context, request, AclOperation.ALTER, ResourceType.CLUSTER)
        key = _mechanism(change), change.name
        credential = _credential(key[0], change) if isinstance(change, ScramCredentialUpsertion) else None
        if credential is None:
            _require_deletable(context, key)
        if times[change.name] > 1:
            text = f"the credential of user {change.name!r} cannot be altered twice in one request"
            raise ApiError(text, ErrorCode.DUPLICATE_RESOURCE)
        context.cluster.alter_scram_users({key: credential})
        return AlterUserScramCredentialsResult(change.name, ErrorCode.NONE, None)

    def refused(change: _Change, error: ApiError) -> AlterUserScramCredentialsResult:
        return AlterUserScramCredentialsResult(change.name, error.code, str(error))

    results = stored_together(context, once(changes, lambda change: change.name), alter, refused)
    request.respond(AlterUserScramCredentialsResponse(results=results))


def _mechanism(change: _Change) -> str:
    if not change.name:
        raise ApiError("the name of a user must not be empty", ErrorCode.UNACCEPTABLE_CREDENTIAL)
    if not 1 <= change.mechanism <= len(SCRAM_MECHANISMS):
        known = ", ".join(f"{number} ({name})" for number, name in enumerate(SCRAM_MECHANISMS, 1))
        text = f"mechanism {change.mechanism} of user {change.name!r} is unknown, expected one of {known}"
        raise ApiError(text, ErrorCode.UNSUPPORTED_SASL_MECHANISM)
    return SCRAM_MECHANISMS[change.mechanism - 1]


def _credential(mechanism: str, change: ScramCredentialUpsertion) -> ScramCredential:
    if not MIN_ITERATIONS <= change.iterations <= _MAX_ITERATIONS:
        text = f"user {change.name!r}: {change.iterations} iterations, expected {MIN_ITERATIONS} to {_MAX_ITERATIONS}"
        raise ApiError(text, ErrorCode.UNACCEPTABLE_CREDENTIAL)
    return ScramCredential.of_salted(mechanism, bytes(change.salted_password), change.iterations, bytes(change.salt))


def _require_deletable(context: BrokerContext, key: tuple[str, str]) -> None:
    mechanism, name = key
    if key in context.users.configured:
        text = f"user {name!r} of {mechanism} is one of the broker's configuration: remove it there"
        raise ApiError(text, ErrorCode.UNACCEPTABLE_CREDENTIAL)
    if key not in context.cluster.image.scram_users:
        raise ApiError(f"user {name!r} has no credential for {mechanism}", ErrorCode.RESOURCE_NOT_FOUND)


API: Final = ApiHandler(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, VERSIONS, handle)
