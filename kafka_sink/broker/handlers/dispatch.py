"""Dispatches a request to the handler of its API key.

Handler threads call it for every request. If a request cannot be decoded, or its API or version is not supported, the
connection is closed, because the client could not read any answer. ApiVersions is the exception (KIP-511).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from kafka_sink.broker.config import BrokerConfig
from kafka_sink.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
    update_features,
    write_txn_markers,
)
from kafka_sink.broker.handlers.context import ApiHandler, ApiRequest, BrokerContext
from kafka_sink.broker.handlers.faults.injection import handle_with_faults
from kafka_sink.broker.network.request_channel import CloseConnectionResponse, Request, RequestChannel, RequestHandler
from kafka_sink.common.errors import ProtocolError
from kafka_sink.common.log_context import ContextLogger
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import decode_request_body
from kafka_sink.protocol.messages.api_versions import ApiVersionsRequest
from kafka_sink.protocol.schema import VersionRange

HANDLERS: Final[Mapping[ApiKey, ApiHandler]] = MappingProxyType(
    {
        module.API.key: module.API
        for module in (
            produce,
            fetch,
            list_offsets,
            delete_records,
            offset_for_leader_epoch,
            metadata,
            find_coordinator,
            join_group,
            sync_group,
            heartbeat,
            leave_group,
            offset_commit,
            offset_fetch,
            offset_delete,
            txn_offset_commit,
            describe_groups,
            consumer_group_heartbeat,
            consumer_group_describe,
            list_groups,
            delete_groups,
            api_versions,
            sasl_handshake,
            sasl_authenticate,
            create_topics,
            delete_topics,
            init_producer_id,
            add_partitions_to_txn,
            add_offsets_to_txn,
            end_txn,
            write_txn_markers,
            describe_producers,
            describe_transactions,
            list_transactions,
            describe_configs,
            incremental_alter_configs,
            alter_configs,
            create_partitions,
            describe_cluster,
            elect_leaders,
            alter_partition_reassignments,
            describe_acls,
            create_acls,
            delete_acls,
            describe_client_quotas,
            alter_client_quotas,
            describe_user_scram_credentials,
            alter_user_scram_credentials,
            describe_log_dirs,
            alter_replica_log_dirs,
            describe_quorum,
            describe_topic_partitions,
            list_config_resources,
            list_partition_reassignments,
            update_features,
        )
    }
)


def served_versions(config: BrokerConfig) -> dict[ApiKey, VersionRange]:
    """The versions of each API that brokers with *config* serve."""
    versions = {key: handler.versions for key, handler in HANDLERS.items()}
    if not config.unstable_api_versions_enable:
        versions[ApiKey.INIT_PRODUCER_ID] = init_producer_id.STABLE_VERSIONS
    return versions


def dispatcher(context: BrokerContext, channel: RequestChannel) -> RequestHandler:
    """The function that the handler threads of *channel* call with each request."""
    log = ContextLogger(__name__, f"broker {context.node_id}")

    def handle(request: Request) -> None:
        header = request.context.header
        handler = HANDLERS.get(header.api_key)
        if handler is None or header.api_version not in context.versions[header.api_key]:
            if header.api_key is ApiKey.API_VERSIONS:
                api_versions.handle(context, ApiRequest(request, channel, ApiVersionsRequest()))
                return
            log.info(
                "closing %s: it sent %s version %d, which is not supported",
                request.context.connection_id,
                header.api_key.name,
                header.api_version,
            )
            channel.send_response(CloseConnectionResponse(request))
            return
        try:
            body = decode_request_body(header, request.payload, request.body_offset)
        except ProtocolError as error:
            log.info("closing %s: %s", request.context.connection_id, error)
            channel.send_response(CloseConnectionResponse(request))
            return
        if context.faults.of_requests:
            handle_with_faults(context, request, channel, body, partial(handler.handle, context), log)
        else:
            handler.handle(context, ApiRequest(request, channel, body))

    return handle
