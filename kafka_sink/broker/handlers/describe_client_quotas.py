"""DescribeClientQuotas (key 48): the quotas of users and clients (KIP-546).

Source: apache/kafka ``ClientQuotasImage`` for what a filter must be.
"""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.authorization import require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.alter_client_quotas import EntityData
from kafka_sink.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntryData,
    ValueData,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 1)
_IP: Final = "ip"
_ENTITIES: Final = frozenset({_IP, "user", "client-id"})
_EXACT, _DEFAULT, _ANY = 0, 1, 2


def handle(context: BrokerContext, request: ApiRequest[DescribeClientQuotasRequest]) -> None:
    """Answer with the quotas of the entities that the filter selects; or what is wrong with it."""
    try:
        require(context, request, AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
        _check(request.body.components)
    except ApiError as error:
        failed = DescribeClientQuotasResponse(error_code=error.code, error_message=str(error), entries=None)
        request.respond(failed)
        return
    entries = [
        EntryData(
            [EntityData(kind, name) for kind, name in sorted(entity, key=lambda part: part[0])],
            [ValueData(key, value) for key, value in sorted(values.items())],
        )
        for entity, values in context.cluster.image.quotas.items()
        if _is_wanted(dict(entity), request.body)
    ]
    request.respond(DescribeClientQuotasResponse(error_message=None, entries=entries))


def _is_wanted(entity: dict[str, str | None], asked: DescribeClientQuotasRequest) -> bool:
    if asked.strict and len(entity) != len(asked.components):
        return False
    return all(
        part.entity_type in entity and (part.match_type == _ANY or entity[part.entity_type] == part.match)
        for part in asked.components
    )


def _check(components: list[ComponentData]) -> None:
    kinds: set[str] = set()
    for each in components:
        if not each.entity_type:
            raise ApiError("an entity type is empty", ErrorCode.INVALID_REQUEST)
        if each.entity_type in kinds:
            raise ApiError(f"entity type {each.entity_type} appears twice", ErrorCode.INVALID_REQUEST)
        if each.entity_type not in _ENTITIES:
            raise ApiError(f"entity type {each.entity_type!r} is unknown", ErrorCode.UNSUPPORTED_VERSION)
        if each.match_type not in (_EXACT, _DEFAULT, _ANY):
            raise ApiError(f"match type {each.match_type} is unknown", ErrorCode.INVALID_REQUEST)
        if (each.match is None) == (each.match_type == _EXACT):
            raise ApiError("exact matches need a name, and others have none", ErrorCode.INVALID_REQUEST)
        kinds.add(each.entity_type)
    if _IP in kinds and len(kinds) > 1:
        raise ApiError("addresses cannot be combined with users or clients", ErrorCode.INVALID_REQUEST)


API: Final = ApiHandler(ApiKey.DESCRIBE_CLIENT_QUOTAS, VERSIONS, handle)
