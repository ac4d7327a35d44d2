"""FindCoordinator (key 10): which broker coordinates a group or a transactional id; several at once from version 4."""

from __future__ import annotations

from kafka_sink.protocol.schema import INT8, INT16, INT32, STRING, RequestBody, Struct, array, field, message, struct

_VERSIONS = "0-6"
_FLEXIBLE = "3+"

#: What a coordinator key names.
GROUP = 0
TRANSACTION = 1


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class FindCoordinatorRequest(RequestBody["FindCoordinatorResponse"]):
    """*key* up to version 3, *coordinator_keys* from version 4 on; *key_type* says what they name."""

    key: str = field(STRING, "0-3")
    key_type: int = field(INT8, "1+")
    coordinator_keys: list[str] = field(array(STRING), "4+")


@struct
class Coordinator(Struct):
    """The coordinator of one key, or why there is none."""

    key: str = field(STRING, "4+")
    node_id: int = field(INT32, "4+")
    host: str = field(STRING, "4+")
    port: int = field(INT32, "4+")
    error_code: int = field(INT16, "4+")
    error_message: str | None = field(STRING, "4+", nullable="4+", ignorable=True)


@message(versions=_VERSIONS, flexible=_FLEXIBLE)
class FindCoordinatorResponse(Struct):
    """One coordinator at the top level up to version 3, *coordinators* from version 4 on."""

    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    error_code: int = field(INT16, "0-3")
    error_message: str | None = field(STRING, "1-3", nullable="1-3", ignorable=True)
    node_id: int = field(INT32, "0-3")
    host: str = field(STRING, "0-3")
    port: int = field(INT32, "0-3")
    coordinators: list[Coordinator] = field(array(Coordinator), "4+")
