"""Users: the alteration and description of their SCRAM credentials (KIP-554), and of the quotas of users, clients and
addresses (KIP-546).
"""

from __future__ import annotations

from kafka_sink.protocol import schema as s


class ScramCredentialDeletion(s.Struct):
    """A user and the mechanism whose credential is deleted."""

    name: str = s.field(s.STRING, "0+")
    mechanism: int = s.field(s.INT8, "0+")


class ScramCredentialUpsertion(s.Struct):
    """A user's password after *iterations* rounds with *salt*."""

    name: str = s.field(s.STRING, "0+")
    mechanism: int = s.field(s.INT8, "0+")
    iterations: int = s.field(s.INT32, "0+")
    salt: bytes = s.field(s.BYTES, "0+")
    salted_password: bytes = s.field(s.BYTES, "0+")


class AlterUserScramCredentialsRequest(s.RequestBody["AlterUserScramCredentialsResponse"], versions="0", flexible="0+"):
    """AlterUserScramCredentials (key 51): create, change and delete SCRAM credentials of users (KIP-554). Mechanism 1
    is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""

    deletions: list[ScramCredentialDeletion] = s.field(s.Array(ScramCredentialDeletion), "0+")
    upsertions: list[ScramCredentialUpsertion] = s.field(s.Array(ScramCredentialUpsertion), "0+")


class AlterUserScramCredentialsResult(s.Struct):
    user: str = s.field(s.STRING, "0+")
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")


class AlterUserScramCredentialsResponse(s.Throttled, versions="0", flexible="0+"):
    results: list[AlterUserScramCredentialsResult] = s.field(s.Array(AlterUserScramCredentialsResult), "0+")


class UserName(s.Struct):
    name: str = s.field(s.STRING, "0+")


class DescribeUserScramCredentialsRequest(
    s.RequestBody["DescribeUserScramCredentialsResponse"], versions="0", flexible="0+"
):
    """DescribeUserScramCredentials (key 50): users with SCRAM credentials and their mechanisms (KIP-554). Empty or null
    users select all."""

    users: list[UserName] | None = s.field(s.Array(UserName), "0+", nullable="0+")


class CredentialInfo(s.Struct):
    """Mechanism 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""

    mechanism: int = s.field(s.INT8, "0+")
    iterations: int = s.field(s.INT32, "0+")


class DescribeUserScramCredentialsResult(s.Struct):
    user: str = s.field(s.STRING, "0+")
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")
    credential_infos: list[CredentialInfo] = s.field(s.Array(CredentialInfo), "0+")


class DescribeUserScramCredentialsResponse(s.Throttled, versions="0", flexible="0+"):
    """The mechanisms of every user; *error_code* concerns the whole request."""

    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = s.field(s.Array(DescribeUserScramCredentialsResult), "0+")


class EntityData(s.Struct):
    """A part of an entity; a null name is the default."""

    entity_type: str = s.field(s.STRING, "0+")
    entity_name: str | None = s.field(s.STRING, "0+", nullable="0+")


class OpData(s.Struct):
    """A quota; *remove* deletes it, and *value* is ignored."""

    key: str = s.field(s.STRING, "0+")
    value: float = s.field(s.FLOAT64, "0+")
    remove: bool = s.field(s.BOOL, "0+")


class EntryData(s.Struct):
    """An entity and the changes of its quotas."""

    entity: list[EntityData] = s.field(s.Array(EntityData), "0+")
    ops: list[OpData] = s.field(s.Array(OpData), "0+")


class AlterClientQuotasRequest(s.RequestBody["AlterClientQuotasResponse"], versions="0-1", flexible="1+"):
    """AlterClientQuotas (key 49): change quotas of users and clients (KIP-546)."""

    entries: list[EntryData] = s.field(s.Array(EntryData), "0+")
    validate_only: bool = s.field(s.BOOL, "0+")


class AlteredEntry(s.Outcome):
    entity: list[EntityData] = s.field(s.Array(EntityData), "0+")


class AlterClientQuotasResponse(s.Throttled, versions="0-1", flexible="1+"):
    entries: list[AlteredEntry] = s.field(s.Array(AlteredEntry), "0+")


class ComponentData(s.Struct):
    """*match_type* 0: the name in *match*; 1: the default; 2: any name."""

    entity_type: str = s.field(s.STRING, "0+")
    match_type: int = s.field(s.INT8, "0+")
    match: str | None = s.field(s.STRING, "0+", nullable="0+")


class DescribeClientQuotasRequest(s.RequestBody["DescribeClientQuotasResponse"], versions="0-1", flexible="1+"):
    """DescribeClientQuotas (key 48): quotas of users, clients and addresses (KIP-546). The quotas whose entities match
    all *components*, and with *strict* have no others."""

    components: list[ComponentData] = s.field(s.Array(ComponentData), "0+")
    strict: bool = s.field(s.BOOL, "0+")


class ValueData(s.Struct):
    """A quota; bytes per second, or a percentage."""

    key: str = s.field(s.STRING, "0+")
    value: float = s.field(s.FLOAT64, "0+")


class DescribedEntry(s.Struct):
    entity: list[EntityData] = s.field(s.Array(EntityData), "0+")
    values: list[ValueData] = s.field(s.Array(ValueData), "0+")


class DescribeClientQuotasResponse(s.Throttled, versions="0-1", flexible="1+"):
    """*entries* is null if the request failed."""

    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")
    entries: list[DescribedEntry] | None = s.field(s.Array(DescribedEntry), "0+", nullable="0+")
