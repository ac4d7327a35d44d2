"""The requests of a transaction: how they are built, and what their answers contain.

The transactional producer and the driver of exactly-once writes send the same requests; each processes outcomes in
its own way (see :mod:`outcomes`). Pure values: they are built from plain values, hold no state, and may be sent again.

Source: InitProducerId (KIP-360, KIP-939), AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn (KIP-98);
KIP-447 (members of groups), KIP-890 (transaction version 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, TypeVar

from kafka_sink.client.requests.outcomes import CoordinatorKey, CoordinatorRequest, Done, Errors
from kafka_sink.common.errors import ErrorCode, UnsupportedVersionError
from kafka_sink.common.model import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    ProducerIdAndEpoch,
    TopicPartition,
    TransactionVersion,
)
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import group_offsets
from kafka_sink.protocol.messages import transactions as m
from kafka_sink.protocol.messages.metadata import GROUP, TRANSACTION
from kafka_sink.protocol.schema import Struct

T = TypeVar("T")

#: The first InitProducerId version with the expected id and epoch (KIP-360).
INIT_PRODUCER_ID_BUMP_VERSION: Final = 3

#: The version with two-phase commit (KIP-939), which brokers offer only with unstable API versions; without two-phase
#: commit the one before it is used.
TWO_PHASE_VERSION: Final = 6

#: The option of producers, and the setting of brokers that permits it.
TWO_PHASE_SETTING: Final = "transaction.two.phase.commit.enable"

#: The broker settings and the permission that two-phase commit requires.
TWO_PHASE_NEEDS: Final = (
    "two-phase commit (transaction.two.phase.commit.enable=true) needs brokers with the settings "
    "transaction.two.phase.commit.enable=true and unstable.api.versions.enable=true (Apache Kafka 4.3 or newer), and, "
    "if they have an authorizer, the operation TWO_PHASE_COMMIT on the transactional id"
)

#: AddPartitionsToTxn from version 4 on is for brokers only.
_ADD_PARTITIONS_MAX_VERSION: Final = 3

#: Before this version of TxnOffsetCommit the coordinator does not check the member of the group.
_COMMIT_WITH_MEMBER_VERSION: Final = 3


@dataclass(frozen=True)
class InitProducerId(CoordinatorRequest[ProducerIdAndEpoch]):
    """Requests a producer id and epoch; without a transactional id any broker assigns them.

    With a transactional id, the previous producer is fenced and its open transaction is aborted. With *expected*, the
    request succeeds only if that is still the current producer of the id. With *two_phase*, the id's transactions never
    time out (KIP-939); the time-out is ignored then.
    """

    api_key = ApiKey.INIT_PRODUCER_ID

    transactional_id: str | None
    transaction_timeout_ms: int
    expected: ProducerIdAndEpoch | None = None
    two_phase: bool = False

    @property
    def coordinator(self) -> CoordinatorKey | None:
        return None if self.transactional_id is None else (TRANSACTION, self.transactional_id)

    @property
    def max_version(self) -> int:
        return TWO_PHASE_VERSION if self.two_phase else TWO_PHASE_VERSION - 1

    def build(self, version: int) -> Struct:
        if self.two_phase and version < TWO_PHASE_VERSION:
            raise UnsupportedVersionError(f"{TWO_PHASE_NEEDS}: this broker does not offer it")
        request = m.InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self.transaction_timeout_ms
        )
        if self.expected is not None and version >= INIT_PRODUCER_ID_BUMP_VERSION:
            request.producer_id, request.producer_epoch = self.expected
        request.enable2_pc = self.two_phase
        return request

    def read(self, body: Struct) -> Done[ProducerIdAndEpoch] | Errors[ProducerIdAndEpoch]:
        response = self._expect(body, m.InitProducerIdResponse)
        producer = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        return self._read_code(response.error_code, producer, self.failure)

    @property
    def failure(self) -> str:
        """The text of the error if no id is returned."""
        if self.transactional_id is None:
            return "no producer id was assigned, so nothing can be sent"
        if self.two_phase:
            return f"no producer id was assigned for transactional.id {self.transactional_id!r}: {TWO_PHASE_NEEDS}"
        return f"no producer id was assigned for transactional.id {self.transactional_id!r}"


@dataclass(frozen=True)
class _TransactionRequest(CoordinatorRequest[T]):
    """A request about the transaction of *producer*, to the coordinator of its id."""

    transactional_id: str
    producer: ProducerIdAndEpoch

    @property
    def coordinator(self) -> CoordinatorKey:
        return TRANSACTION, self.transactional_id


@dataclass(frozen=True)
class AddPartitionsToTxn(_TransactionRequest[None]):
    """Adds *partitions* to the transaction before they are written to (version 1)."""

    api_key = ApiKey.ADD_PARTITIONS_TO_TXN

    partitions: frozenset[TopicPartition]

    @property
    def max_version(self) -> int:
        return _ADD_PARTITIONS_MAX_VERSION

    def build(self, version: int) -> Struct:
        return m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer.producer_id,
            v3_and_below_producer_epoch=self.producer.epoch,
            v3_and_below_topics=[
                m.AddPartitionsToTxnTopic(name=topic, partitions=[partition.partition for partition in partitions])
                for topic, partitions in groupby(sorted(self.partitions), lambda partition: partition.topic)
            ],
        )

    def read(self, body: Struct) -> Done[None] | Errors[None]:
        failed = {
            TopicPartition(topic.name, result.partition_index): ErrorCode.of(result.partition_error_code)
            for topic in self._expect(body, m.AddPartitionsToTxnResponse).results_by_topic_v3_and_below
            for result in topic.results_by_partition
            if result.partition_error_code
        }
        if not failed:
            return Done(None)
        return Errors(failed.values(), f"partitions could not be added to the transaction: {_texts(failed)}")


@dataclass(frozen=True)
class AddOffsetsToTxn(_TransactionRequest[None]):
    """Adds a group to the transaction before its offsets are committed (version 1); TxnOffsetCommit follows."""

    api_key = ApiKey.ADD_OFFSETS_TO_TXN

    group_id: str

    def build(self, version: int) -> Struct:
        return m.AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            group_id=self.group_id,
        )

    def read(self, body: Struct) -> Done[None] | Errors[None]:
        code = self._expect(body, m.AddOffsetsToTxnResponse).error_code
        return self._read_code(code, None, f"the group {self.group_id!r} could not be added to the transaction")


#: The first version of TxnOffsetCommit and of EndTxn in transaction version 2; older ones belong to version 1.
_FIRST_OF_VERSION_2: Final = 5


@dataclass(frozen=True)
class _VersionedRequest(_TransactionRequest[T]):
    """A request whose version determines the version of the transaction."""

    transaction_version: TransactionVersion

    @property
    def max_version(self) -> int | None:
        return None if self.transaction_version is TransactionVersion.V2 else _FIRST_OF_VERSION_2 - 1

    def _require_version(self, version: int) -> None:
        if self.transaction_version is TransactionVersion.V2 and version < _FIRST_OF_VERSION_2:
            raise UnsupportedVersionError(
                "the cluster runs transaction.version 2, but this broker supports "
                f"{self.api_key.name} only up to version {version}"
            )


@dataclass(frozen=True)
class TxnOffsetCommit(_VersionedRequest[None]):
    """Commits *offsets* of *group* within the transaction; they take effect when it is committed. Offsets that the
    group's coordinator did not accept are sent again, without those that it accepted."""

    api_key = ApiKey.TXN_OFFSET_COMMIT

    group: ConsumerGroupMetadata
    offsets: Mapping[TopicPartition, OffsetAndMetadata]

    @property
    def coordinator(self) -> CoordinatorKey:
        return GROUP, self.group.group_id

    def build(self, version: int) -> Struct:
        self._require_version(version)
        request = group_offsets.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group.group_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            topics=[
                group_offsets.TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        group_offsets.TxnOffsetCommitRequestPartition(
                            partition_index=partition.partition,
                            committed_offset=offset.offset,
                            committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
                            committed_metadata=offset.metadata,
                        )
                        for partition, offset in items
                    ],
                )
                for topic, items in groupby(sorted(self.offsets.items()), lambda item: item[0].topic)
            ],
        )
        if version >= _COMMIT_WITH_MEMBER_VERSION:
            request.generation_id = self.group.generation_id
            request.member_id = self.group.member_id
            request.group_instance_id = self.group.group_instance_id
        return request

    def read(self, body: Struct) -> Done[None] | Errors[None]:
        answered = {
            TopicPartition(topic.name, answer.partition_index): ErrorCode.of(answer.error_code)
            for topic in self._expect(body, group_offsets.TxnOffsetCommitResponse).topics
            for answer in topic.partitions
        }
        failed = {partition: code for partition, code in answered.items() if code}
        left = {
            partition: offset
            for partition, offset in self.offsets.items()
            if partition in failed or partition not in answered
        }
        if not left and not failed:
            return Done(None)
        detail = f"offsets of the group {self.group.group_id!r} could not be committed: {_texts(failed)}"
        if ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in failed.values():
            detail += " (create that topic or partition, or omit its offset)"
        return Errors(failed.values(), detail, rest=replace(self, offsets=left))


@dataclass(frozen=True)
class EndTxn(_VersionedRequest[ProducerIdAndEpoch]):
    """Commits or aborts the transaction. In version 2 the answer contains the identity for the next one; otherwise the
    identity that is read is not valid."""

    api_key = ApiKey.END_TXN

    commits: bool

    def build(self, version: int) -> Struct:
        self._require_version(version)
        return m.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            committed=self.commits,
        )

    def read(self, body: Struct) -> Done[ProducerIdAndEpoch] | Errors[ProducerIdAndEpoch]:
        response = self._expect(body, m.EndTxnResponse)
        following = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        what = "committed" if self.commits else "aborted"
        return self._read_code(response.error_code, following, f"the transaction could not be {what}")


def _texts(codes: Mapping[TopicPartition, ErrorCode]) -> str:
    return ", ".join(f"{partition}: {code.name}" for partition, code in sorted(codes.items()))
