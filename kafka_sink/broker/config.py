"""The broker's options. Names, defaults and meanings are Kafka's unless an option's text says otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafka_sink.broker.security_config import BrokerSecurityConfig
from kafka_sink.common.config import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    STRING,
    at_least,
    between,
    key,
    one_of,
)
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.model import host_and_port

#: "No limit", for counts and rates.
UNLIMITED: Final = 2**31 - 1
_NEVER: Final = 2**63 - 1
_WEEK_MS: Final = 7 * 24 * 60 * 60 * 1000
#: The only clean-up policy.
DELETE: Final = "delete"
CREATE_TIME: Final = "CreateTime"
LOG_APPEND_TIME: Final = "LogAppendTime"


@dataclass(frozen=True)
class EndPoint:
    """A listener: its name and its address (port 0 = any free port, until the listener is bound)."""

    listener_name: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> EndPoint:
        """Parse ``NAME://host:port``. :raises ConfigError: if the text has another form."""
        name, separator, rest = text.partition("://")
        host, colon, port = rest.rpartition(":")
        if not (separator and colon and name and port.isdigit() and int(port) <= 65535):
            raise ConfigError(f"listener {text!r} is not NAME://host:port")
        return cls(name, host.strip("[]") or "0.0.0.0", int(port))

    @property
    def address(self) -> str:
        """``host:port``, as in ``bootstrap.servers``."""
        return host_and_port(self.host, self.port)

    def __str__(self) -> str:
        return f"{self.listener_name}://{self.address}"


def parse_counts(option: str, entries: tuple[str, ...]) -> dict[str, int]:
    """Parse a list of ``name:count``. :raises ConfigError: if an entry has another form."""
    counts: dict[str, int] = {}
    for entry in entries:
        name, separator, count = entry.rpartition(":")
        if not (separator and name and count.isdigit()):
            raise ConfigError(f"option {option}: {entry!r} is not name:count")
        counts[name] = int(count)
    return counts


