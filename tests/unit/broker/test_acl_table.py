"""Every API of the broker without one of its permissions: the code of Kafka, nothing done, nothing disclosed.

Each row of the table has the permissions that a request needs. The request is sent with all of them, then once without
each: without an ACL for it, and with an ACL that denies it.

Source: apache/kafka ``KafkaApis`` and ``ControllerApis``, and the table of operations in Kafka's documentation
(security, "Operations and Resources on Protocols").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import pytest

from kafka_sink.broker.handlers.dispatch import HANDLERS
from kafka_sink.broker.network.request_channel import SendResponse
from kafka_sink.broker.security_config import AUTHORIZER
from kafka_sink.common.acl import CLUSTER_NAME, AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from kafka_sink.common.acl import ResourceType as Resource
from kafka_sink.common.errors import ErrorCode
from kafka_sink.common.model import TopicPartition
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.messages import (
    acls,
    client_quotas,
    configs,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_records,
    fetch,
    find_coordinator,
    group_admin,
    group_members,
    group_offsets,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
    replicas,
    topics,
    transaction_admin,
    transactions,
    user_scram_credentials,
)
from kafka_sink.protocol.messages import cluster as nodes
from kafka_sink.protocol.schema import Struct
from tests.fakes.broker_node import BrokerNode
from tests.fakes.record_batches import make_batch
from tests.support.cases import with_each

#: These need no permission: they come before it is known who asks.
FREE: Final = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
CODES: Final = {
    Resource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Resource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Resource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Resource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
SECRET: Final = b"SECRET"
TOPIC_CONFIG, BROKER_CONFIG = 2, 4

Need = tuple[AclOperation, Resource, str]


def topic(operation: AclOperation, name: str = "t") -> Need:
    return (operation, Resource.TOPIC, name)


def group(operation: AclOperation) -> Need:
    return (operation, Resource.GROUP, "g")


def transaction(operation: AclOperation) -> Need:
    return (operation, Resource.TRANSACTIONAL_ID, "x")


def cluster(operation: AclOperation) -> Need:
    return (operation, Resource.CLUSTER, CLUSTER_NAME)


@dataclass(frozen=True)
class Row:
    """A request with what it needs.

    :param shows: what the answer has only if everything is permitted.
    :param hides: without the permission there is no code, but the answer omits *shows*.
    """

    key: ApiKey
    version: int
    body: Struct
    needs: tuple[Need, ...]
    shows: bytes = b""
    hides: bool = False


def produced(transactional_id: str | None = None, **sequence: Any) -> Struct:
    data = [produce.PartitionProduceData(0, make_batch([b"new"], **sequence))]
    return produce.ProduceRequest(transactional_id, -1, 1000, [produce.TopicProduceData("t", partition_data=data)])


def altered(kind: int, name: str, key: str, value: str) -> list[Row]:
    need = topic(AclOperation.ALTER_CONFIGS) if kind == TOPIC_CONFIG else cluster(AclOperation.ALTER_CONFIGS)
    increments = [configs.IncrementalAlterableConfig(key, 0, value)]
    increment = configs.IncrementalAlterConfigsResource(kind, name, increments)
    whole = configs.AlterConfigsResource(kind, name, [configs.AlterableConfig(key, value)])
    return [
        Row(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            configs.IncrementalAlterConfigsRequest([increment]),
            (need,),
        ),
        Row(ApiKey.ALTER_CONFIGS, 2, configs.AlterConfigsRequest([whole]), (need,)),
    ]


ROWS: Final = [
    Row(ApiKey.PRODUCE, 9, produced(), (topic(AclOperation.WRITE),)),
    Row(
        ApiKey.PRODUCE,
        9,
        produced("x", is_transactional=True, producer_id=0, producer_epoch=0, base_sequence=0),
        (transaction(AclOperation.WRITE), topic(AclOperation.WRITE)),
    ),
    Row(
        ApiKey.FETCH,
        12,
        fetch.FetchRequest(topics=[fetch.FetchTopic("t", partitions=[fetch.FetchPartition(0)])]),
        (topic(AclOperation.READ),),
        SECRET,
    ),
    Row(
        ApiKey.LIST_OFFSETS,
        7,
        list_offsets.ListOffsetsRequest(
            topics=[list_offsets.ListOffsetsTopic("t", [list_offsets.ListOffsetsPartition(0, timestamp=-1)])]
        ),
        (topic(AclOperation.DESCRIBE),),
    ),
    Row(
        ApiKey.DELETE_RECORDS,
        2,
        delete_records.DeleteRecordsRequest(
            [delete_records.DeleteRecordsTopic("t", [delete_records.DeleteRecordsPartition(0, 1)])]
        ),
        (topic(AclOperation.DELETE),),
    ),
    Row(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            topics=[
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    "t", [offset_for_leader_epoch.OffsetForLeaderPartition(0, -1, 0)]
                )
            ]
        ),
        (topic(AclOperation.DESCRIBE),),
    ),
    Row(
        ApiKey.METADATA,
        9,
        metadata.MetadataRequest([metadata.MetadataRequestTopic(name="t")]),
        (topic(AclOperation.DESCRIBE),),
    ),
    Row(ApiKey.METADATA, 9, metadata.MetadataRequest(None), (topic(AclOperation.DESCRIBE),), b"\2t", hides=True),
    Row(
        ApiKey.METADATA,
        9,
        metadata.MetadataRequest([metadata.MetadataRequestTopic(name="new")], allow_auto_topic_creation=True),
        (topic(AclOperation.DESCRIBE, "new"), topic(AclOperation.CREATE, "new")),
    ),
    Row(
        ApiKey.FIND_COORDINATOR,
        3,
        find_coordinator.FindCoordinatorRequest("g", 0),
        (group(AclOperation.DESCRIBE),),
        b"127.0.0.1",
    ),
    Row(
        ApiKey.FIND_COORDINATOR,
        6,
        find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]),
        (transaction(AclOperation.DESCRIBE),),
        b"127.0.0.1",
    ),
    Row(
        ApiKey.JOIN_GROUP,
        3,
        group_members.JoinGroupRequest(
            "g", 10_000, 10_000, protocol_type="consumer", protocols=[group_members.JoinGroupRequestProtocol("range")]
        ),
        (group(AclOperation.READ),),
    ),
    Row(ApiKey.SYNC_GROUP, 3, group_members.SyncGroupRequest("g", 1, "m"), (group(AclOperation.READ),)),
    Row(ApiKey.HEARTBEAT, 3, group_members.HeartbeatRequest("g", 1, "m"), (group(AclOperation.READ),)),
    Row(
        ApiKey.LEAVE_GROUP,
        4,
        group_members.LeaveGroupRequest("g", members=[group_members.MemberIdentity("m")]),
        (group(AclOperation.READ),),
    ),
    Row(
        ApiKey.OFFSET_COMMIT,
        8,
        group_offsets.OffsetCommitRequest(
            "g",
            topics=[
                group_offsets.OffsetCommitRequestTopic(
                    "t", partitions=[group_offsets.OffsetCommitRequestPartition(0, 1)]
                )
            ],
        ),
        (group(AclOperation.READ), topic(AclOperation.READ)),
    ),
    Row(
        ApiKey.OFFSET_FETCH,
        7,
        group_offsets.OffsetFetchRequest("g", [group_offsets.OffsetFetchRequestTopic("t", [0])]),
        (group(AclOperation.DESCRIBE), topic(AclOperation.DESCRIBE)),
        SECRET,
    ),
    Row(
        ApiKey.OFFSET_FETCH,
        7,
        group_offsets.OffsetFetchRequest("g", None),
        (topic(AclOperation.DESCRIBE),),
        SECRET,
        hides=True,
    ),
    Row(
        ApiKey.OFFSET_DELETE,
        0,
        group_offsets.OffsetDeleteRequest(
            "g", [group_offsets.OffsetDeleteRequestTopic("t", [group_offsets.OffsetDeleteRequestPartition(0)])]
        ),
        (group(AclOperation.DELETE), topic(AclOperation.READ)),
    ),
    Row(
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        group_offsets.TxnOffsetCommitRequest(
            "x",
            "g",
            topics=[
                group_offsets.TxnOffsetCommitRequestTopic("t", [group_offsets.TxnOffsetCommitRequestPartition(0, 1)])
            ],
        ),
        (transaction(AclOperation.WRITE), group(AclOperation.READ), topic(AclOperation.READ)),
    ),
    Row(
        ApiKey.DESCRIBE_GROUPS,
        5,
        group_admin.DescribeGroupsRequest(["g"]),
        (group(AclOperation.DESCRIBE),),
        b"Empty",
    ),
    Row(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            "g", "m", 0, rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
        ),
        (group(AclOperation.READ), topic(AclOperation.DESCRIBE)),
        b"\2m",
    ),
    Row(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        1,
        consumer_group_describe.ConsumerGroupDescribeRequest(["g"], include_authorized_operations=False),
        (group(AclOperation.DESCRIBE),),
        b"is not a consumer group",
    ),
    Row(ApiKey.LIST_GROUPS, 4, group_admin.ListGroupsRequest(), (group(AclOperation.DESCRIBE),), b"\2g", hides=True),
    Row(ApiKey.DELETE_GROUPS, 2, group_admin.DeleteGroupsRequest(["g"]), (group(AclOperation.DELETE),)),
    Row(
        ApiKey.CREATE_TOPICS,
        4,
        # Version 4 does not describe the new topic's settings.
        topics.CreateTopicsRequest([topics.CreatableTopic("new", 1, 1)]),
        (topic(AclOperation.CREATE, "new"),),
    ),
    Row(
        ApiKey.CREATE_TOPICS,
        7,
        topics.CreateTopicsRequest([topics.CreatableTopic("new", 1, 1)], validate_only=True),
        (topic(AclOperation.CREATE, "new"), topic(AclOperation.DESCRIBE_CONFIGS, "new")),
    ),
    Row(
        ApiKey.DELETE_TOPICS,
        6,
        topics.DeleteTopicsRequest([topics.DeleteTopicState("t")]),
        (topic(AclOperation.DELETE),),
    ),
    Row(
        ApiKey.INIT_PRODUCER_ID,
        4,
        init_producer_id.InitProducerIdRequest(None, 60_000),
        (cluster(AclOperation.IDEMPOTENT_WRITE),),
    ),
    Row(
        ApiKey.INIT_PRODUCER_ID,
        6,
        init_producer_id.InitProducerIdRequest("x", 60_000, enable2_pc=True),
        (transaction(AclOperation.WRITE), transaction(AclOperation.TWO_PHASE_COMMIT)),
    ),
    Row(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        transactions.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_topics=[transactions.AddPartitionsToTxnTopic("t", [0])],
        ),
        (transaction(AclOperation.WRITE), topic(AclOperation.WRITE)),
    ),
    Row(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        5,
        transactions.AddPartitionsToTxnRequest(
            [transactions.AddPartitionsToTxnTransaction("x", topics=[transactions.AddPartitionsToTxnTopic("t", [0])])]
        ),
        (cluster(AclOperation.CLUSTER_ACTION),),
    ),
    Row(
        ApiKey.ADD_OFFSETS_TO_TXN,
        3,
        transactions.AddOffsetsToTxnRequest("x", group_id="g"),
        (transaction(AclOperation.WRITE), group(AclOperation.READ)),
    ),
    Row(ApiKey.END_TXN, 3, transactions.EndTxnRequest("x", committed=True), (transaction(AclOperation.WRITE),)),
    *(
        Row(
            ApiKey.WRITE_TXN_MARKERS,
            1,
            transaction_admin.WriteTxnMarkersRequest(
                [
                    transaction_admin.WritableTxnMarker(
                        0, 0, True, [transaction_admin.WritableTxnMarkerTopic("t", [0])], 0
                    )
                ]
            ),
            (cluster(operation),),
        )
        for operation in (AclOperation.CLUSTER_ACTION, AclOperation.ALTER)
    ),
    Row(
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        transaction_admin.DescribeProducersRequest([transaction_admin.TopicRequest("t", [0])]),
        (topic(AclOperation.READ),),
    ),
    Row(
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        transaction_admin.DescribeTransactionsRequest(["x"]),
        (transaction(AclOperation.DESCRIBE),),
        b"Ongoing",
    ),
    Row(
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        transaction_admin.DescribeTransactionsRequest(["x"]),
        (topic(AclOperation.DESCRIBE),),
        b"\2t",
        hides=True,
    ),
    Row(
        ApiKey.LIST_TRANSACTIONS,
        0,
        transaction_admin.ListTransactionsRequest(),
        (transaction(AclOperation.DESCRIBE),),
        b"\2x",
        hides=True,
    ),
    Row(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        configs.DescribeConfigsRequest([configs.DescribeConfigsResource(TOPIC_CONFIG, "t", None)]),
        (topic(AclOperation.DESCRIBE_CONFIGS),),
        b"retention.ms",
    ),
    Row(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        configs.DescribeConfigsRequest([configs.DescribeConfigsResource(BROKER_CONFIG, "1", None)]),
        (cluster(AclOperation.DESCRIBE_CONFIGS),),
        b"log.retention.ms",
    ),
    *altered(TOPIC_CONFIG, "t", "retention.ms", "77"),
    *altered(BROKER_CONFIG, "1", "log.retention.ms", "77"),
    Row(
        ApiKey.CREATE_PARTITIONS,
        3,
        topics.CreatePartitionsRequest([topics.CreatePartitionsTopic("t", 3, None)]),
        (topic(AclOperation.ALTER),),
    ),
    Row(
        ApiKey.DESCRIBE_CLUSTER,
        1,
        nodes.DescribeClusterRequest(include_cluster_authorized_operations=True),
        (cluster(AclOperation.DESCRIBE),),
        (1 << AclOperation.DESCRIBE).to_bytes(4, "big"),
        hides=True,
    ),
    Row(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        2,
        replicas.AlterReplicaLogDirsRequest(
            [replicas.AlterReplicaLogDir("/data/logs", [replicas.AlterReplicaLogDirTopic("t", [0])])]
        ),
        (cluster(AclOperation.ALTER),),
    ),
    Row(
        ApiKey.DESCRIBE_LOG_DIRS,
        4,
        replicas.DescribeLogDirsRequest(topics=None),
        (cluster(AclOperation.DESCRIBE),),
        b"/data/logs",
    ),
    Row(
        ApiKey.DESCRIBE_QUORUM,
        2,
        nodes.DescribeQuorumRequest([nodes.TopicData("__cluster_metadata", [nodes.PartitionData(0)])]),
        (cluster(AclOperation.DESCRIBE),),
        b"127.0.0.1",
    ),
    Row(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        replicas.ListPartitionReassignmentsRequest(),
        (cluster(AclOperation.DESCRIBE),),
    ),
    Row(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        nodes.DescribeTopicPartitionsRequest([nodes.TopicRequest("t")]),
        (topic(AclOperation.DESCRIBE),),
    ),
    Row(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        nodes.DescribeTopicPartitionsRequest([]),
        (topic(AclOperation.DESCRIBE),),
        b"\x02t",
        hides=True,
    ),
    Row(
        ApiKey.LIST_CONFIG_RESOURCES,
        1,
        configs.ListConfigResourcesRequest([2]),
        (cluster(AclOperation.DESCRIBE_CONFIGS),),
        b"\x02t",
    ),
    Row(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        1,
        client_quotas.DescribeClientQuotasRequest([], strict=False),
        (cluster(AclOperation.DESCRIBE_CONFIGS),),
    ),
    Row(
        ApiKey.ALTER_CLIENT_QUOTAS,
        1,
        client_quotas.AlterClientQuotasRequest(
            [
                client_quotas.EntryData(
                    [client_quotas.EntityData("user", None)],
                    [client_quotas.OpData("producer_byte_rate", 1000.0)],
                )
            ]
        ),
        (cluster(AclOperation.ALTER_CONFIGS),),
    ),
    Row(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        user_scram_credentials.DescribeUserScramCredentialsRequest(None),
        (cluster(AclOperation.DESCRIBE),),
    ),
    Row(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        user_scram_credentials.AlterUserScramCredentialsRequest(
            upsertions=[user_scram_credentials.ScramCredentialUpsertion("new", 1, 4096, b"salt", b"salted")]
        ),
        (cluster(AclOperation.ALTER),),
    ),
    Row(
        ApiKey.UPDATE_FEATURES,
        2,
        nodes.UpdateFeaturesRequest(feature_updates=[]),
        (cluster(AclOperation.ALTER),),
    ),
    Row(
        ApiKey.ELECT_LEADERS,
        2,
        replicas.ElectLeadersRequest(0, [replicas.TopicPartitions("t", [0])]),
        (cluster(AclOperation.ALTER),),
    ),
    Row(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        replicas.AlterPartitionReassignmentsRequest(
            topics=[replicas.ReassignableTopic("t", [replicas.ReassignablePartition(0, [1])])]
        ),
        (cluster(AclOperation.ALTER),),
    ),
    Row(
        ApiKey.DESCRIBE_ACLS,
        3,
        acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1),
        (cluster(AclOperation.DESCRIBE),),
        b"User:ANONYMOUS",
    ),
    Row(
        ApiKey.CREATE_ACLS,
        3,
        acls.CreateAclsRequest([acls.AclCreation(2, "t", 3, "User:eve", "*", 3, 3)]),
        (cluster(AclOperation.ALTER),),
    ),
    Row(
        ApiKey.DELETE_ACLS,
        3,
        acls.DeleteAclsRequest([acls.DeleteAclsFilter(1, None, 1, None, None, 1, 1)]),
        (cluster(AclOperation.ALTER),),
    ),
]


def binding(need: Need) -> AclBinding:
    operation, resource_type, name = need
    return AclBinding(principal="User:ANONYMOUS", operation=operation, resource_type=resource_type, resource_name=name)


def node_with(*acls: AclBinding) -> BrokerNode:
    """A broker with a record, a group's offset and an open transaction, whose client has only *acls*."""
    node = BrokerNode(authorizer_class_name=AUTHORIZER, transaction_two_phase_commit_enable="true")
    node.cluster.create_topic("t", 1)
    node.cluster.create_acls([binding((AclOperation.ALL, kind, "*")) for kind in CODES if kind is not Resource.CLUSTER])
    data = [produce.PartitionProduceData(0, make_batch([SECRET]))]
    node.call(
        ApiKey.PRODUCE, 9, produce.ProduceRequest(None, -1, 1000, [produce.TopicProduceData("t", partition_data=data)])
    )
    offset = group_offsets.OffsetCommitRequestPartition(0, 1, committed_metadata=SECRET.decode())
    topics = [group_offsets.OffsetCommitRequestTopic("t", partitions=[offset])]
    node.call(ApiKey.OFFSET_COMMIT, 8, group_offsets.OffsetCommitRequest("g", topics=topics))
    answer = node.call(ApiKey.INIT_PRODUCER_ID, 4, init_producer_id.InitProducerIdRequest("x", 60_000))
    assert isinstance(answer, init_producer_id.InitProducerIdResponse)
    added = transactions.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=answer.producer_id,
        v3_and_below_producer_epoch=answer.producer_epoch,
        v3_and_below_topics=[transactions.AddPartitionsToTxnTopic("t", [0])],
    )
    assert set(codes(node.call(ApiKey.ADD_PARTITIONS_TO_TXN, 3, added))) == {0}
    node.cluster.delete_acls(AclBindingFilter())
    node.cluster.create_acls(list(acls))
    return node


