"""The broker's options. Names, defaults and meanings are Kafka's unless an option's text says otherwise.

Read once. This module opens no files; passwords and keys appear in no ``repr`` and in no error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafka_sink.common.bounded import INT32_MAX, known_number
from kafka_sink.common.config import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    STRING,
    Options,
    Validator,
    all_of,
    at_least,
    between,
    one_of,
)
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.model import host_and_port
from kafka_sink.common.sasl_mechanisms import SERVED
from kafka_sink.common.tls_config import SslConfig

#: "No limit", for counts and rates.
UNLIMITED: Final = INT32_MAX
_NEVER: Final = 2**63 - 1
_WEEK_MS: Final = 7 * 24 * 60 * 60 * 1000
#: The policies of ``cleanup.policy``.
DELETE: Final = "delete"
COMPACT: Final = "compact"
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
        number = known_number(port, 0, 65535)
        if not (separator and colon and name) or number is None:
            raise ConfigError(f"listener {text!r} is not NAME://host:port", option="listeners")
        return cls(name, host.strip("[]") or "0.0.0.0", number)

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
        name, _, text = entry.rpartition(":")
        count = known_number(text, 0, INT32_MAX)
        if not name or count is None:
            raise ConfigError.of(option, f": {entry!r} is not name:count")
        counts[name] = count
    return counts


#: The only value of ``authorizer.class.name``.
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_SERVED_NAMES: Final = f"names among {', '.join(SERVED)}"


def _principals(text: str) -> frozenset[str]:
    return frozenset(filter(None, map(str.strip, text.split(";"))))


@dataclass(frozen=True)
class NodeConfig(Options):
    """All options except those for security."""

    listeners: tuple[str, ...] = LIST(
        (),
        "NAME://host:port of each listener; port 0 selects a free port, and further nodes use the ports after it; "
        "by default one PLAINTEXT listener at the address that the cluster is started with",
    )
    advertised_listeners: tuple[str, ...] = LIST(
        (), "NAME://host:port that clients are told to connect to, if it differs from the address of the listener"
    )
    listener_security_protocol_map: tuple[str, ...] = LIST(
        ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"),
        "security protocol of each listener name, NAME:PROTOCOL; a name that is not listed must be the name of a "
        "protocol",
    )
    control_plane_listener_name: str = STRING(
        "", "listener with its own acceptor, processor and request queue; none by default"
    )
    inter_broker_listener_name: str = STRING(
        "", "listener that is opened first and is exempt from max.connections, if there is another listener"
    )
    num_network_threads: int = INT(
        2, "network threads per listener, which read requests and write responses (Kafka: 3)", between(1, 256)
    )
    num_io_threads: int = INT(2, "request handler threads per node (Kafka: 8)", between(1, 256))
    queued_max_requests: int = INT(
        500, "requests that may wait for a handler before network threads stop reading", at_least(1)
    )
    queued_max_request_bytes: int = INT(
        -1,
        "bytes of received requests that may wait for a handler before network threads stop reading; -1 = no limit",
        at_least(-1),
    )
    queued_max_response_bytes: int = INT(
        268435456,
        "bytes of fetch responses that may wait to be sent; beyond that every fetch response has one batch (Kafka: "
        "no limit)",
        at_least(0),
    )
    socket_request_max_bytes: int = INT(104857600, "maximum size of a request, bytes", at_least(1))
    socket_send_buffer_bytes: int = INT(
        102400, "SO_SNDBUF of connections, bytes; -1 = the operating system's default", at_least(-1)
    )
    socket_receive_buffer_bytes: int = INT(
        102400, "SO_RCVBUF of connections, bytes; -1 = the operating system's default", at_least(-1)
    )
    socket_listen_backlog_size: int = INT(
        1024,
        "connections that may wait to be accepted; the client of a further one retries after a second (Kafka: 50)",
        at_least(1),
    )
    socket_connection_setup_timeout_ms: int = INT(
        10000,
        "close connections whose TLS handshake and login are not complete after this time, ms; reauthentication has no "
        "limit (Kafka limits only the connections that it opens itself)",
        at_least(1),
    )
    connections_max_idle_ms: int = INT(600000, "close connections that have been idle for this long, ms; -1 = never")
    max_connections: int = INT(UNLIMITED, "maximum number of connections per node; further ones wait", at_least(0))
    max_connections_per_listener: tuple[str, ...] = LIST(
        (),
        "NAME:count for listeners with their own limit; further connections wait (Kafka: "
        "listener.name.NAME.max.connections)",
    )
    max_connections_per_ip: int = INT(
        UNLIMITED, "maximum number of connections from one address; further ones are closed", at_least(0)
    )
    max_connections_per_ip_overrides: tuple[str, ...] = LIST(
        (), "host:count for addresses with another limit; host names are resolved when the broker starts"
    )
    max_connection_creation_rate: int = INT(
        UNLIMITED, "maximum number of new connections per second and node; further ones wait", at_least(1)
    )
    max_connection_creation_rate_per_listener: tuple[str, ...] = LIST(
        (),
        "NAME:count for listeners with their own rate; further connections wait (Kafka: "
        "listener.name.NAME.max.connection.creation.rate)",
    )
    max_connection_creation_rate_per_ip: int = INT(
        UNLIMITED,
        "maximum number of new connections per second from one address; further ones are closed after a delay "
        "(Kafka: the client quota connection_creation_rate)",
        at_least(1),
    )
    quota_window_num: int = INT(11, "number of windows over which rates are measured", at_least(1))
    quota_window_size_seconds: float = DOUBLE(1.0, "length of one such window, seconds", at_least(0.001))
    num_partitions: int = INT(1, "default number of partitions of a new topic", between(1, 10_000))
    default_replication_factor: int = INT(
        1,
        "default number of replicas of a new topic; data is stored once, and replicas are the nodes that may lead",
        between(1, 32),
    )
    auto_create_topics_enable: bool = BOOLEAN(True, "create an unknown topic when a client asks for it")
    message_max_bytes: int = INT(1048588, "maximum size of a record batch, bytes", at_least(0))
    max_decompressed_message_bytes: int = INT(
        67108864,
        "maximum size of the records of a compressed batch after decompression, bytes; a batch with more is "
        "rejected (Kafka: of each record, from 4.4 on, without limit by default)",
        at_least(1),
    )
    min_insync_replicas: int = INT(
        1, "minimum number of in-sync replicas (on running nodes) for a write with acks=all", at_least(1)
    )
    log_segment_bytes: int = INT(1073741824, "maximum size of a log segment, bytes", at_least(14))
    log_roll_ms: int = INT(
        604_800_000, "the timestamps of the batches in a log segment differ by at most so much, ms", at_least(1)
    )
    log_index_interval_bytes: int = INT(4096, "bytes of log between two entries of its index", at_least(0))
    log_flush_interval_messages: int = INT(
        _NEVER,
        "number of records after which the log is flushed to disk before the response; 1 = every write; if it is "
        "not set, acknowledged records survive a crash of the process, but not a power failure",
        at_least(1),
    )
    log_flush_interval_ms: int = INT(
        _NEVER,
        "longest time that records wait before they are flushed to disk, ms; checked every "
        "log.flush.scheduler.interval.ms",
        at_least(0),
    )
    log_flush_scheduler_interval_ms: int = INT(
        1000, "interval between checks for logs that must be flushed, ms (Kafka: never)", at_least(1)
    )
    log_retention_ms: int = INT(_WEEK_MS, "age at which a closed segment is deleted, ms; -1 = never", at_least(-1))
    log_cleanup_policy: tuple[str, ...] = LIST(
        (DELETE,),
        "what happens to closed segments: delete = they are deleted by age and size, compact = of each key the last "
        "record stays; both, or neither, are possible",
        all_of(COMPACT, DELETE),
    )
    log_cleaner_backoff_ms: int = INT(
        15000, "interval between checks for logs that are to be compacted, ms", at_least(0)
    )
    log_cleaner_dedupe_buffer_size: int = INT(
        134217728,
        "memory for the keys of a compaction, bytes; a key takes 200, and keys beyond that are left to the next "
        "compaction (Kafka: 24)",
        at_least(1 << 20),
    )
    log_cleaner_delete_retention_ms: int = INT(
        86_400_000,
        "how long a compaction keeps tombstones, and the markers of transactions without records, ms",
        at_least(0),
    )
    log_cleaner_min_cleanable_ratio: float = DOUBLE(
        0.5, "a log is compacted when more than this part of its bytes is new since the last compaction", between(0, 1)
    )
    log_cleaner_min_compaction_lag_ms: int = INT(0, "age that records reach before they are compacted, ms", at_least(0))
    log_cleaner_max_compaction_lag_ms: int = INT(
        _NEVER, "age at which records are compacted, however few they are, ms", at_least(1)
    )
    log_retention_bytes: int = INT(
        -1, "size of a partition beyond which its oldest segments are deleted, bytes; -1 = no limit", at_least(-1)
    )
    log_retention_check_interval_ms: int = INT(
        300000, "interval between checks for segments that can be deleted, ms", at_least(1)
    )
    log_message_timestamp_type: str = STRING(
        CREATE_TIME,
        "timestamps of records: the time at which the producer created them, or at which the broker appended them",
        one_of(CREATE_TIME, LOG_APPEND_TIME),
    )
    log_message_timestamp_before_max_ms: int = INT(
        _NEVER, "longest time that the first timestamp of a batch may lie before the broker's time, ms", at_least(0)
    )
    log_message_timestamp_after_max_ms: int = INT(
        3600000, "longest time that the largest timestamp of a batch may lie after the broker's time, ms", at_least(0)
    )
    producer_id_expiration_ms: int = INT(
        86_400_000,
        "how long the state of an idle idempotent producer is kept, ms; at least the delivery.timeout.ms of every "
        "client",
        at_least(1),
    )
    group_initial_rebalance_delay_ms: int = INT(
        0, "how long the first rebalance of a group waits for more members, ms (Kafka: 3000)", at_least(0)
    )
    group_min_session_timeout_ms: int = INT(
        6000, "shortest session time-out that a member of a group may request, ms", at_least(1)
    )
    group_max_session_timeout_ms: int = INT(
        1800000, "longest session time-out that a member of a group may request, ms", at_least(1)
    )
    group_consumer_session_timeout_ms: int = INT(
        45000, "session time-out of members with group.protocol=consumer, ms", at_least(1)
    )
    group_consumer_heartbeat_interval_ms: int = INT(
        5000,
        "interval between the heartbeats of members with group.protocol=consumer, ms; they hear of a rebalance with "
        "the next one",
        at_least(1),
    )
    offset_metadata_max_bytes: int = INT(
        4096, "maximum length of the metadata of a committed offset, in characters of UTF-16, as in Kafka", at_least(0)
    )
    offsets_retention_minutes: int = INT(
        10080,
        "how long offsets are kept after the group became empty, or, if it has no members, after the commit, minutes",
        at_least(1),
    )
    offsets_retention_check_interval_ms: int = INT(
        600000, "interval between checks for expired offsets, ms", at_least(1)
    )
    fetch_max_bytes: int = INT(57671680, "maximum size of a fetch response, bytes", at_least(1024))
    transaction_version: int = INT(
        2,
        "finalized transaction version that clients see: 2 with a new epoch for every transaction (KIP-890), or 1 "
        "(Kafka: a feature of the cluster)",
        between(1, 2),
    )
    transaction_two_phase_commit_enable: bool = BOOLEAN(
        False,
        "producers may ask for transactions that never time out (KIP-939), by InitProducerId version 6, which "
        "unstable.api.versions.enable offers",
    )
    unstable_api_versions_enable: bool = BOOLEAN(
        False, "offer the versions of APIs that Kafka's releases do not offer by default: InitProducerId 6"
    )
    transaction_max_timeout_ms: int = INT(
        900000, "longest transaction time-out that a producer may request, ms", at_least(1)
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = INT(
        10000, "interval between checks for transactions that have exceeded their time-out, ms", at_least(1)
    )
    transactional_id_expiration_ms: int = INT(_WEEK_MS, "how long an unused transactional id is kept, ms", at_least(1))
    transaction_remove_expired_transaction_cleanup_interval_ms: int = INT(
        3600000, "interval between checks for expired transactional ids, ms", at_least(1)
    )


@dataclass(frozen=True)
class BrokerConfig(SslConfig, NodeConfig):
    """Options of every node of a cluster, with those of listeners whose protocol is not PLAINTEXT (apache/kafka
    ``BrokerSecurityConfigs``)."""

    ssl_client_auth: str = STRING(
        "none",
        "whether clients of TLS listeners must present a certificate that the truststore verifies",
        one_of("none", "requested", "required"),
    )
    sasl_enabled_mechanisms: tuple[str, ...] = LIST(
        (),
        "SASL mechanisms that clients of SASL_… listeners may use (Kafka: GSSAPI); OAUTHBEARER accepts unsecured "
        "tokens, as Kafka does by default, so it is for tests only",
        Validator(_SERVED_NAMES, lambda names: set(names) <= set(SERVED)),
    )
    sasl_jaas_config: str = STRING(
        "",
        'users and passwords for PLAIN and SCRAM, as in Kafka: …PlainLoginModule required user_alice="…" '
        'user_bob="…"; for SCRAM only salted keys are kept (Kafka: listener.name.NAME.plain.sasl.jaas.config)',
        sensitive=True,
    )
    sasl_server_max_receive_size: int = INT(
        524_288, "maximum size of a request before the client has authenticated, bytes", between(1, INT32_MAX)
    )
    connections_max_reauth_ms: int = INT(
        0,
        "time after which clients must re-authenticate, or their connection is closed, ms; 0 = never (KIP-368)",
        between(0, INT32_MAX),
    )
    connection_failed_authentication_delay_ms: int = INT(
        100,
        "how long the response to a failed authentication is delayed before the connection is closed, ms (KIP-306)",
        between(0, 10_000),
    )
    authorizer_class_name: str = STRING(
        "",
        f"{AUTHORIZER} enforces ACLs on every listener; by default everybody may do everything",
        Validator(f"{AUTHORIZER}, or nothing", lambda name: name in ("", AUTHORIZER)),
    )
    super_users: str = STRING(
        "",
        "principals that may do everything whatever the ACLs say, separated by semicolons: User:admin;User:ANONYMOUS; "
        "only with authorizer.class.name",
        Validator(
            "User:name, and semicolons between several", lambda text: all(":" in name for name in _principals(text))
        ),
    )
    allow_everyone_if_no_acl_found: bool = BOOLEAN(
        False, "whether everybody may use a resource for which there is no ACL; only with authorizer.class.name"
    )

    @property
    def super_user_names(self) -> frozenset[str]:
        """The principals in ``super.users``."""
        return _principals(self.super_users)
