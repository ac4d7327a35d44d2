"""AlterClientQuotas (key 49): rates of bytes for users and client ids; other quotas are refused (KIP-546).

Source: apache/kafka ``ClientQuotaControlManager`` for what an entity and a quota must be.
"""

from __future__ import annotations

from typing import Final

from kafka_sink.broker.handlers.authorization import require
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext, stored_together
from kafka_sink.broker.network.client_quotas import CLIENT, CONSUMER_RATE, PRODUCER_RATE, USER
from kafka_sink.common.acl import AclOperation, ResourceType
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.model import QuotaEntity
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntry,
    EntityData,
    EntryData,
    OpData,
)
from kafka_sink.protocol.schema import VersionRange

VERSIONS: Final = VersionRange(0, 1)
#: Kafka keeps these quotas in a long.
_MOST: Final = 2.0**63


def handle(context: BrokerContext, request: ApiRequest[AlterClientQuotasRequest]) -> None:
    """Change the quotas of each entity; a failure does not affect the others."""

    def change(entry: EntryData) -> AlteredEntry:
        require(context, request, AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER)
        entity, changes = _entity(entry.entity), _changes(entry.ops)
        if not request.body.validate_only:
            context.cluster.alter_quotas(entity, changes)
        named = [EntityData(*part) for part in sorted(entity, key=lambda part: part[0])]
        return AlteredEntry(ErrorCode.NONE, None, named)

    def refused(entry: EntryData, error: ApiError) -> AlteredEntry:
        return AlteredEntry(error.code, str(error), entry.entity)

    entries = stored_together(context, request.body.entries, change, refused)
    request.respond(AlterClientQuotasResponse(entries=entries))


def _entity(parts: list[EntityData]) -> QuotaEntity:
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


def _changes(ops: list[OpData]) -> dict[str, float | None]:
    changes: dict[str, float | None] = {}
    for op in ops:
        if op.key not in (PRODUCER_RATE, CONSUMER_RATE):
            text = f"quota {op.key!r} is not enforced here; expected {PRODUCER_RATE} or {CONSUMER_RATE}"
            raise ApiError(text, ErrorCode.INVALID_REQUEST)
        if not op.remove and not (0 < op.value < _MOST and op.value.is_integer()):
            raise ApiError(f"{op.key} must be a whole number above 0, got {op.value}", ErrorCode.INVALID_REQUEST)
        changes[op.key] = None if op.remove else op.value
    return changes


API: Final = ApiHandler(ApiKey.ALTER_CLIENT_QUOTAS, VERSIONS, handle)