def codes(answer: Any) -> Iterator[int]:
    """All error codes of an answer."""
    if isinstance(answer, list):
        for item in answer:
            yield from codes(item)
    elif isinstance(answer, Struct):
        for field in fields(answer):  # type: ignore[arg-type]
            value = getattr(answer, field.name)
            if field.name.endswith("error_code"):
                yield value
            yield from codes(value)


def kept(node: BrokerNode) -> list[Any]:
    """Everything that a request could change."""
    tables = [name for (name,) in node.store.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
    log = node.logs.get(TopicPartition("t", 0))
    assert log is not None
    image = node.cluster.image
    return [
        dict(image.topics),
        image.acls,
        image.quotas,
        log.start_offset,
        log.end_offset,
        [(table, node.store.rows(f"SELECT * FROM {table}")) for table in tables],
    ]


def asked(node: BrokerNode, row: Row) -> tuple[set[int], bytes]:
    """The error codes and the bytes of the answer to a row's request; none if its answer comes later."""
    body = row.body
    # The producer id is that of the open transaction.
    if any(field.name == "producer_id" for field in fields(body)) and row.key is not ApiKey.INIT_PRODUCER_ID:  # type: ignore[arg-type]
        body = replace(body, producer_id=0, producer_epoch=0)  # type: ignore[type-var]
    node.send(row.key, row.version, body)
    if not node.responses:
        return set(), b""
    response = node.responses[0]
    assert isinstance(response, SendResponse)
    raw = b"".join(map(bytes, response.segments))
    return set(codes(node.answer(row.key, row.version))), raw


@pytest.mark.behaviour(
    "ACLs", "Every API refuses a client without its permission, changes nothing and discloses nothing"
)
@with_each("row", ROWS)
def test_every_api_needs_each_of_its_permissions(row: Row) -> None:
    allowed = [binding(need) for need in row.needs]
    # What a row leaves out, because another row has it.
    others = [
        binding(need)
        for other in ROWS
        if row.hides and other.key is row.key
        for need in other.needs
        if need not in row.needs
    ]
    found, raw = asked(node_with(*allowed, *others), row)
    refusals = {int(code) for code in CODES.values()}
    assert not found & refusals
    assert row.shows in raw
    for index, (operation, resource_type, name) in enumerate(row.needs):
        denied = replace(
            binding((operation, resource_type, name)), permission_type=AclPermissionType.DENY, host="127.0.0.1"
        )
        rest = allowed[:index] + allowed[index + 1 :] + others
        for held in (rest, [*rest, allowed[index], denied]):
            node = node_with(*held)
            before = kept(node)
            found, raw = asked(node, row)
            if row.hides:
                assert not found & refusals
            else:
                assert int(CODES[resource_type]) in found, (operation, found)
            assert SECRET not in raw
            assert not row.shows or row.shows not in raw
            assert kept(node) == before


def test_the_table_has_every_api() -> None:
    assert {row.key for row in ROWS} | FREE == set(HANDLERS)
