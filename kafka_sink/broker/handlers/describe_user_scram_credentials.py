"""DescribeUserScramCredentials (key 50): users of SCRAM, those of the configuration too (KIP-554).

Source: apache/kafka ``ScramImage``.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from kafka_sink.broker.handlers.authorization import require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.sasl_mechanisms import SCRAM_MECHANISMS
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 0)


def handle(context: BrokerContext, request: ApiRequest[DescribeUserScramCredentialsRequest]) -> None:
    """Answer with the mechanisms of each user, and never with keys."""
    try:
        require(context, request, AclOperation.DESCRIBE, ResourceType.CLUSTER)
    except ApiError as error:
        # As in Kafka, users are not named in a refusal.
        refused = [DescribeUserScramCredentialsResult("", error.code, str(error)) for _ in request.body.users or ()]
        answer = DescribeUserScramCredentialsResponse(error_code=error.code, error_message=str(error), results=refused)
        request.respond(answer)
        return
    users = context.users.all_scram()
    infos: dict[str, list[CredentialInfo]] = {}
    for number, mechanism in enumerate(SCRAM_MECHANISMS, 1):
        for (of, name), credential in users.items():
            if of == mechanism:
                infos.setdefault(name, []).append(CredentialInfo(number, credential.iterations))

    def described(name: str, times: int) -> DescribeUserScramCredentialsResult:
        if times > 1:
            text = f"user {name!r} is named {times} times in one request"
            return DescribeUserScramCredentialsResult(name, ErrorCode.DUPLICATE_RESOURCE, text)
        if name not in infos:
            text = f"user {name!r} has no credential for SCRAM"
            return DescribeUserScramCredentialsResult(name, ErrorCode.RESOURCE_NOT_FOUND, text)
        return DescribeUserScramCredentialsResult(name, ErrorCode.NONE, None, infos[name])

    asked = Counter(user.name for user in request.body.users or ()) or dict.fromkeys(infos, 1)
    results = [described(*each) for each in asked.items()]
    request.respond(DescribeUserScramCredentialsResponse(error_message=None, results=results))


API: Final = ApiHandler(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, VERSIONS, handle)
