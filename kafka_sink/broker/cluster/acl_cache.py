"""The ACLs of a cluster, immutable, with an index by resource.

A part of the cluster image: the cluster state replaces it, every thread reads it. It does not decide what a principal
may do; the authorizer does.

Source: apache/kafka ``AclCache``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from kafka_sink.common.acl import WILDCARD, AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from kafka_sink.common.bounded import json_number
from kafka_sink.common.text import words

#: What a file says of an ACL; codes are numbers.
_FIELDS: Final = attrgetter(
    *words("""
        principal operation.value resource_type.value resource_name pattern_type.value permission_type.value host
    """)
)


@dataclass(frozen=True, slots=True)
class AclCache:
    """*acls* in the order in which they were created, each once."""

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
        """The ACLs that apply to a resource."""
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
