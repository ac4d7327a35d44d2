"""Topics, settings, offsets and ACLs of a cluster, whichever broker it runs: :class:`AdminClient` and its values.

::

    with AdminClient("localhost:9092") as admin:
        admin.create_topics([NewTopic("orders", partitions=6)])
"""

from __future__ import annotations

from kafka_sink.client.blocking.admin import EARLIEST, LATEST, AdminClient, NewTopic, TopicDescription
from kafka_sink.client.requests.admin_requests import ConfigValue
from kafka_sink.common.acl import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from kafka_sink.common.model import TopicPartition

__all__ = [
    "EARLIEST",
    "LATEST",
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermissionType",
    "AdminClient",
    "ConfigValue",
    "NewTopic",
    "PatternType",
    "ResourceType",
    "TopicDescription",
    "TopicPartition",
]
