"""The request for the committed offsets of a consumer group, and the parsing of its answer.

A pure value, see :mod:`outcomes`; its sender decides what follows from the outcome.

Source: OffsetFetch; KIP-447 (stable offsets), KIP-709 (groups in one request), KIP-848 (groups that do not exist).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from kafka_sink.client.requests.outcomes import CoordinatorKey, CoordinatorRequest, Done, Errors
from kafka_sink.common.errors import ErrorCode, error_for
from kafka_sink.common.model import OffsetAndMetadata, TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from kafka_sink.protocol.messages.metadata import GROUP
from kafka_sink.protocol.schema import Struct

#: The next version identifies topics by id, which this client does not use.
OFFSETS_MAX_VERSION: Final = 9

#: The first version that can wait for transactions, and the first with several groups.
_STABLE_VERSION: Final = 7
_GROUPS_VERSION: Final = 8

Offsets: TypeAlias = dict[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True)
class OffsetFetch(CoordinatorRequest[Offsets]):
    """Fetches the committed offsets of a group; partitions without an offset are omitted.

    :param topics: the partitions of each topic; None for all offsets of the group.
    :param waits_for_transactions: wait for the end of transactions that would change the offsets. Old brokers cannot
        wait and answer at once.
    :param refuses_old_brokers: never ask a broker that cannot wait.
    """

    api_key = ApiKey.OFFSET_FETCH

    group_id: str
    topics: Mapping[str, Sequence[int]] | None
    waits_for_transactions: bool = True
    refuses_old_brokers: bool = False

    @property
    def coordinator(self) -> CoordinatorKey:
        return GROUP, self.group_id

    @property
    def max_version(self) -> int:
        return OFFSETS_MAX_VERSION

    def build(self, version: int) -> Struct:
        if self.refuses_old_brokers and version < _STABLE_VERSION:
            raise error_for(
                ErrorCode.UNSUPPORTED_VERSION, "OffsetFetch with require_stable needs brokers of version 2.5 or newer"
            )
        require_stable = self.waits_for_transactions and version >= _STABLE_VERSION
        partitions = None if self.topics is None else [(name, list(indexes)) for name, indexes in self.topics.items()]
        if version >= _GROUPS_VERSION:
            topics = (
                None
                if partitions is None
                else [OffsetFetchRequestTopics(name=name, partition_indexes=each) for name, each in partitions]
            )
            group = OffsetFetchRequestGroup(group_id=self.group_id, topics=topics)
            return OffsetFetchRequest(groups=[group], require_stable=require_stable)
        older = (
            None
            if partitions is None
            else [OffsetFetchRequestTopic(name=name, partition_indexes=each) for name, each in partitions]
        )
        return OffsetFetchRequest(group_id=self.group_id, topics=older, require_stable=require_stable)

    def read(self, body: Struct) -> Done[Offsets] | Errors[Offsets]:
        response = self._expect(body, OffsetFetchResponse)
        answer: Any = response.groups[0] if response.groups else response
        if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            # Some coordinators say so of a group without offsets, as KIP-848 permits; Kafka answers without any.
            return Done({})
        parts = {
            TopicPartition(topic.name, part.partition_index): part
            for topic in answer.topics
            for part in topic.partitions
        }
        codes = [
            ErrorCode.of(code) for code in (answer.error_code, *(part.error_code for part in parts.values())) if code
        ]
        if codes:
            return Errors(codes, f"the offsets of the group {self.group_id!r} could not be fetched")
        return Done(
            {
                partition: OffsetAndMetadata(part.committed_offset, part.metadata or "")
                for partition, part in parts.items()
                if part.committed_offset >= 0
            }
        )
