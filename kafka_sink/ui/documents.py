"""Topics and consumer groups as documents, for the pages and the command line: the offsets of both, and the sinks among
the groups.

It only sends requests that read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka_sink.client.blocking.admin import EARLIEST, LATEST, AdminClient
from kafka_sink.client.blocking.group_admin import GroupAdmin, GroupDescription, GroupMember
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.errors import ApiError, AuthenticationError, BrokersUnreachableError
from kafka_sink.common.model import OffsetAndMetadata, TopicPartition
from kafka_sink.exactly_once.progress import latest_batch


def topic_documents(admin: AdminClient, names: Sequence[str]) -> list[dict[str, Any]]:
    """Each of the topics with its partitions; their offsets are None if no leader has returned them.

    :raises UnknownTopicOrPartitionError: if a topic does not exist.
    :raises ApiError: if no broker can be reached, or they refuse this client.
    """
    described = admin.describe_topics(names)
    # Only a leader has the offsets: a request for a partition without a leader would take the complete time-out.
    led = [info.topic_partition for topic in described.values() for info in topic.partitions if info.leader]
    first = admin.offsets(led, EARLIEST, known_only=True)
    # A second request to a leader that has not answered would take the complete time-out again.
    end = admin.offsets(first, LATEST, known_only=True)
    return [
        {
            "topic": topic.name,
            "topic_id": None if topic.topic_id is None else str(topic.topic_id),
            "internal": topic.is_internal,
            "partitions": [
                {
                    "partition": info.partition,
                    "leader": None if info.leader is None else info.leader.id,
                    "replicas": [node.id for node in info.replicas],
                    "isr": [node.id for node in info.isr],
                    "first_offset": first.get(info.topic_partition),
                    "end_offset": end.get(info.topic_partition),
                }
                for info in topic.partitions
            ],
        }
        for topic in described.values()
    ]


def sinks_of(committed: Mapping[TopicPartition, OffsetAndMetadata]) -> list[dict[str, Any]]:
    """The topics whose offsets in the group are the progress of a sink, with its last batch."""
    first = {partition.topic: offset for partition, offset in committed.items() if partition.partition == 0}
    now_s = SYSTEM_CLOCK.wall_ms() // 1000
    return [
        {
            "topic": topic,
            "last_batch": batch.version,
            "writer": batch.writer,
            "decided_s": batch.decided_s,
            # The clock of the driver may be ahead.
            "age_s": max(now_s - batch.decided_s, 0),
        }
        for topic, offset in first.items()
        if (batch := latest_batch(offset)) is not None
    ]


def group_documents(groups: GroupAdmin, topics: AdminClient, names: Sequence[str]) -> list[dict[str, Any]]:
    """Each of the groups with its partitions: committed offset, lag by the end offsets that *topics* reads, member; a
    sink has no lag. The document of a group that cannot be read has the problem.

    :raises ApiError: if no broker can be reached, or they refuse this client.
    """
    read: list[tuple[GroupDescription, Mapping[TopicPartition, OffsetAndMetadata], str]] = []
    for name in names:
        try:
            read.append((groups.describe(name), groups.committed(name), ""))
        except (BrokersUnreachableError, AuthenticationError):
            raise
        except ApiError as error:
            read.append((GroupDescription(name, "unknown", "", -1, ()), {}, str(error)))
    # Assignments may contain any partition, because members write them, and a topic may have been deleted.
    partitions = {part for group, committed, _ in read for part in (*committed, *_members_by_partition(group))}
    ends = topics.offsets(partitions, LATEST, known_only=True) if partitions else {}
    return [_group_document(group, committed, ends, problem) for group, committed, problem in read]


def _members_by_partition(group: GroupDescription) -> dict[TopicPartition, GroupMember]:
    return {partition: member for member in group.members for partition in member.partitions}


def _group_document(
    group: GroupDescription,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    ends: Mapping[TopicPartition, int],
    problem: str,
) -> dict[str, Any]:
    members = _members_by_partition(group)
    sinks = sinks_of(committed)
    without_lag = {sink["topic"] for sink in sinks}
    entries = []
    for partition in sorted({*committed, *members}):
        offset = committed[partition].offset if partition in committed else None
        end = None if partition.topic in without_lag else ends.get(partition)
        member = members.get(partition)
        entries.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": offset,
                "end_offset": end,
                "lag": None if offset is None or end is None else max(end - offset, 0),
                "member": None if member is None else member.member_id,
                "client": None if member is None else member.client_id,
                "host": None if member is None else member.host,
            }
        )
    return {
        "group": group.group_id,
        "state": group.state,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "members": len(group.members),
        "sinks": sinks,
        "partitions": entries,
        "problem": problem,
    }
