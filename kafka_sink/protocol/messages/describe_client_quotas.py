"""DescribeClientQuotas (key 48): quotas of users, clients and addresses (KIP-546)."""

from __future__ import annotations

from kafka_sink.protocol.schema import (
    BOOL,
    FLOAT64,
    INT8,
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
class ComponentData(Struct):
    """*match_type* 0: the name in *match*; 1: the default; 2: any name."""

    entity_type: str = field(STRING, "0+")
    match_type: int = field(INT8, "0+")
    match: str | None = field(STRING, "0+", nullable="0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeClientQuotasRequest(RequestBody["DescribeClientQuotasResponse"]):
    """The quotas whose entities match all *components*, and with *strict* have no others."""

    components: list[ComponentData] = field(array(ComponentData), "0+")
    strict: bool = field(BOOL, "0+")


@struct
class EntityData(Struct):
    """A part of an entity; a null name is the default."""

    entity_type: str = field(STRING, "0+")
    entity_name: str | None = field(STRING, "0+", nullable="0+")


@struct
class ValueData(Struct):
    """A quota; bytes per second, or a percentage."""

    key: str = field(STRING, "0+")
    value: float = field(FLOAT64, "0+")


@struct
class EntryData(Struct):
    """An entity with its quotas."""

    entity: list[EntityData] = field(array(EntityData), "0+")
    values: list[ValueData] = field(array(ValueData), "0+")


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeClientQuotasResponse(Struct):
    """*entries* is null if the request failed."""

    throttle_time_ms: int = field(INT32, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    entries: list[EntryData] | None = field(array(EntryData), "0+", nullable="0+")
