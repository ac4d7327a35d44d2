"""DescribeClientQuotas (key 48): quotas of users, clients and addresses (KIP-546)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s
from kafka_sink.protocol.messages.alter_client_quotas import EntityData

_VERSIONS = "0-1"
_FLEXIBLE = "1+"


@s.struct
class ComponentData(s.Struct):
    """*match_type* 0: the name in *match*; 1: the default; 2: any name."""

    entity_type: str = s.field(s.STRING, "0+")
    match_type: int = s.field(s.INT8, "0+")
    match: str | None = s.field(s.STRING, "0+", nullable="0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeClientQuotasRequest(s.RequestBody["DescribeClientQuotasResponse"]):
    """The quotas whose entities match all *components*, and with *strict* have no others."""

    components: list[ComponentData] = s.field(s.array(ComponentData), "0+")
    strict: bool = s.field(s.BOOL, "0+")


@s.struct
class ValueData(s.Struct):
    """A quota; bytes per second, or a percentage."""

    key: str = s.field(s.STRING, "0+")
    value: float = s.field(s.FLOAT64, "0+")


@s.struct
class EntryData(s.Struct):
    """An entity with its quotas."""

    entity: list[EntityData] = s.field(s.array(EntityData), "0+")
    values: list[ValueData] = s.field(s.array(ValueData), "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeClientQuotasResponse(s.Struct):
    """*entries* is null if the request failed."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")
    entries: list[EntryData] | None = s.field(s.array(EntryData), "0+", nullable="0+")
