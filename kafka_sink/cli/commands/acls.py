"""``kafkalite acls``: lists, adds and removes access control lists (ACLs) of any cluster.

Runs on the main thread. It adds and removes nothing that it has not shown, and asks before. The options mean what they
mean to kafka-acls; those of a sink are kafkalite's own.

Source: apache/kafka ``AclCommand``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click

from kafka_sink.cli import options, output
from kafka_sink.cli.output import CommandGroup
from kafka_sink.client.blocking.admin import AdminClient
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
C = TypeVar("C", bound=Callable[..., Any])
T = TypeVar("T")
_COLUMNS: Final = ("principal", "host", "permission", "operation", "resource", "name", "pattern")
_PATTERN_TYPES: Final = {
    PatternType.LITERAL: "literal: the names are those of resources",
    PatternType.PREFIXED: "prefixed: they are the beginnings of names",
    PatternType.ANY: "any: both",
    PatternType.MATCH: "match: all ACLs that apply to a resource with this name",
}
_OPERATIONS: Final = {each.name.replace("_", ""): each for each in AclOperation if each.name not in ("UNKNOWN", "ANY")}


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
        filters = [
            AclBindingFilter(resource_type=resource_type, resource_name=name, pattern_type=pattern_type)
            for resource_type, name, pattern_type in self
        ]
        return filters or [AclBindingFilter()]


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
        flags = [
            f"--{name.replace('_', '-')}"
            for name in ("producer", "consumer", "at_least_once", "exactly_once")
            if getattr(self, name)
        ]
        if self.is_sink and len(flags) > 1:
            raise click.UsageError(f"Give one of {' and '.join(flags)}.")
        if not resources.topics:
            raise click.UsageError(f"{flags[0]} needs --topic.")
        if self.consumer and not resources.groups:
            raise click.UsageError("--consumer needs --group.")
        if self.is_sink and resources != Resources(resources.topics):
            raise click.UsageError(
                f"{flags[0]} knows the resources of a sink: give --topic with the names of its topics only."
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
        bindings = [
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
        return list(dict.fromkeys(bindings))

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
        permissions = []
        for resource_type, name, pattern_type in self.resources:
            supported = (AclOperation.ALL, *SUPPORTED_OPERATIONS[resource_type])
            for operation in self.operations or (AclOperation.ALL,):
                if operation not in supported:
                    raise click.UsageError(
                        f"--operation {operation.name} does not exist for {resource_type.name}; it has "
                        f"{', '.join(each.name for each in supported)}."
                    )
                permissions.append(Permission(operation, resource_type, name, pattern_type))
        return permissions


@click.group(cls=CommandGroup)
def acls() -> None:
    """List, add and remove access control lists (ACLs)."""


def _operations(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[AclOperation, ...]:
    """Operations as kafka-acls writes them (DescribeConfigs), or as ACLs show them (DESCRIBE_CONFIGS)."""
    for text in texts:
        if text.upper().replace("_", "") not in _OPERATIONS:
            names = ", ".join(each.name for each in _OPERATIONS.values())
            raise click.BadParameter(f"{text!r} is not an operation; expected one of {names}.", context, parameter)
    return tuple(_OPERATIONS[text.upper().replace("_", "")] for text in texts)


def _principals(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        if not re.fullmatch("[^:]+:.+", text):
            raise click.BadParameter(f"{text!r} is not TYPE:NAME, such as User:alice.", context, parameter)
    return texts


def _resources(*pattern_types: PatternType) -> Callable[[C], C]:
    """Add the options that name resources; the command gets ``topics``, ``groups``, ``transactional_ids``, ``cluster``
    and ``pattern_type``."""

    def add(command: C) -> C:
        for option in (
            click.option(
                "--resource-pattern-type",
                "pattern_type",
                type=click.Choice([each.name.lower() for each in pattern_types], case_sensitive=False),
                default=PatternType.LITERAL.name.lower(),
                show_default=True,
                callback=lambda context, parameter, value: PatternType[value.upper()],
                help="; ".join(_PATTERN_TYPES[each] for each in pattern_types) + ".",
            ),
            click.option("--cluster", is_flag=True, help="ACLs of the cluster."),
            options.several("--transactional-id", "transactional_ids", "ACLs of this transactional id", metavar="ID"),
            options.several("--group", "groups", "ACLs of this consumer group", metavar="GROUP"),
            options.several("--topic", "topics", "ACLs of this topic; * stands for all", metavar="TOPIC"),
        ):
            command = option(command)
        return command

    return add


def _entries(command: C) -> C:
    """Add the options that say who may do what; the command gets them by their names in ``Principals`` and ``Roles``,
    and ``operations``."""
    for option in (
        click.option("--yes", is_flag=True, help="Do not ask."),
        click.option("--create-topics", is_flag=True, help="The sink creates missing topics (option topicPartitions)."),
        click.option(
            "--progress-topic",
            metavar="TOPIC",
            help="Topic of the sink's progress (option progressTopic). Default: the first --topic.",
        ),
        click.option(
            "--exactly-once",
            metavar="NAME",
            help="What an exactly-once sink needs to write to --topic, parallel or atomic, whose "
            "transactionalIdPrefix or txnAppId is NAME.",
        ),
        click.option("--at-least-once", is_flag=True, help="What an at-least-once sink needs to write to --topic."),
        click.option("--consumer", is_flag=True, help="READ and DESCRIBE on --topic, and READ on --group."),
        click.option(
            "--producer",
            is_flag=True,
            help="WRITE, DESCRIBE and CREATE on --topic, and WRITE and DESCRIBE on --transactional-id.",
        ),
        options.several(
            "--operation",
            "operations",
            "Such as Read or Write. Default: All",
            metavar="OPERATION",
            callback=_operations,
        ),
        options.several("--deny-host", "deny_hosts", "Address of those who are denied. Default: any", metavar="HOST"),
        options.several(
            "--allow-host", "allow_hosts", "Address of those who are allowed. Default: any", metavar="HOST"
        ),
        options.several(
            "--deny-principal", "denied", "Who is denied, such as User:bob", metavar="TYPE:NAME", callback=_principals
        ),
        options.several(
            "--allow-principal",
            "allowed",
            "Who is allowed, such as User:alice",
            metavar="TYPE:NAME",
            callback=_principals,
        ),
    ):
        command = option(command)
    return command


def _taken(kind: Callable[..., T], arguments: dict[str, Any]) -> T:
    """An object of the dataclass *kind* from its options, which are taken out of *arguments*."""
    return kind(**{name: arguments.pop(name) for name in kind.__annotations__})


def _choice(arguments: dict[str, Any]) -> Choice:
    """What the options say that :func:`_resources` and :func:`_entries` added, which are taken out of *arguments*."""
    resources = _taken(Resources, arguments)
    return Choice(resources, _taken(Principals, arguments), arguments.pop("operations"), _taken(Roles, arguments))


def _connect(connection: options.Connection) -> AdminClient:
    return AdminClient(connection.bootstrap_servers, connection.bounded)


@acls.command("list")
@options.several(
    "--principal", "principals", "List only ACLs for this principal", metavar="TYPE:NAME", callback=_principals
)
@_resources(PatternType.LITERAL, PatternType.PREFIXED, PatternType.ANY, PatternType.MATCH)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@options.connection
def list_(principals: tuple[str, ...], as_json: bool, **arguments: Any) -> None:
    """List ACLs: all of them, or those of resources."""
    filters = _taken(Resources, arguments).filters()
    with _connect(**arguments) as admin:
        bindings = [acl for acl in _described(admin, filters) if not principals or acl.principal in principals]
    rows = [_row(acl) for acl in bindings]
    output.show(as_json, [dict(zip(_COLUMNS, row, strict=True)) for row in rows], _COLUMNS, rows)


@acls.command()
@_entries
@_resources(PatternType.LITERAL, PatternType.PREFIXED)
@options.connection
def add(yes: bool, **arguments: Any) -> None:
    """Add ACLs, after a question. Those that exist already are left as they are."""
    wanted = _choice(arguments).acls()
    with _connect(**arguments) as admin:
        existing = set(_described(admin, [AclBindingFilter.of(acl) for acl in wanted]))
        missing = [acl for acl in wanted if acl not in existing]
        if not missing:
            output.line(f"nothing to add: {_counted(wanted)} existed already")
            return
        _show(missing)
        output.ask(f"Add {_counted(missing)}?", yes=yes)
        admin.create_acls(missing)
    output.line(f"added {_counted(missing)}" + (f", {len(existing)} existed already" if existing else ""))


@acls.command()
@_entries
@_resources(PatternType.LITERAL, PatternType.PREFIXED, PatternType.ANY, PatternType.MATCH)
@options.connection
def remove(yes: bool, **arguments: Any) -> None:
    """Remove ACLs, after a question: with the options of 'add' what that has added, and with resources only, all of
    their ACLs."""
    filters = _choice(arguments).filters()
    with _connect(**arguments) as admin:
        bindings = _described(admin, filters)
        if not bindings:
            output.line("nothing to remove: no ACL matches")
            return
        _show(bindings)
        _refuse_unknown(bindings)
        output.ask(f"Remove {_counted(bindings)}?", yes=yes)
        removed = admin.delete_acls(bindings)
    output.line(f"removed {_counted(removed)}")


def _described(admin: AdminClient, filters: Iterable[AclBindingFilter]) -> list[AclBinding]:
    """Each ACL that one of *filters* selects, once, sorted by resource."""
    bindings = {acl for wanted in filters for acl in admin.describe_acls(wanted)}
    return sorted(bindings, key=lambda acl: (acl.resource_type, acl.resource_name, acl.pattern_type, _row(acl)))


def _refuse_unknown(bindings: Iterable[AclBinding]) -> None:
    if any("UNKNOWN" in _row(acl)[2:5] or acl.pattern_type is PatternType.UNKNOWN for acl in bindings):
        raise click.ClickException(
            "an operation or a type of these ACLs is unknown to this version of kafkalite, so that it cannot name "
            "them: remove them with kafka-acls, or select others."
        )


def _row(acl: AclBinding) -> tuple[str, ...]:
    return (
        acl.principal,
        acl.host,
        acl.permission_type.name,
        acl.operation.name,
        acl.resource_type.name,
        acl.resource_name,
        acl.pattern_type.name,
    )


def _show(bindings: Iterable[AclBinding]) -> None:
    output.print_table(_COLUMNS, map(_row, bindings))


def _counted(bindings: list[AclBinding]) -> str:
    return "1 ACL" if len(bindings) == 1 else f"{len(bindings)} ACLs"
