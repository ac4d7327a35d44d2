"""FindCoordinator (key 10): which broker coordinates a group or a transactional id; several at once from version 4."""

from __future__ import annotations

from kafka_sink.protocol import schema as s

_VERSIONS = "0-6"
_FLEXIBLE = "3+"

#: What a coordinator key names.
GROUP = 0
TRANSACTION = 1


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class FindCoordinatorRequest(s.RequestBody["FindCoordinatorResponse"]):
    """*key* up to version 3, *coordinator_keys* from version 4 on; *key_type* says what they name."""

    key: str = s.field(s.STRING, "0-3")
    key_type: int = s.field(s.INT8, "1+")
    coordinator_keys: list[str] = s.field(s.array(s.STRING), "4+")


@s.struct
class Coordinator(s.Struct):
    """The coordinator of one key, or why there is none."""

    key: str = s.field(s.STRING, "4+")
    node_id: int = s.field(s.INT32, "4+")
    host: str = s.field(s.STRING, "4+")
    port: int = s.field(s.INT32, "4+")
    error_code: int = s.field(s.INT16, "4+")
    error_message: str | None = s.field(s.STRING, "4+", nullable="4+", ignorable=True)


@s.message(versions=_VERSIONS, flexible=_FLEXIBLE)
class FindCoordinatorResponse(s.Struct):
    """One coordinator at the top level up to version 3, *coordinators* from version 4 on."""

    throttle_time_ms: int = s.field(s.INT32, "1+", ignorable=True)
    error_code: int = s.field(s.INT16, "0-3")
    error_message: str | None = s.field(s.STRING, "1-3", nullable="1-3", ignorable=True)
    node_id: int = s.field(s.INT32, "0-3")
    host: str = s.field(s.STRING, "0-3")
    port: int = s.field(s.INT32, "0-3")
    coordinators: list[Coordinator] = s.field(s.array(Coordinator), "4+")
