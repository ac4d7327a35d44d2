"""Quotas of users and client ids, altered and described (KIP-546).

Source: apache/kafka ``ClientQuotaControlManager`` for what an entity and a quota must be, ``ClientQuotasImage`` for
what a filter must be.
"""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.authorization import require
from kafka_sink.broker.handlers.context import ApiRequest, BrokerContext, api_handler, stored_together
from kafka_sink.broker.network.client_quotas import CLIENT, CONSUMER_RATE, PRODUCER_RATE, USER
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import QuotaEntity
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import client_quotas as m

#: Kafka keeps these quotas in a long.
_MOST: Final = 2.0**63


@api_handler(ApiKey.ALTER_CLIENT_QUOTAS, "0-1")
def alter_client_quotas(context: BrokerContext, request: ApiRequest[m.AlterClientQuotasRequest]) -> None:
    """AlterClientQuotas (key 49): rates of bytes for users and client ids; other quotas are refused (KIP-546).
    Changes the quotas of each entity; a failure does not affect the others.
    """

    def change(entry: m.EntryData) -> m.AlteredEntry:
        require(context, request, AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER)
        entity, changes = _entity(entry.entity), _changes(entry.ops)
        if not request.body.validate_only:
            context.cluster.alter_quotas(entity, changes)
        named = [m.EntityData(*part) for part in sorted(entity, key=lambda part: part[0])]
        return m.AlteredEntry(ErrorCode.NONE, None, named)

    def refused(entry: m.EntryData, error: ApiError) -> m.AlteredEntry:
        return m.AlteredEntry(error.code, str(error), entry.entity)

    entries = stored_together(context, request.body.entries, change, refused)
    request.respond(m.AlterClientQuotasResponse(entries=entries))


def _entity(parts: list[m.EntityData]) -> QuotaEntity:
    if not parts:
        raise ApiError("an entity has a user, a client id, or one of each", ErrorCode.INVALID_REQUEST)
    for part in parts:
        if part.entity_type not in (USER, CLIENT):
            text = f"quotas of entity type {part.entity_type!r} are not enforced here; expected {USER} or {CLIENT}"
            raise ApiError(text, ErrorCode.INVALID_REQUEST)
        if part.entity_name == "":
            raise ApiError(f"the name of the {part.entity_type} is empty", ErrorCode.INVALID_REQUEST)
    # As in Kafka, the last of several names of one kind counts.
    return frozenset({part.entity_type: part.entity_name for part in parts}.items())


def _changes(ops: list[m.OpData]) -> dict[str, float | None]:
    changes: dict[str, float | None] = {}
    for op in ops:
        if op.key not in (PRODUCER_RATE, CONSUMER_RATE):
            text = f"quota {op.key!r} is not enforced here; expected {PRODUCER_RATE} or {CONSUMER_RATE}"
            raise ApiError(text, ErrorCode.INVALID_REQUEST)
        if not op.remove and not (0 < op.value < _MOST and op.value.is_integer()):
            raise ApiError(f"{op.key} must be a whole number above 0, got {op.value}", ErrorCode.INVALID_REQUEST)
        changes[op.key] = None if op.remove else op.value
    return changes


_IP: Final = "ip"
_ENTITIES: Final = frozenset({_IP, "user", "client-id"})
_EXACT, _DEFAULT, _ANY = 0, 1, 2


@api_handler(ApiKey.DESCRIBE_CLIENT_QUOTAS, "0-1")
def describe_client_quotas(context: BrokerContext, request: ApiRequest[m.DescribeClientQuotasRequest]) -> None:
    """DescribeClientQuotas (key 48): the quotas of users and clients (KIP-546).
    Answers with the quotas of the entities that the filter selects; or what is wrong with it.
    """
    try:
        require(context, request, AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
        _check(request.body.components)
    except ApiError as error:
        failed = m.DescribeClientQuotasResponse(error_code=error.code, error_message=str(error), entries=None)
        request.respond(failed)
        return
    entries = [
        m.DescribedEntry(
            [m.EntityData(kind, name) for kind, name in sorted(entity, key=lambda part: part[0])],
            [m.ValueData(key, value) for key, value in sorted(values.items())],
        )
        for entity, values in context.cluster.image.quotas.items()
        if _is_wanted(dict(entity), request.body)
    ]
    request.respond(m.DescribeClientQuotasResponse(error_message=None, entries=entries))


def _is_wanted(entity: dict[str, str | None], body: m.DescribeClientQuotasRequest) -> bool:
    if body.strict and len(entity) != len(body.components):
        return False
    return all(
        part.entity_type in entity and (part.match_type == _ANY or entity[part.entity_type] == part.match)
        for part in body.components
    )


def _check(components: list[m.ComponentData]) -> None:
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
