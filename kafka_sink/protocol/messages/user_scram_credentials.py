"""Users of SCRAM, altered and described (KIP-554)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s


@s.struct
class ScramCredentialDeletion(s.Struct):
    """A user and the mechanism by which it must not log in any more."""

    name: str = s.field(s.STRING, "0+")
    mechanism: int = s.field(s.INT8, "0+")


@s.struct
class ScramCredentialUpsertion(s.Struct):
    """A user's password after *iterations* rounds with *salt*."""

    name: str = s.field(s.STRING, "0+")
    mechanism: int = s.field(s.INT8, "0+")
    iterations: int = s.field(s.INT32, "0+")
    salt: bytes = s.field(s.BYTES, "0+")
    salted_password: bytes = s.field(s.BYTES, "0+")


@s.message(versions="0", flexible="0+")
class AlterUserScramCredentialsRequest(s.RequestBody["AlterUserScramCredentialsResponse"]):
    """AlterUserScramCredentials (key 51): makes, changes and deletes users of SCRAM (KIP-554). Mechanism 1 is
    SCRAM-SHA-256, 2 is SCRAM-SHA-512.
    """

    deletions: list[ScramCredentialDeletion] = s.field(s.array(ScramCredentialDeletion), "0+")
    upsertions: list[ScramCredentialUpsertion] = s.field(s.array(ScramCredentialUpsertion), "0+")


@s.struct
class AlterUserScramCredentialsResult(s.Struct):
    """The outcome for one user."""

    user: str = s.field(s.STRING, "0+")
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")


@s.message(versions="0", flexible="0+")
class AlterUserScramCredentialsResponse(s.Struct):
    """The outcome for every user."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    results: list[AlterUserScramCredentialsResult] = s.field(s.array(AlterUserScramCredentialsResult), "0+")


@s.struct
class UserName(s.Struct):
    """A user."""

    name: str = s.field(s.STRING, "0+")


@s.message(versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest(s.RequestBody["DescribeUserScramCredentialsResponse"]):
    """DescribeUserScramCredentials (key 50): users of SCRAM and their mechanisms (KIP-554). No users, or null, stand
    for all.
    """

    users: list[UserName] | None = s.field(s.array(UserName), "0+", nullable="0+")


@s.struct
class CredentialInfo(s.Struct):
    """Mechanism 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""

    mechanism: int = s.field(s.INT8, "0+")
    iterations: int = s.field(s.INT32, "0+")


@s.struct
class DescribeUserScramCredentialsResult(s.Struct):
    """What one user has."""

    user: str = s.field(s.STRING, "0+")
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")
    credential_infos: list[CredentialInfo] = s.field(s.array(CredentialInfo), "0+")


@s.message(versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse(s.Struct):
    """What every user has; *error_code* concerns the whole request."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = s.field(s.array(DescribeUserScramCredentialsResult), "0+")
