"""What the committed offsets of a group say: how far consumers are behind, or which batch a sink wrote last.

Functions on the calling thread. A group that cannot be read is a document with its problem, beside the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka_sink.client.blocking.admin import LATEST, AdminClient
from kafka_sink.client.blocking.group_admin import GroupAdmin, GroupDescription
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.errors import ApiError, AuthenticationError, BrokersUnreachableError
from kafka_sink.common.model import OffsetAndMetadata, TopicPartition
from kafka_sink.exactly_once.progress import latest_batch


def sinks_of(committed: Mapping[TopicPartition, OffsetAndMetadata]) -> list[dict[str, Any]]:
    """The topics whose offsets in the group are the progress of a sink, with its last batch."""
    batches = {place.topic: latest_batch(each) for place, each in committed.items() if place.partition == 0}
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
        for topic, batch in batches.items()
        if batch is not None
    ]


def group_documents(groups: GroupAdmin, topics: AdminClient, names: Sequence[str]) -> list[dict[str, Any]]:
    """:func:`group_document` of each of *names*, with the end offsets that *topics* knows.

    :raises ApiError: if no broker can be reached, or they refuse this client.
    """
    read: dict[str, tuple[GroupDescription, dict[TopicPartition, OffsetAndMetadata]]] = {}
    problems: dict[str, str] = {}
    for name in names:
        try:
            read[name] = groups.describe(name), groups.committed(name)
        except (BrokersUnreachableError, AuthenticationError):
            raise
        except ApiError as error:
            problems[name] = str(error)
    # Members assign themselves what they like, and topics come and go.
    wanted = {place for group, committed in read.values() for place in (*committed, *assigned_of(group))}
    ends = topics.offsets(wanted, LATEST, known_only=True) if wanted else {}
    documents = {name: group_document(group, committed, ends) for name, (group, committed) in read.items()}
    for name, problem in problems.items():
        documents[name] = group_document(GroupDescription(name, "unknown", "", -1, ()), {}, {}, problem)
    return [documents[name] for name in names]


def assigned_of(group: GroupDescription) -> dict[TopicPartition, int]:
    """Each assigned partition and the index of its member."""
    return {place: number for number, member in enumerate(group.members) for place in member.partitions}


def group_document(
    group: GroupDescription,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    ends: Mapping[TopicPartition, int],
    problem: str = "",
) -> dict[str, Any]:
    """The group with each of its partitions: committed offset, lag, member; a sink has no lag. *ends* are the end
    offsets of the partitions that exist, and *problem* is why the group could not be read."""
    assigned = assigned_of(group)
    sinks = sinks_of(committed)
    without_lag = {sink["topic"] for sink in sinks}
    entries = []
    for place in sorted({*committed, *assigned}):
        at = committed[place].offset if place in committed else None
        end = None if place.topic in without_lag else ends.get(place)
        member = group.members[assigned[place]] if place in assigned else None
        entries.append(
            {
                "topic": place.topic,
                "partition": place.partition,
                "offset": at,
                "end_offset": end,
                "lag": None if at is None or end is None else max(end - at, 0),
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
