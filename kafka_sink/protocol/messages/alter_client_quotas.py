"""AlterClientQuotas (key 49): changes quotas of users and clients (KIP-546)."""

from __future__ import annotations

from kafka_sink.protocol.schema import (
    BOOL,
    FLOAT64,
    INT16,
    INT32,
    STRING,
    RequestBody,
    Struct,
    array,
    field,
    message,
    struct,
)

_VERSIONS = "0-1"
_FLEXIBLE = "1+"


@struct
class EntityData(Struct):
    """A part of an entity; a null name is the default."""

    entity_type: str = field(STRING, "0+")
    entity_name: str | None = field(STRING, "0+", nullable="0+")


@struct
class OpData(Struct):
    """A quota; with *remove* it goes, and *value* has no meaning."""

    key: str = field(STRING, "0+")
    value: float = field(FLOAT64, "0+")
    remove: bool = field(BOOL, "0+")


@struct
class EntryData(Struct):
    """An entity and the changes of its quotas."""

    entity: list[EntityData] = field(array(EntityData), "0+")
    ops: list[OpData] = field(array(OpData), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class AlterClientQuotasRequest(RequestBody["AlterClientQuotasResponse"]):
    """With *validate_only* nothing is changed."""

    entries: list[EntryData] = field(array(EntryData), "0+")
    validate_only: bool = field(BOOL, "0+")


@struct
class AlteredEntry(Struct):
    """The outcome for one entity."""

    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    entity: list[EntityData] = field(array(EntityData), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class AlterClientQuotasResponse(Struct):
    """The outcome for every entity."""

    throttle_time_ms: int = field(INT32, "0+")
    entries: list[AlteredEntry] = field(array(AlteredEntry), "0+")
