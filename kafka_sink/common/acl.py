"""Access control lists (ACLs): operations that principals are allowed or denied on resources, from hosts.

Values only, with Kafka's names and codes; the embedded broker authorizes with them, and the admin client sends them.

Source: KIP-11, KIP-290 (patterns); apache/kafka ``AclBinding``, ``AclBindingFilter``, ``AclOperation``,
``ResourceType``, ``PatternType``, ``AclPermissionType``, ``AclEntry.supportedOperations``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Final, TypeVar

from kafka_sink.common.errors import ApiError, ErrorCode

#: The name that literal ACLs have for all resources of a type, and the host for all hosts.
WILDCARD: Final = "*"
#: The principal of ACLs for all users.
EVERYBODY: Final = "User:*"
#: The only name of a resource of the type CLUSTER.
CLUSTER_NAME: Final = "kafka-cluster"


class ResourceType(IntEnum):
    """The kind of a resource; ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name of an ACL selects resources; ANY and MATCH are for filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """An operation; ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermissionType(IntEnum):
    """Whether an ACL allows or denies; ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


#: The operations that exist for each type of resource, in addition to ALL.
SUPPORTED_OPERATIONS: Final = {
    ResourceType.TOPIC: tuple(map(AclOperation, (3, 4, 5, 6, 7, 8, 10, 11))),
    ResourceType.GROUP: tuple(map(AclOperation, (3, 6, 8, 10, 11))),
    ResourceType.CLUSTER: tuple(map(AclOperation, (5, 7, 8, 9, 10, 11, 12))),
    ResourceType.TRANSACTIONAL_ID: tuple(map(AclOperation, (4, 8, 15))),
}

E = TypeVar("E", bound=IntEnum)


def from_code(kind: type[E], code: int) -> E:
    """The member of *kind* with *code*; UNKNOWN for a code that *kind* does not have."""
    try:
        return kind(code)
    except ValueError:
        return kind(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AclBinding:
    """One ACL: *principal* (``User:name``; ``User:*`` for all users) is allowed or denied *operation* on resources.

    *resource_name* is a name, or with PREFIXED the beginning of names; the literal name ``*`` selects all resources of
    the type. The only resource of the type CLUSTER is ``kafka-cluster``. *host* is an address; ``*`` is any.
    """

    principal: str
    operation: AclOperation
    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType = PatternType.LITERAL
    permission_type: AclPermissionType = AclPermissionType.ALLOW
    host: str = WILDCARD


@dataclass(frozen=True, slots=True, kw_only=True)
class AclBindingFilter:
    """Selects ACLs; None and ANY match everything.

    With the pattern type MATCH, *resource_name* is the name of a resource, and all ACLs that apply to it are selected.
    """

    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY
    host: str | None = None

    @classmethod
    def of(cls, acl: AclBinding) -> AclBindingFilter:
        """The filter that selects *acl*; with a pattern type for filters, all that only differ in their patterns."""
        return cls(**asdict(acl))

    def matches(self, acl: AclBinding) -> bool:
        return (
            self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission_type in (AclPermissionType.ANY, acl.permission_type)
            and self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_pattern(acl)
        )

    def _matches_pattern(self, acl: AclBinding) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.resource_name == acl.resource_name
        if acl.pattern_type is PatternType.PREFIXED:
            return self.resource_name.startswith(acl.resource_name)
        return acl.resource_name in (self.resource_name, WILDCARD)


def validate(acl: AclBinding) -> None:
    """:raises ApiError: INVALID_REQUEST, if *acl* is a filter, or no resource can have its name."""
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise ApiError(f"the only resource of the type CLUSTER is {CLUSTER_NAME}", ErrorCode.INVALID_REQUEST)
    if not acl.resource_name:
        raise ApiError("an ACL needs the name of a resource", ErrorCode.INVALID_REQUEST)
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED) or any(
        value.name in ("UNKNOWN", "ANY") for value in (acl.resource_type, acl.operation, acl.permission_type)
    ):
        raise ApiError(f"{acl} has a value that is unknown, or for filters only", ErrorCode.INVALID_REQUEST)
    if ":" not in acl.principal:
        raise ApiError(f"principal {acl.principal!r} is not TYPE:NAME, such as User:alice", ErrorCode.INVALID_REQUEST)
