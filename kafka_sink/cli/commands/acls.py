"""``kafkalite acls``: lists, adds and removes access control lists (ACLs) of any cluster.

Runs on the main thread. It adds and removes nothing that it has not shown, and asks before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import click

from kafka_sink.cli import options, output
from kafka_sink.cli.commands.acl_choice import Choice, Principals, Resources, Roles
from kafka_sink.cli.group import CommandGroup
from kafka_sink.client.blocking.admin import AdminClient
from kafka_sink.common.acl import AclBinding, AclBindingFilter, AclOperation, PatternType

C = TypeVar("C", bound=Callable[..., Any])
T = TypeVar("T")

_COLUMNS: Final = ("principal", "host", "permission", "operation", "resource", "name", "pattern")


@click.group(cls=CommandGroup)
def acls() -> None:
    """List, add and remove access control lists (ACLs)."""


_PATTERN_TYPES: Final = {
    PatternType.LITERAL: "literal: the names are those of resources",
    PatternType.PREFIXED: "prefixed: they are the beginnings of names",
    PatternType.ANY: "any: both",
    PatternType.MATCH: "match: all ACLs that apply to a resource with this name",
}
_OPERATIONS: Final = {each.name.replace("_", ""): each for each in AclOperation if each.name not in ("UNKNOWN", "ANY")}


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


def _several(
    name: str, variable: str, metavar: str, text: str, callback: Callable[..., Any] | None = None
) -> Callable[[C], C]:
    text = f"{text}; may be repeated."
    return click.option(name, variable, metavar=metavar, multiple=True, callback=callback, help=text)


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
            _several("--transactional-id", "transactional_ids", "ID", "ACLs of this transactional id"),
            _several("--group", "groups", "GROUP", "ACLs of this consumer group"),
            _several("--topic", "topics", "TOPIC", "ACLs of this topic; * stands for all"),
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
        _several("--operation", "operations", "OPERATION", "Such as Read or Write. Default: All", _operations),
        _several("--deny-host", "deny_hosts", "HOST", "Address of those who are denied. Default: any"),
        _several("--allow-host", "allow_hosts", "HOST", "Address of those who are allowed. Default: any"),
        _several("--deny-principal", "denied", "TYPE:NAME", "Who is denied, such as User:bob", _principals),
        _several("--allow-principal", "allowed", "TYPE:NAME", "Who is allowed, such as User:alice", _principals),
    ):
        command = option(command)
    return command


def _taken(kind: Callable[..., T], given: dict[str, Any]) -> T:
    """An object of the dataclass *kind* from its options, which are taken out of *given*."""
    return kind(**{name: given.pop(name) for name in kind.__annotations__})


def _choice(given: dict[str, Any]) -> Choice:
    """What the options say that :func:`_resources` and :func:`_entries` added, which are taken out of *given*."""
    resources = _taken(Resources, given)
    return Choice(resources, _taken(Principals, given), given.pop("operations"), _taken(Roles, given))


def _connect(bootstrap_servers: str, timeout_ms: int, properties: dict[str, str]) -> AdminClient:
    return AdminClient(bootstrap_servers, {"default.api.timeout.ms": timeout_ms, **properties})


@acls.command("list")
@_several("--principal", "principals", "TYPE:NAME", "List only ACLs for this principal", _principals)
@_resources(PatternType.LITERAL, PatternType.PREFIXED, PatternType.ANY, PatternType.MATCH)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@options.connection
def list_(principals: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """List ACLs: all of them, or those of resources."""
    filters = _taken(Resources, given).filters()
    with _connect(**given) as admin:
        found = [acl for acl in _described(admin, filters) if not principals or acl.principal in principals]
    if as_json:
        output.print_json([dict(zip(_COLUMNS, _row(acl), strict=True)) for acl in found])
        return
    _show(found)


@acls.command()
@_entries
@_resources(PatternType.LITERAL, PatternType.PREFIXED)
@options.connection
def add(yes: bool, **given: Any) -> None:
    """Add ACLs, after a question. Those that exist already are left as they are."""
    wanted = _choice(given).acls()
    with _connect(**given) as admin:
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
def remove(yes: bool, **given: Any) -> None:
    """Remove ACLs, after a question: with the options of 'add' what that has added, and with resources only, all of
    their ACLs."""
    filters = _choice(given).filters()
    with _connect(**given) as admin:
        found = _described(admin, filters)
        if not found:
            output.line("nothing to remove: no ACL matches")
            return
        _show(found)
        _refuse_unknown(found)
        output.ask(f"Remove {_counted(found)}?", yes=yes)
        removed = admin.delete_acls(found)
    output.line(f"removed {_counted(removed)}")


def _described(admin: AdminClient, filters: Iterable[AclBindingFilter]) -> list[AclBinding]:
    """Each ACL that one of *filters* selects, once, sorted by resource."""
    found = {acl for wanted in filters for acl in admin.describe_acls(wanted)}
    return sorted(found, key=lambda acl: (acl.resource_type, acl.resource_name, acl.pattern_type, _row(acl)))


def _refuse_unknown(found: Iterable[AclBinding]) -> None:
    if any("UNKNOWN" in _row(acl)[2:5] or acl.pattern_type is PatternType.UNKNOWN for acl in found):
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


def _show(found: Iterable[AclBinding]) -> None:
    output.print_table(_COLUMNS, map(_row, found))


def _counted(found: list[AclBinding]) -> str:
    return "1 ACL" if len(found) == 1 else f"{len(found)} ACLs"
