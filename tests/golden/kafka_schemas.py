"""Apache Kafka's message schemas: those that kafka-python ships, and the missing ones from Kafka's protocol guide."""

from __future__ import annotations

from functools import cache
from typing import Any

from kafka.protocol.schemas import load_json

Json = dict[str, Any]
#: A header with key, kind, valid and flexible versions; name, type and versions of each field. ? is a field that may be
#: null, and is by default; = gives another default, and ~ is a field that older versions ignore.
BEYOND_KAFKA_PYTHON = {
    "ConsumerGroupHeartbeatRequest": """
68 request 0-1 0+
GroupId string 0+
MemberId string 0+
MemberEpoch int32 0+
InstanceId string 0+?
RackId string 0+?
RebalanceTimeoutMs int32 0+ =-1
SubscribedTopicNames []string 0+?
SubscribedTopicRegex string 1+?
ServerAssignor string 0+?
TopicPartitions []TopicPartitions 0+?
 TopicId uuid 0+
 Partitions []int32 0+""",
    "ConsumerGroupHeartbeatResponse": """
68 response 0-1 0+
ThrottleTimeMs int32 0+
ErrorCode int16 0+
ErrorMessage string 0+?
MemberId string 0+?
MemberEpoch int32 0+
HeartbeatIntervalMs int32 0+
Assignment Assignment 0+?
 TopicPartitions []TopicPartitions 0+
  TopicId uuid 0+
  Partitions []int32 0+""",
    "ConsumerGroupDescribeRequest": """
69 request 0-1 0+
GroupIds []string 0+
IncludeAuthorizedOperations bool 0+""",
    "ConsumerGroupDescribeResponse": """
69 response 0-1 0+
ThrottleTimeMs int32 0+
Groups []DescribedGroup 0+
 ErrorCode int16 0+
 ErrorMessage string 0+?
 GroupId string 0+
 GroupState string 0+
 GroupEpoch int32 0+
 AssignmentEpoch int32 0+
 AssignorName string 0+
 Members []Member 0+
  MemberId string 0+
  InstanceId string 0+?
  RackId string 0+?
  MemberEpoch int32 0+
  ClientId string 0+
  ClientHost string 0+
  SubscribedTopicNames []string 0+
  SubscribedTopicRegex string 0+?
  Assignment Assignment 0+
   TopicPartitions []TopicPartitions 0+
    TopicId uuid 0+
    TopicName string 0+
    Partitions []int32 0+
  TargetAssignment Assignment 0+
   TopicPartitions []TopicPartitions 0+
    TopicId uuid 0+
    TopicName string 0+
    Partitions []int32 0+
  MemberType int8 1+ =-1 ~
 AuthorizedOperations int32 0+ =-2147483648""",
}


@cache
def schema_of(name: str) -> Json:
    """The schema of a message, in the form of Kafka's JSON files."""
    if name not in BEYOND_KAFKA_PYTHON:
        schema: Json = load_json(name)
        return schema
    header, *lines = BEYOND_KAFKA_PYTHON[name].strip().splitlines()
    key, kind, valid, flexible = header.split()
    # The fields that are open at each depth; a line may be one level deeper than its parent.
    levels: list[list[Json]] = [[]]
    for line in lines:
        depth = len(line) - len(line.lstrip())
        del levels[depth + 1 :]
        if depth == len(levels):
            levels.append(levels[-1][-1].setdefault("fields", []))
        levels[-1].append(_field(line))
    return {
        "apiKey": int(key),
        "type": kind,
        "name": name,
        "validVersions": valid,
        "flexibleVersions": flexible,
        "fields": levels[0],
    }


def _field(line: str) -> Json:
    name, kind, versions, *extra = line.split()
    field: Json = {"name": name, "type": kind, "versions": versions.rstrip("?")}
    if versions.endswith("?"):
        field |= {"nullableVersions": field["versions"], "default": "null"}
    for word in extra:
        field |= {"ignorable": True} if word == "~" else {"default": word.removeprefix("=")}
    return field
