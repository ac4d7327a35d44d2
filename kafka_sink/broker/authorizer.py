"""The users with passwords, the ACLs of the cluster, and the authorization of clients.

Network threads read the users for each login; handlers call the authorizer on their threads. It reads the cluster's
image and changes nothing. It must decide as Kafka's StandardAuthorizer does: a DENY takes precedence over every ALLOW;
without an ACL for the resource, the default applies; super users may do everything. Passwords of SCRAM users are not
kept, only salted keys.

Source: apache/kafka ``AclCache``, ``StandardAuthorizer``, ``StandardAuthorizerData``,
``Authorizer.authorizeByResourceType`` (KIP-679).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.common.acl import (
    EVERYBODY,
    SUPPORTED_OPERATIONS,
    WILDCARD,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from kafka_sink.common.bounded import json_number
from kafka_sink.common.errors import ApiError, ErrorCode
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.common.sasl_mechanisms import ScramCredential, ScramUsers
from kafka_sink.common.text import words


@dataclass(frozen=True, slots=True)
class Users:
    """*passwords* are those of PLAIN; *configured* are the SCRAM users of the configuration, *stored* those of the
    cluster, which take precedence."""

    passwords: Mapping[str, str] = field(repr=False)
    configured: ScramUsers = field(repr=False)
    stored: Callable[[], ScramUsers] = field(repr=False)

    def scram(self, mechanism: str, name: str) -> ScramCredential | None:
        key = mechanism, name
        return self.stored().get(key) or self.configured.get(key)


#: The fields of an ACL in the file; codes are numbers.
_FIELDS: Final = attrgetter(
    *words("""
        principal operation.value resource_type.value resource_name pattern_type.value permission_type.value host
    """)
)


@dataclass(frozen=True, slots=True)
class AclCache:
    """*acls* in the order of their creation, without duplicates."""

    acls: tuple[AclBinding, ...] = ()
    #: Resource type, pattern type and name → ACLs.
    _by_pattern: dict[tuple[ResourceType, PatternType, str], list[AclBinding]] = field(
        init=False, compare=False, repr=False, default_factory=dict
    )
    #: Resource type → lengths of its prefixes.
    _prefix_lengths: dict[ResourceType, set[int]] = field(init=False, compare=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        for acl in self.acls:
            key = acl.resource_type, acl.pattern_type, acl.resource_name
            self._by_pattern.setdefault(key, []).append(acl)
            if acl.pattern_type is PatternType.PREFIXED:
                self._prefix_lengths.setdefault(acl.resource_type, set()).add(len(acl.resource_name))

    def of_resource(self, resource_type: ResourceType, name: str) -> Iterator[AclBinding]:
        for literal in {name, WILDCARD}:
            yield from self._by_pattern.get((resource_type, PatternType.LITERAL, literal), ())
        for length in self._prefix_lengths.get(resource_type, ()):
            if length <= len(name):
                yield from self._by_pattern.get((resource_type, PatternType.PREFIXED, name[:length]), ())

    def with_added(self, added: Iterable[AclBinding]) -> AclCache:
        return AclCache(tuple(dict.fromkeys((*self.acls, *added))))

    def without(self, removed: Iterable[AclBinding]) -> AclCache:
        gone = frozenset(removed)
        return AclCache(tuple(acl for acl in self.acls if acl not in gone))

    def encoded(self) -> list[list[str | int]]:
        """The ACLs as JSON, the inverse of :meth:`decode`."""
        return [list(_FIELDS(acl)) for acl in self.acls]

    @classmethod
    def decode(cls, entries: Iterable[Sequence[str | int]]) -> AclCache:
        """:raises ValueError: if an entry has an unknown code or another number of fields."""
        return cls(
            tuple(
                AclBinding(
                    principal=str(principal),
                    operation=AclOperation(json_number(operation)),
                    resource_type=ResourceType(json_number(resource_type)),
                    resource_name=str(name),
                    pattern_type=PatternType(json_number(pattern_type)),
                    permission_type=AclPermissionType(json_number(permission_type)),
                    host=str(host),
                )
                for principal, operation, resource_type, name, pattern_type, permission_type, host in entries
            )
        )


#: The error for a resource that a client may not use.
_REFUSALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_log: Final = ContextLogger(__name__, "")
#: Operation → operations that imply it if they are allowed; a DENY implies nothing.
_IMPLIED_BY: Final = {
    AclOperation.DESCRIBE: frozenset(AclOperation[name] for name in words("DESCRIBE READ WRITE DELETE ALTER ALL")),
    AclOperation.DESCRIBE_CONFIGS: frozenset(
        AclOperation[name] for name in words("DESCRIBE_CONFIGS ALTER_CONFIGS ALL")
    ),
}
#: The name that Kafka checks first, so that super users are allowed in spite of DENY ACLs.
_NO_NAME: Final = "hardcode"


class Authorizer:
    """The decisions for one cluster; without ``authorizer.class.name`` every client may do everything."""

    def __init__(self, config: BrokerConfig, acls: Callable[[], AclCache]) -> None:
        #: Whether ACLs are enforced.
        self.is_enabled: Final = bool(config.authorizer_class_name)
        self._super_users = config.super_user_names
        self._allow_without_acls = config.allow_everyone_if_no_acl_found
        self._acls = acls

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether *principal* (``User:name``), connected from *host* (an address), may do *operation*."""
        if not self.is_enabled or principal in self._super_users:
            return True
        host = _java_address(host)
        is_allowed, has_acls = False, False
        for acl in self._acls().of_resource(resource_type, name):
            has_acls = True
            if _is_for(acl, principal, host):
                if acl.permission_type is AclPermissionType.DENY:
                    if acl.operation in (AclOperation.ALL, operation):
                        return False
                elif acl.operation in _IMPLIED_BY.get(operation, (AclOperation.ALL, operation)):
                    is_allowed = True
        return is_allowed if has_acls else self._allow_without_acls

    def allows_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether *principal* may do *operation* on at least one resource of a type, existing or not (KIP-679)."""
        if self.allows(principal, host, operation, resource_type, _NO_NAME):
            return True
        host = _java_address(host)
        acls = [
            acl
            for acl in self._acls().acls
            if acl.resource_type is resource_type
            and _is_for(acl, principal, host)
            and acl.operation in (AclOperation.ALL, operation)
        ]
        allowed = [acl for acl in acls if acl.permission_type is AclPermissionType.ALLOW]
        denied = {(acl.pattern_type, acl.resource_name) for acl in acls if acl not in allowed}
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        return any(not _is_dominated(acl, denied) for acl in allowed)

    @staticmethod
    def refusal(
        principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str, needed_by: str
    ) -> ApiError:
        """The error for a client that may not do *operation*, which the API *needed_by* needs; the log names it."""
        _log.info(
            "%r from %s may not %s %s %r, which %s needs: add an ACL, or make it one of super.users",
            principal,
            host,
            operation.name,
            resource_type.name,
            name,
            needed_by,
        )
        return ApiError(f"{operation.name} on {resource_type.name} {name!r} is not allowed", _REFUSALS[resource_type])

    def operations(self, principal: str, host: str, resource_type: ResourceType, name: str) -> int:
        """The operations that *principal* may do: bit n stands for the operation with code n (KIP-430)."""
        return sum(
            1 << operation
            for operation in SUPPORTED_OPERATIONS[resource_type]
            if self.allows(principal, host, operation, resource_type, name)
        )


def _is_for(acl: AclBinding, principal: str, host: str) -> bool:
    return acl.principal in (principal, EVERYBODY) and acl.host in (host, WILDCARD)


def _is_dominated(acl: AclBinding, denied: Collection[tuple[PatternType, str]]) -> bool:
    name = acl.resource_name
    if acl.pattern_type is PatternType.LITERAL and name == WILDCARD:
        return False
    if acl.pattern_type is PatternType.LITERAL and (PatternType.LITERAL, name) in denied:
        return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))


def _java_address(host: str) -> str:
    """An address in the format in which Kafka compares it: IPv6 without ``::``, and IPv4 inside IPv6 as IPv4."""
    if ":" not in host:
        return host
    number, percent, zone = host.partition("%")
    address = ipaddress.IPv6Address(number)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(format(int(group, 16), "x") for group in address.exploded.split(":")) + percent + zone
