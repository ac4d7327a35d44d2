"""AlterClientQuotas (key 49): changes quotas of users and clients (KIP-546)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0-1"
_FLEXIBLE = "1+"


@s.struct
class EntityData(s.Struct):
    """A part of an entity; a null name is the default."""

    entity_type: str = s.field(s.STRING, "0+")
    entity_name: str | None = s.field(s.STRING, "0+", nullable="0+")


@s.struct
class OpData(s.Struct):
    """A quota; with *remove* it goes, and *value* has no meaning."""

    key: str = s.field(s.STRING, "0+")
    value: float = s.field(s.FLOAT64, "0+")
    remove: bool = s.field(s.BOOL, "0+")


@s.struct
class EntryData(s.Struct):
    """An entity and the changes of its quotas."""

    entity: list[EntityData] = s.field(s.array(EntityData), "0+")
    ops: list[OpData] = s.field(s.array(OpData), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class AlterClientQuotasRequest(s.RequestBody["AlterClientQuotasResponse"]):
    """With *validate_only* nothing is changed."""

    entries: list[EntryData] = s.field(s.array(EntryData), "0+")
    validate_only: bool = s.field(s.BOOL, "0+")


@s.struct
class AlteredEntry(s.Struct):
    """The outcome for one entity."""

    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")
    entity: list[EntityData] = s.field(s.array(EntityData), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class AlterClientQuotasResponse(s.Struct):
    """The outcome for every entity."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    entries: list[AlteredEntry] = s.field(s.array(AlteredEntry), "0+")
