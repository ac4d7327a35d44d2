"""The ACLs that the options of ``kafkalite acls add`` and ``remove`` stand for.

Pure functions of the options, which mean what they mean to kafka-acls; the options of a sink are kafkalite's own.

Source: apache/kafka ``AclCommand``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import click

from kafka_sink.common.acl import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    WILDCARD,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from kafka_sink.preflight.permissions import Permission, SinkTarget, needed

_O: Final = AclOperation
#: What a producer and a consumer may do, by the type of resource.
_PRODUCER: Final = {
    ResourceType.TOPIC: (_O.WRITE, _O.DESCRIBE, _O.CREATE),
    ResourceType.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE),
}
_CONSUMER: Final = {ResourceType.TOPIC: (_O.READ, _O.DESCRIBE), ResourceType.GROUP: (_O.READ,)}


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources that were named; *pattern_type* says how, and the cluster always has its own name."""

    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    cluster: bool = False
    pattern_type: PatternType = PatternType.LITERAL

    def __iter__(self) -> Iterator[tuple[ResourceType, str, PatternType]]:
        for resource_type, names in (
            (ResourceType.TOPIC, self.topics),
            (ResourceType.GROUP, self.groups),
            (ResourceType.TRANSACTIONAL_ID, self.transactional_ids),
        ):
            for name in names:
                yield resource_type, name, self.pattern_type
        if self.cluster:
            yield ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL

    @property
    def is_empty(self) -> bool:
        return not (self.topics or self.groups or self.transactional_ids or self.cluster)

    def filters(self) -> list[AclBindingFilter]:
        """What selects all ACLs of these resources; of all resources if none was named."""
        found = [
            AclBindingFilter(resource_type=resource_type, resource_name=name, pattern_type=pattern_type)
            for resource_type, name, pattern_type in self
        ]
        return found or [AclBindingFilter()]


@dataclass(frozen=True, slots=True)
class Principals:
    """Those who are allowed and denied something, and from where; without hosts from everywhere."""

    allowed: Sequence[str] = ()
    denied: Sequence[str] = ()
    allow_hosts: Sequence[str] = ()
    deny_hosts: Sequence[str] = ()

    def __post_init__(self) -> None:
        for hosts, principals, kind in (
            (self.allow_hosts, self.allowed, "allow"),
            (self.deny_hosts, self.denied, "deny"),
        ):
            if hosts and not principals:
                raise click.UsageError(f"--{kind}-host needs --{kind}-principal.")

    def __iter__(self) -> Iterator[tuple[str, str, AclPermissionType]]:
        for principals, hosts, permission_type in (
            (self.allowed, self.allow_hosts, AclPermissionType.ALLOW),
            (self.denied, self.deny_hosts, AclPermissionType.DENY),
        ):
            for principal in principals:
                for host in hosts or (WILDCARD,):
                    yield principal, host, permission_type


@dataclass(frozen=True, slots=True)
class Roles:
    """What stands for several operations on several resources."""

    producer: bool = False
    consumer: bool = False
    at_least_once: bool = False
    exactly_once: str | None = None
    progress_topic: str | None = None
    create_topics: bool = False

    @property
    def is_sink(self) -> bool:
        return self.at_least_once or self.exactly_once is not None

    @property
    def is_given(self) -> bool:
        return self.producer or self.consumer or self.is_sink

    def permissions(self, resources: Resources) -> list[Permission]:
        """What these roles may do with *resources*.

        :raises UsageError: if options do not go together.
        """
        self._require(resources)
        if self.is_sink:
            return needed(SinkTarget(resources.topics, self.exactly_once, self.progress_topic, self.create_topics))
        tables = [table for table, is_given in ((_PRODUCER, self.producer), (_CONSUMER, self.consumer)) if is_given]
        return [
            Permission(operation, resource_type, name, pattern_type)
            for table in tables
            for resource_type, name, pattern_type in resources
            for operation in table.get(resource_type, ())
        ]

    def _require(self, resources: Resources) -> None:
        given = [
            f"--{name.replace('_', '-')}"
            for name in ("producer", "consumer", "at_least_once", "exactly_once")
            if getattr(self, name)
        ]
        if self.is_sink and len(given) > 1:
            raise click.UsageError(f"Give one of {' and '.join(given)}.")
        if not resources.topics:
            raise click.UsageError(f"{given[0]} needs --topic.")
        if self.consumer and not resources.groups:
            raise click.UsageError("--consumer needs --group.")
        if self.is_sink and resources != Resources(resources.topics):
            raise click.UsageError(
                f"{given[0]} knows the resources of a sink: give --topic with the names of its topics only."
            )


@dataclass(frozen=True, slots=True)
class Choice:
    """What the options say; without *operations* and *roles* it is every operation (ALL)."""

    resources: Resources
    principals: Principals
    operations: Sequence[AclOperation]
    roles: Roles

    def acls(self) -> list[AclBinding]:
        """An ACL for each principal, host and operation on each resource; their pattern type may be for filters only.

        :raises UsageError: if options are missing or do not go together.
        """
        self._require()
        permissions = self.roles.permissions(self.resources) if self.roles.is_given else self._permissions()
        found = [
            AclBinding(
                principal=principal,
                operation=permission.operation,
                resource_type=permission.resource_type,
                resource_name=permission.name,
                pattern_type=permission.pattern_type,
                permission_type=permission_type,
                host=host,
            )
            for principal, host, permission_type in self.principals
            for permission in permissions
        ]
        return list(dict.fromkeys(found))

    def filters(self) -> list[AclBindingFilter]:
        """What selects :meth:`acls`; with resources only, all of their ACLs.

        :raises UsageError: if options are missing or do not go together.
        """
        if self.principals == Principals() and not self.operations and self.roles == Roles():
            self._require_resource()
            return self.resources.filters()
        return [AclBindingFilter.of(acl) for acl in self.acls()]

    def _require_resource(self) -> None:
        if self.resources.is_empty:
            raise click.UsageError("Give a resource: --topic, --group, --transactional-id or --cluster.")

    def _require(self) -> None:
        self._require_resource()
        if self.principals == Principals():
            raise click.UsageError("Give --allow-principal or --deny-principal, such as User:alice.")
        if self.roles.is_given and (self.operations or self.principals.denied):
            raise click.UsageError("Give --operation and --deny-principal without options that stand for operations.")
        if self.roles.create_topics and not self.roles.is_sink:
            raise click.UsageError("--create-topics belongs to --at-least-once and --exactly-once.")
        if self.roles.progress_topic and self.roles.exactly_once is None:
            raise click.UsageError("--progress-topic belongs to --exactly-once.")

    def _permissions(self) -> list[Permission]:
        found = []
        for resource_type, name, pattern_type in self.resources:
            supported = (AclOperation.ALL, *SUPPORTED_OPERATIONS[resource_type])
            for operation in self.operations or (AclOperation.ALL,):
                if operation not in supported:
                    raise click.UsageError(
                        f"--operation {operation.name} does not exist for {resource_type.name}; it has "
                        f"{', '.join(each.name for each in supported)}."
                    )
                found.append(Permission(operation, resource_type, name, pattern_type))
        return found
