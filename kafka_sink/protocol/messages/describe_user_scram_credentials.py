"""DescribeUserScramCredentials (key 50): users of SCRAM and their mechanisms (KIP-554)."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0"
_FLEXIBLE = "0+"


@s.struct
class UserName(s.Struct):
    """A user."""

    name: str = s.field(s.STRING, "0+")


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeUserScramCredentialsRequest(s.RequestBody["DescribeUserScramCredentialsResponse"]):
    """No users, or null, stand for all."""

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


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class DescribeUserScramCredentialsResponse(s.Struct):
    """What every user has; *error_code* concerns the whole request."""

    throttle_time_ms: int = s.field(s.INT32, "0+")
    error_code: int = s.field(s.INT16, "0+")
    error_message: str | None = s.field(s.STRING, "0+", nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = s.field(s.array(DescribeUserScramCredentialsResult), "0+")
