"""The permissions that a sink needs for each way to write, and no others: the table of docs/permissions.md.

Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafka_sink.common.acl import AclOperation, PatternType, ResourceType


class Permission(NamedTuple):
    """An operation on the resources of a type that *name* and *pattern_type* select."""

    operation: AclOperation
    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


@dataclass(frozen=True, slots=True)
class SinkTarget:
    """What a sink writes: *topics*, of dead letters too. *name* is that of an exactly-once sink
    (``transactionalIdPrefix``, ``txnAppId`` or ``app_id``), whose progress is kept with offsets of *progress_topic*
    (default: the first of *topics*); None is at least once. *creates* topics that are missing
    (``topicPartitions``)."""

    topics: Sequence[str]
    name: str | None = None
    progress_topic: str | None = None
    creates: bool = False


def needed(sink: SinkTarget) -> list[Permission]:
    """What a principal has to be allowed so that it can be this sink; an operation implies others, as in Kafka."""
    operations = (AclOperation.WRITE, AclOperation.CREATE) if sink.creates else (AclOperation.WRITE,)
    on_topics = [Permission(operation, ResourceType.TOPIC, topic) for topic in sink.topics for operation in operations]
    if sink.name is None:
        return on_topics
    return [
        *on_topics,
        Permission(AclOperation.READ, ResourceType.TOPIC, sink.progress_topic or sink.topics[0]),
        Permission(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, sink.name, PatternType.PREFIXED),
        Permission(AclOperation.READ, ResourceType.GROUP, sink.name),
    ]