@dataclass(frozen=True)
class NodeConfig:
    """All options except those for security."""

    listeners: tuple[str, ...] = key(
        "listeners",
        LIST,
        (),
        "NAME://host:port of each listener; port 0 selects a free port, and further nodes use the ports after it; "
        "by default one PLAINTEXT listener at the address that the cluster is started with",
    )
    advertised_listeners: tuple[str, ...] = key(
        "advertised.listeners",
        LIST,
        (),
        "NAME://host:port that clients are told to connect to, if it differs from the address of the listener",
    )
    listener_security_protocol_map: tuple[str, ...] = key(
        "listener.security.protocol.map",
        LIST,
        ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"),
        "security protocol of each listener name, NAME:PROTOCOL; a name that is not listed must be the name of a "
        "protocol",
    )
    control_plane_listener_name: str = key(
        "control.plane.listener.name",
        STRING,
        "",
        "listener with its own acceptor, processor and request queue; none by default",
    )
    inter_broker_listener_name: str = key(
        "inter.broker.listener.name",
        STRING,
        "",
        "listener that is opened first and is exempt from max.connections, if there is another listener",
    )
    num_network_threads: int = key(
        "num.network.threads",
        INT,
        2,
        "network threads per listener, which read requests and write responses (Kafka: 3)",
        validator=between(1, 256),
    )
    num_io_threads: int = key(
        "num.io.threads", INT, 2, "request handler threads per node (Kafka: 8)", validator=between(1, 256)
    )
    queued_max_requests: int = key(
        "queued.max.requests",
        INT,
        500,
        "requests that may wait for a handler before network threads stop reading",
        validator=at_least(1),
    )
    queued_max_request_bytes: int = key(
        "queued.max.request.bytes",
        INT,
        -1,
        "bytes of received requests that may wait for a handler before network threads stop reading; -1 = no limit",
        validator=at_least(-1),
    )
    queued_max_response_bytes: int = key(
        "queued.max.response.bytes",
        INT,
        268435456,
        "bytes of fetch responses that may wait to be sent; beyond that every fetch response has one batch (Kafka: "
        "no limit)",
        validator=at_least(0),
    )
    socket_request_max_bytes: int = key(
        "socket.request.max.bytes", INT, 104857600, "maximum size of a request, bytes", validator=at_least(1)
    )
    socket_send_buffer_bytes: int = key(
        "socket.send.buffer.bytes",
        INT,
        102400,
        "SO_SNDBUF of connections, bytes; -1 = the operating system's default",
        validator=at_least(-1),
    )
    socket_receive_buffer_bytes: int = key(
        "socket.receive.buffer.bytes",
        INT,
        102400,
        "SO_RCVBUF of connections, bytes; -1 = the operating system's default",
        validator=at_least(-1),
    )
    socket_listen_backlog_size: int = key(
        "socket.listen.backlog.size",
        INT,
        1024,
        "connections that may wait to be accepted; the client of a further one retries after a second (Kafka: 50)",
        validator=at_least(1),
    )
    socket_connection_setup_timeout_ms: int = key(
        "socket.connection.setup.timeout.ms",
        INT,
        10000,
        "close connections whose TLS handshake and login are not complete after this time, ms; reauthentication has no "
        "limit (Kafka limits only the connections that it opens itself)",
        validator=at_least(1),
    )
    connections_max_idle_ms: int = key(
        "connections.max.idle.ms", INT, 600000, "close connections that have been idle for this long, ms; -1 = never"
    )
    max_connections: int = key(
        "max.connections",
        INT,
        UNLIMITED,
        "maximum number of connections per node; further ones wait",
        validator=at_least(0),
    )
    max_connections_per_listener: tuple[str, ...] = key(
        "max.connections.per.listener",
        LIST,
        (),
        "NAME:count for listeners with their own limit; further connections wait (Kafka: "
        "listener.name.NAME.max.connections)",
    )
    max_connections_per_ip: int = key(
        "max.connections.per.ip",
        INT,
        UNLIMITED,
        "maximum number of connections from one address; further ones are closed",
        validator=at_least(0),
    )
    max_connections_per_ip_overrides: tuple[str, ...] = key(
        "max.connections.per.ip.overrides",
        LIST,
        (),
        "host:count for addresses with another limit; host names are resolved when the broker starts",
    )
    max_connection_creation_rate: int = key(
        "max.connection.creation.rate",
        INT,
        UNLIMITED,
        "maximum number of new connections per second and node; further ones wait",
        validator=at_least(1),
    )
    max_connection_creation_rate_per_listener: tuple[str, ...] = key(
        "max.connection.creation.rate.per.listener",
        LIST,
        (),
        "NAME:count for listeners with their own rate; further connections wait (Kafka: "
        "listener.name.NAME.max.connection.creation.rate)",
    )
    max_connection_creation_rate_per_ip: int = key(
        "max.connection.creation.rate.per.ip",
        INT,
        UNLIMITED,
        "maximum number of new connections per second from one address; further ones are closed after a delay "
        "(Kafka: the client quota connection_creation_rate)",
        validator=at_least(1),
    )
    quota_window_num: int = key(
        "quota.window.num", INT, 11, "number of windows over which rates are measured", validator=at_least(1)
    )
    quota_window_size_seconds: float = key(
        "quota.window.size.seconds", DOUBLE, 1.0, "length of one such window, seconds", validator=at_least(0.001)
    )
    num_partitions: int = key(
        "num.partitions",
        INT,
        4,
        "default number of partitions of a new topic (Kafka: 1)",
        validator=between(1, 10_000),
    )
    default_replication_factor: int = key(
        "default.replication.factor",
        INT,
        1,
        "default number of replicas of a new topic; data is stored once, and replicas are the nodes that may lead",
        validator=between(1, 32),
    )
    auto_create_topics_enable: bool = key(
        "auto.create.topics.enable", BOOLEAN, True, "create an unknown topic when a client asks for it"
    )
    delete_topic_enable: bool = key("delete.topic.enable", BOOLEAN, True, "allow topics to be deleted")
    message_max_bytes: int = key(
        "message.max.bytes", INT, 1048588, "maximum size of a record batch, bytes", validator=at_least(0)
    )
    max_decompressed_message_bytes: int = key(
        "max.decompressed.message.bytes",
        INT,
        67108864,
        "maximum size of the records of a compressed batch after decompression, bytes; a batch with more is "
        "rejected (Kafka: of each record, from 4.4 on, without limit by default)",
        validator=at_least(1),
    )
    min_insync_replicas: int = key(
        "min.insync.replicas",
        INT,
        1,
        "minimum number of in-sync replicas (on running nodes) for a write with acks=all",
        validator=at_least(1),
    )
    log_segment_bytes: int = key(
        "log.segment.bytes", INT, 1073741824, "maximum size of a log segment, bytes", validator=at_least(14)
    )
    log_roll_ms: int = key(
        "log.roll.ms",
        INT,
        604_800_000,
        "the timestamps of the batches in a log segment differ by at most so much, ms",
        validator=at_least(1),
    )
    log_index_interval_bytes: int = key(
        "log.index.interval.bytes", INT, 4096, "bytes of log between two entries of its index", validator=at_least(0)
    )
    log_flush_interval_messages: int = key(
        "log.flush.interval.messages",
        INT,
        _NEVER,
        "number of records after which the log is flushed to disk before the response; 1 = every write; if it is "
        "not set, acknowledged records survive a crash of the process, but not a power failure",
        validator=at_least(1),
    )
    log_flush_interval_ms: int = key(
        "log.flush.interval.ms",
        INT,
        _NEVER,
        "longest time that records wait before they are flushed to disk, ms; checked every "
        "log.flush.scheduler.interval.ms",
        validator=at_least(0),
    )
    log_flush_scheduler_interval_ms: int = key(
        "log.flush.scheduler.interval.ms",
        INT,
        1000,
        "interval between checks for logs that must be flushed, ms (Kafka: never)",
        validator=at_least(1),
    )
    log_retention_ms: int = key(
        "log.retention.ms",
        INT,
        _WEEK_MS,
        "age at which a closed segment is deleted, ms; -1 = never",
        validator=at_least(-1),
    )
    log_cleanup_policy: str = key(
        "log.cleanup.policy",
        STRING,
        DELETE,
        "what happens to old segments: they are deleted; logs are not compacted",
        validator=one_of(DELETE),
    )
    log_retention_bytes: int = key(
        "log.retention.bytes",
        INT,
        -1,
        "size of a partition beyond which its oldest segments are deleted, bytes; -1 = no limit",
        validator=at_least(-1),
    )
    log_retention_check_interval_ms: int = key(
        "log.retention.check.interval.ms",
        INT,
        300000,
        "interval between checks for segments that can be deleted, ms",
        validator=at_least(1),
    )
    log_message_timestamp_type: str = key(
        "log.message.timestamp.type",
        STRING,
        CREATE_TIME,
        "timestamps of records: the time at which the producer created them, or at which the broker appended them",
        validator=one_of(CREATE_TIME, LOG_APPEND_TIME),
    )
    log_message_timestamp_before_max_ms: int = key(
        "log.message.timestamp.before.max.ms",
        INT,
        _NEVER,
        "longest time that the first timestamp of a batch may lie before the broker's time, ms",
        validator=at_least(0),
    )
    log_message_timestamp_after_max_ms: int = key(
        "log.message.timestamp.after.max.ms",
        INT,
        3600000,
        "longest time that the largest timestamp of a batch may lie after the broker's time, ms",
        validator=at_least(0),
    )
    producer_id_expiration_ms: int = key(
        "producer.id.expiration.ms",
        INT,
        3600000,
        "how long the state of an idle idempotent producer is kept, ms; at least the delivery.timeout.ms of every "
        "client (Kafka: a day)",
        validator=at_least(1),
    )
    group_initial_rebalance_delay_ms: int = key(
        "group.initial.rebalance.delay.ms",
        INT,
        0,
        "how long the first rebalance of a group waits for more members, ms (Kafka: 3000)",
        validator=at_least(0),
    )
    group_min_session_timeout_ms: int = key(
        "group.min.session.timeout.ms",
        INT,
        6000,
        "shortest session time-out that a member of a group may request, ms",
        validator=at_least(1),
    )
    group_max_session_timeout_ms: int = key(
        "group.max.session.timeout.ms",
        INT,
        1800000,
        "longest session time-out that a member of a group may request, ms",
        validator=at_least(1),
    )
    group_max_size: int = key(
        "group.max.size", INT, UNLIMITED, "maximum number of members of a group", validator=at_least(1)
    )
    offset_metadata_max_bytes: int = key(
        "offset.metadata.max.bytes",
        INT,
        4096,
        "maximum length of the metadata of a committed offset, in characters of UTF-16, as in Kafka",
        validator=at_least(0),
    )
    offsets_retention_minutes: int = key(
        "offsets.retention.minutes",
        INT,
        10080,
        "how long offsets are kept after the group became empty, or, if it has no members, after the commit, minutes",
        validator=at_least(1),
    )
    offsets_retention_check_interval_ms: int = key(
        "offsets.retention.check.interval.ms",
        INT,
        600000,
        "interval between checks for expired offsets, ms",
        validator=at_least(1),
    )
    fetch_max_bytes: int = key(
        "fetch.max.bytes", INT, 57671680, "maximum size of a fetch response, bytes", validator=at_least(1024)
    )
    quota_producer_default: int = key(
        "quota.producer.default",
        INT,
        _NEVER,
        "bytes per second that a client id may produce before it is throttled",
        validator=at_least(1),
    )
    quota_consumer_default: int = key(
        "quota.consumer.default",
        INT,
        _NEVER,
        "bytes per second that a client id may fetch before it is throttled",
        validator=at_least(1),
    )
    transaction_version: int = key(
        "transaction.version",
        INT,
        2,
        "finalized transaction version that clients see: 2 with a new epoch for every transaction (KIP-890), or 1 "
        "(Kafka: a feature of the cluster)",
        validator=between(1, 2),
    )
    transaction_two_phase_commit_enable: bool = key(
        "transaction.two.phase.commit.enable",
        BOOLEAN,
        False,
        "producers may ask for transactions that never time out (KIP-939), by InitProducerId version 6, which "
        "unstable.api.versions.enable offers",
    )
    unstable_api_versions_enable: bool = key(
        "unstable.api.versions.enable",
        BOOLEAN,
        False,
        "offer the versions of APIs that Kafka's releases do not offer by default: InitProducerId 6",
    )
    transaction_max_timeout_ms: int = key(
        "transaction.max.timeout.ms",
        INT,
        900000,
        "longest transaction time-out that a producer may request, ms",
        validator=at_least(1),
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = key(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        10000,
        "interval between checks for transactions that have exceeded their time-out, ms",
        validator=at_least(1),
    )
    transactional_id_expiration_ms: int = key(
        "transactional.id.expiration.ms",
        INT,
        _WEEK_MS,
        "how long an unused transactional id is kept, ms",
        validator=at_least(1),
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = key(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        3600000,
        "interval between checks for expired transactional ids, ms",
        validator=at_least(1),
    )


@dataclass(frozen=True)
class BrokerConfig(BrokerSecurityConfig, NodeConfig):
    """Options of every node of a cluster."""
