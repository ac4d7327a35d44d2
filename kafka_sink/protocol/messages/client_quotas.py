"""Quotas of users, clients and addresses, altered and described (KIP-546)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s


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


@s.message(versions="0-1", flexible="1+")
class AlterClientQuotasRequest(s.RequestBody["AlterClientQuotasResponse"]):
    """AlterClientQuotas (key 49): changes quotas of users and clients (KIP-546). With *validate_only* nothing is
    changed.
    """

    entries: list[EntryData] = s.field(s.array(EntryData), "0+")
    validate_only: bool = s.field(s.BOOL, "0+")


@s.struct
class AlteredEntry(s.Struct):
    """The outcome for one entity."""

    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")
    entity: list[EntityData] = s.field(s.array(EntityData), "0+")


@s.message(versions="0-1", flexible="1+")
class AlterClientQuotasResponse(s.Struct):
    """The outcome for every entity."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    entries: list[AlteredEntry] = s.field(s.array(AlteredEntry), "0+")


@s.struct
class ComponentData(s.Struct):
    """*match_type* 0: the name in *match*; 1: the default; 2: any name."""

    entity_type: str = s.field(s.STRING, "0+")
    match_type: int = s.field(s.INT8, "0+")
    match: str | None = s.field(s.STRING, "0+", nullable="0+")


@s.message(versions="0-1", flexible="1+")
class DescribeClientQuotasRequest(s.RequestBody["DescribeClientQuotasResponse"]):
    """DescribeClientQuotas (key 48): quotas of users, clients and addresses (KIP-546). The quotas whose entities match
    all *components*, and with *strict* have no others.
    """

    components: list[ComponentData] = s.field(s.array(ComponentData), "0+")
    strict: bool = s.field(s.BOOL, "0+")


@s.struct
class ValueData(s.Struct):
    """A quota; bytes per second, or a percentage."""

    key: str = s.field(s.STRING, "0+")
    value: float = s.field(s.FLOAT64, "0+")


@s.struct
class DescribedEntry(s.Struct):
    """An entity with its quotas."""

    entity: list[EntityData] = s.field(s.array(EntityData), "0+")
    values: list[ValueData] = s.field(s.array(ValueData), "0+")


@s.message(versions="0-1", flexible="1+")
class DescribeClientQuotasResponse(s.Struct):
    """*entries* is null if the request failed."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")
    entries: list[DescribedEntry] | None = s.field(s.array(DescribedEntry), "0+", nullable="0+")
