"""The target of a check: the options of a job, its topics, its name if it writes exactly once, and the permissions that
it needs: the table of docs/permissions.md.

Plain values, which are pickled to an executor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka_sink.common.acl import AclOperation, PatternType, ResourceType
from kafka_sink.formats.schema_text import SchemaText


@dataclass(frozen=True)
class ExactlyOnceTarget:
    """An exactly-once sink: its *name* is the prefix of its transactional ids and the name of its group.

    *transaction_timeout_ms* is the time-out that the user has set, or None. *two_phase* is True if transactions are to
    have none (KIP-939).
    """

    name: str
    progress_topic: str
    transaction_timeout_ms: int | None = None
    two_phase: bool = False


@dataclass(frozen=True)
class NewTopicTarget:
    """A topic that the job creates if it is missing; a *replication_factor* of None is the brokers' default."""

    name: str
    partitions: int
    replication_factor: int | None = None


@dataclass(frozen=True)
class SubjectTarget:
    """The subject of the schemas of *column* (``key`` or ``value``), of the type *kind* as registries name it.

    *schema* is the one that is written by, if it is known; *is_derived* from the column, or given. *earlier* are others
    that it gives way to if one of them is a version already.
    """

    name: str
    column: str
    kind: str | None = None
    schema: SchemaText | None = None
    is_derived: bool = False
    earlier: tuple[SchemaText, ...] = ()


@dataclass(frozen=True)
class RegistryTarget:
    """A schema registry: its options under Confluent's names, and the subjects that a job writes by."""

    # They may contain passwords.
    properties: Mapping[str, str] = field(repr=False)
    subjects: tuple[SubjectTarget, ...] = ()


@dataclass(frozen=True)
class CheckTarget:
    """*properties* are producer properties under Kafka's names; findings show them with *option_prefix*."""

    # They may contain passwords.
    properties: Mapping[str, Any] = field(repr=False)
    topics: tuple[str, ...] = ()
    exactly_once: ExactlyOnceTarget | None = None
    option_prefix: str = ""
    new_topics: tuple[NewTopicTarget, ...] = ()
    registry: RegistryTarget | None = None


class Permission(NamedTuple):
    """*operations* on the resources of a type that *name* and *pattern_type* select."""

    operations: tuple[AclOperation, ...]
    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


def needed(target: CheckTarget) -> list[Permission]:
    """The permissions that a principal needs to write as *target*, and no others; an operation implies others, as in
    Kafka. The job creates its *new_topics*."""
    new, sink = {each.name for each in target.new_topics}, target.exactly_once
    permissions = [
        Permission((AclOperation.WRITE, *([AclOperation.CREATE] if topic in new else [])), ResourceType.TOPIC, topic)
        for topic in dict.fromkeys(target.topics)
    ]
    if sink is None:
        return permissions
    return [
        *permissions,
        Permission((AclOperation.READ,), ResourceType.TOPIC, sink.progress_topic),
        Permission((AclOperation.WRITE,), ResourceType.TRANSACTIONAL_ID, sink.name, PatternType.PREFIXED),
        Permission((AclOperation.READ,), ResourceType.GROUP, sink.name),
    ]
