"""Users of SCRAM, altered and described (KIP-554).

Source: apache/kafka ``ScramImage``, ``ScramControlManager``.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, TypeAlias

from kafka_sink.broker.handlers.authorization import require
from kafka_sink.broker.handlers.context import ApiRequest, BrokerContext, api_handler, once, stored_together
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.sasl_mechanisms import SCRAM_MECHANISMS
from kafka_sink.common.scram_credential import MIN_ITERATIONS, ScramCredential
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import user_scram_credentials as m

_Change: TypeAlias = m.ScramCredentialDeletion | m.ScramCredentialUpsertion

#: Kafka's ScramControlManager.MAX_ITERATIONS.
_MAX_ITERATIONS: Final = 16_384


@api_handler(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "0")
def alter_user_scram_credentials(
    context: BrokerContext, request: ApiRequest[m.AlterUserScramCredentialsRequest]
) -> None:
    """AlterUserScramCredentials (key 51): users of SCRAM are made, changed and deleted while the cluster runs; a
    failure does not affect the others.

    What is stored are keys, from which no password can be found. Connections that a user has stay open until they must
    be authenticated again.
    """
    changes: list[_Change] = [*request.body.deletions, *request.body.upsertions]
    times = Counter(change.name for change in changes)

    def alter(change: _Change) -> m.AlterUserScramCredentialsResult:
        require(context, request, AclOperation.ALTER, ResourceType.CLUSTER)
        key = _mechanism(change), change.name
        credential = _credential(key[0], change) if isinstance(change, m.ScramCredentialUpsertion) else None
        if credential is None:
            _require_deletable(context, key)
        if times[change.name] > 1:
            text = f"the credential of user {change.name!r} cannot be altered twice in one request"
            raise ApiError(text, ErrorCode.DUPLICATE_RESOURCE)
        context.cluster.alter_scram_users({key: credential})
        return m.AlterUserScramCredentialsResult(change.name, ErrorCode.NONE, None)

    def refused(change: _Change, error: ApiError) -> m.AlterUserScramCredentialsResult:
        return m.AlterUserScramCredentialsResult(change.name, error.code, str(error))

    results = stored_together(context, once(changes, lambda change: change.name), alter, refused)
    request.respond(m.AlterUserScramCredentialsResponse(results=results))


def _mechanism(change: _Change) -> str:
    if not change.name:
        raise ApiError("the name of a user must not be empty", ErrorCode.UNACCEPTABLE_CREDENTIAL)
    if not 1 <= change.mechanism <= len(SCRAM_MECHANISMS):
        known = ", ".join(f"{number} ({name})" for number, name in enumerate(SCRAM_MECHANISMS, 1))
        text = f"mechanism {change.mechanism} of user {change.name!r} is unknown, expected one of {known}"
        raise ApiError(text, ErrorCode.UNSUPPORTED_SASL_MECHANISM)
    return SCRAM_MECHANISMS[change.mechanism - 1]


def _credential(mechanism: str, change: m.ScramCredentialUpsertion) -> ScramCredential:
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


@api_handler(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "0")
def describe_user_scram_credentials(
    context: BrokerContext, request: ApiRequest[m.DescribeUserScramCredentialsRequest]
) -> None:
    """DescribeUserScramCredentials (key 50): users of SCRAM, those of the configuration too. Answers with the
    mechanisms of each user, and never with keys.
    """
    try:
        require(context, request, AclOperation.DESCRIBE, ResourceType.CLUSTER)
    except ApiError as error:
        # As in Kafka, users are not named in a refusal.
        refused = [m.DescribeUserScramCredentialsResult("", error.code, str(error)) for _ in request.body.users or ()]
        answer = m.DescribeUserScramCredentialsResponse(
            error_code=error.code, error_message=str(error), results=refused
        )
        request.respond(answer)
        return
    users = context.users.all_scram()
    infos: dict[str, list[m.CredentialInfo]] = {}
    for number, mechanism in enumerate(SCRAM_MECHANISMS, 1):
        for (of, name), credential in users.items():
            if of == mechanism:
                infos.setdefault(name, []).append(m.CredentialInfo(number, credential.iterations))

    def described(name: str, times: int) -> m.DescribeUserScramCredentialsResult:
        if times > 1:
            text = f"user {name!r:.200} is named {times} times in one request"
            return m.DescribeUserScramCredentialsResult(name, ErrorCode.DUPLICATE_RESOURCE, text)
        if name not in infos:
            text = f"user {name!r:.200} has no credential for SCRAM"
            return m.DescribeUserScramCredentialsResult(name, ErrorCode.RESOURCE_NOT_FOUND, text)
        return m.DescribeUserScramCredentialsResult(name, ErrorCode.NONE, None, infos[name])

    counts = Counter(user.name for user in request.body.users or ()) or dict.fromkeys(infos, 1)
    results = [described(*each) for each in counts.items()]
    request.respond(m.DescribeUserScramCredentialsResponse(error_message=None, results=results))
