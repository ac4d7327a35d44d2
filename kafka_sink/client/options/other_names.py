"""Remedies for the option names of other clients: librdkafka's, kafka-python's, old ones of Kafka's; and the options
of Kafka's Java clients that are not options here, each with the reason. Also the options in shared files that only
other programs read: consumers, admin clients, Streams, Connect, registries.

Data only; read when a configuration is parsed. A hint must preserve the meaning: if units or formats differ, or if
there is no equivalent, the text says so. A configuration for a Java client works here, unless one of its options would
change the guarantees of the client: such an option is refused. ``{prefix}`` is the prefix of the user's option
names.

Source: librdkafka's ``CONFIGURATION.md``; kafka-python's and aiokafka's ``KafkaProducer``; the ``ProducerConfig`` of
Kafka 0.8 to 0.10; apache/kafka ``ProducerConfig``, ``CommonClientConfigs``, ``SslConfigs``, ``SaslConfigs``,
``StreamsConfig``, whose names a test compares with those of Kafka's own jar; Confluent's
``AbstractKafkaSchemaSerDeConfig``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from kafka_sink.common.text import words
from kafka_sink.common.tls_config import ClientSslConfig

PRODUCERS: Final = words("""
    acks batch.size buffer.memory compression.gzip.level compression.lz4.level compression.type compression.zstd.level
    delivery.timeout.ms enable.idempotence interceptor.classes key.serializer linger.ms max.block.ms max.request.size
    metrics.num.samples metrics.sample.window.ms partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys retries transaction.timeout.ms
    transaction.two.phase.commit.enable transactional.id value.serializer
""")
CONSUMERS: Final = words("""
    allow.auto.create.topics auto.commit.interval.ms auto.offset.reset check.crcs client.rack default.api.timeout.ms
    enable.auto.commit exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id
    group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms isolation.level key.deserializer
    max.partition.fetch.bytes max.poll.interval.ms max.poll.records partition.assignment.strategy session.timeout.ms
    share.acknowledgement.mode share.acquire.mode value.deserializer
""")
#: Further options of librdkafka's consumers.
LIBRDKAFKA_CONSUMERS: Final = words("""
    auto.commit.enable consume.callback.max.messages coordinator.query.interval.ms enable.auto.offset.store
    enable.partition.eof fetch.error.backoff.ms fetch.message.max.bytes fetch.queue.backoff.ms fetch.wait.max.ms
    group.protocol.type offset.store.method offset.store.path offset.store.sync.interval.ms queued.max.messages.kbytes
    queued.min.messages
""")
ADMIN_CLIENTS: Final = ("bootstrap.controllers",)
STREAMS: Final = words("""
    acceptable.recovery.lag allow.os.group.write.access application.id application.server buffered.records.per.partition
    built.in.metrics.version cache.max.bytes.buffering commit.interval.ms default.client.supplier
    default.deserialization.exception.handler default.dsl.store default.key.serde default.production.exception.handler
    default.timestamp.extractor default.value.serde deserialization.exception.handler dsl.store.format
    dsl.store.suppliers.class ensure.explicit.internal.resource.naming errors.dead.letter.queue.topic.name
    log.summary.interval.ms max.task.idle.ms max.warmup.replicas num.standby.replicas num.stream.threads poll.ms
    probing.rebalance.interval.ms processing.exception.handler processing.exception.handler.global.enabled
    processing.guarantee processor.wrapper.class production.exception.handler rack.aware.assignment.non_overlap_cost
    rack.aware.assignment.strategy rack.aware.assignment.tags rack.aware.assignment.traffic_cost
    repartition.purge.interval.ms replication.factor rocksdb.config.setter state.cleanup.delay.ms
    state.cleanup.dir.max.age.ms state.dir statestore.cache.max.bytes task.assignor.class task.timeout.ms
    topology.optimization upgrade.from window.size.ms windowed.inner.class.serde
    windowstore.changelog.additional.retention.ms
""")
CONNECT: Final = words("""
    access.control.allow.methods access.control.allow.origin admin.listeners config.storage.replication.factor
    config.storage.topic connect.protocol connector.client.config.override.policy exactly.once.source.support
    header.converter inter.worker.key.generation.algorithm inter.worker.key.size inter.worker.key.ttl.ms
    inter.worker.signature.algorithm inter.worker.verification.algorithms key.converter listeners
    offset.flush.interval.ms offset.flush.timeout.ms offset.storage.file.filename offset.storage.partitions
    offset.storage.replication.factor offset.storage.topic plugin.discovery plugin.path rebalance.timeout.ms
    response.http.headers.config rest.advertised.host.name rest.advertised.listener rest.advertised.port
    rest.extension.classes scheduled.rebalance.max.delay.ms ssl.client.auth status.storage.partitions
    status.storage.replication.factor status.storage.topic task.shutdown.graceful.timeout.ms topic.creation.enable
    topic.tracking.allow.reset topic.tracking.enable value.converter worker.sync.timeout.ms worker.unsync.backoff.ms
""")
#: Options of Confluent's serializers and deserializers.
REGISTRY_CLIENTS: Final = words("""
    auto.register.schemas avro.reflection.allow.null avro.remove.java.properties avro.use.logical.type.converters
    basic.auth.credentials.source basic.auth.user.info bearer.auth.cache.expiry.buffer.seconds bearer.auth.client.id
    bearer.auth.client.secret bearer.auth.credentials.source bearer.auth.identity.pool.id
    bearer.auth.issuer.endpoint.url bearer.auth.logical.cluster bearer.auth.scope bearer.auth.scope.claim.name
    bearer.auth.sub.claim.name bearer.auth.token context.name.strategy derive.type http.connect.timeout.ms
    http.read.timeout.ms id.compatibility.strict json.default.property.inclusion json.fail.invalid.schema
    json.fail.unknown.properties json.key.type json.oneof.for.nullables json.schema.scan.packages
    json.schema.spec.version json.value.type json.write.dates.iso8601 key.schema.id.deserializer
    key.schema.id.serializer key.subject.name.strategy latest.cache.size latest.cache.ttl.sec
    latest.compatibility.strict max.schemas.per.subject missing.cache.size missing.id.cache.ttl.sec
    missing.id.query.range missing.schema.cache.ttl.sec missing.version.cache.ttl.sec normalize.schemas
    propagate.schema.tags proxy.host proxy.port reference.lookup.only reference.subject.name.strategy rule.actions
    rule.executors rule.service.loader.enable schema.format schema.id.deserializer schema.id.serializer
    schema.reflection schema.registry.url skip.known.types specific.avro.key.type specific.avro.reader
    specific.avro.value.type specific.protobuf.key.type specific.protobuf.value.type subject.name.strategy
    subject.name.strategy.conf subject.name.strategy.type type.property use.deprecated.format use.latest.version
    use.latest.with.metadata use.schema.id validate validate.strict validate.strict.allow.default
    validation.rules.execution validation.rules.executor validation.rules.fail.fast value.schema.id.deserializer
    value.schema.id.serializer value.subject.name.strategy
""")

BY_READER: Final[Mapping[str, tuple[str, ...]]] = {
    "for producers": PRODUCERS,
    "for consumers": (*CONSUMERS, *LIBRDKAFKA_CONSUMERS),
    "for admin clients": ADMIN_CLIENTS,
    "for Kafka Streams": STREAMS,
    "for Kafka Connect": CONNECT,
    "for clients of a schema registry": REGISTRY_CLIENTS,
}
READERS: Final[Mapping[str, str]] = {name: reader for reader, names in BY_READER.items() for name in names}
#: Prefixes of the options that Streams and Connect pass on to their own clients.
_OF_INNER_CLIENTS: Final = re.compile(
    r"(?:(?:main|restore|global)\.)?(?:consumer|producer|admin)\.(?:override\.)?(?=[a-z])"
)
#: Prefixes of the options that they pass on to converters, topics and clients of a registry.
_OF_INNER_PARTS: Final = (
    ("topic.", "for Kafka Streams"),
    ("key.converter.", "for Kafka Connect"),
    ("value.converter.", "for Kafka Connect"),
    ("header.converter.", "for Kafka Connect"),
    ("config.storage.", "for Kafka Connect"),
    ("offset.storage.", "for Kafka Connect"),
    ("status.storage.", "for Kafka Connect"),
    ("schema.registry.basic.auth.", "for clients of a schema registry"),
    ("schema.registry.bearer.auth.", "for clients of a schema registry"),
    ("schema.registry.ssl.", "for clients of a schema registry"),
)


def reader_of(name: str) -> str | None:
    """The reader of the option *name*, as in "for consumers"; None if no other program is known to read it."""
    if reader := READERS.get(name):
        return reader
    if inner := _OF_INNER_CLIENTS.match(name):
        return f"for the {inner[0].rstrip('.')} of Kafka Streams or Kafka Connect"
    return next((reader for begin, reader in _OF_INNER_PARTS if name.startswith(begin)), None)


def is_of_registry_clients(name: str) -> bool:
    """Whether *name* is for clients of a schema registry, such as a user's own serializer."""
    return reader_of(name) == "for clients of a schema registry"


_TOKENS_ARE_CHECKED_BY_BROKERS: Final = "the brokers validate tokens, and clients pass them on"
_BUILT_IN: Final = "the providers env, file and dir are built in"
_TICKETS: Final = (
    "the Kerberos library renews tickets from a keytab, and the program that filled a ticket cache renews the cache"
)
_OWN_FIGURES: Final = "metrics are available from the producer's metrics() and prometheus()"

#: Options that are accepted with a warning, because the guarantees are the same without them.
NO_EFFECT: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        words("config.providers.env.class config.providers.file.class config.providers.dir.class"), _BUILT_IN
    ),
    **dict.fromkeys(
        words("""
        sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.ticket.renew.jitter
        sasl.kerberos.ticket.renew.window.factor
    """),
        _TICKETS,
    ),
    **dict.fromkeys(
        words("""
        sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
        sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
        sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
    """),
        _TOKENS_ARE_CHECKED_BY_BROKERS,
    ),
    **ClientSslConfig.NO_EFFECT,
    "metric.reporters": _OWN_FIGURES,
    "auto.include.jmx.reporter": _OWN_FIGURES,
    "metrics.recording.level": "all metrics are always recorded",
    "enable.metrics.push": "no metrics are sent to the brokers (KIP-714)",
}

_YOUR_TOKENS: Final = "tokens come from your function, named by {prefix}sasl.login.callback.handler.class"
_READ_AS_USER: Final = (
    "what references may read is limited by the permissions of the process's user only; {prefix}config.providers turns "
    "providers off"
)

#: Options that are refused, because the client cannot comply with them; ``{prefix}`` is that of the user.
NOT_SUPPORTED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        words("""
        config.providers.file.param.allowed.paths config.providers.dir.param.allowed.paths
        config.providers.env.param.allowlist.pattern
    """),
        _READ_AS_USER,
    ),
    **ClientSslConfig.NOT_SUPPORTED,
    "sasl.login.class": f"Java classes cannot be used; {_YOUR_TOKENS}",
    "sasl.oauthbearer.assertion.template.file": "set {prefix}sasl.oauthbearer.assertion.claim.…",
}


#: Aliases: values and units are those of the Java name.
SAME: Final[Mapping[str, str]] = {
    "bootstrap": "bootstrap.servers",
    "bootstrap.brokers": "bootstrap.servers",
    "bootstrap.server": "bootstrap.servers",
    "broker.list": "bootstrap.servers",
    "brokers": "bootstrap.servers",
    "compression.codec": "compression.type",
    "max.batch.size": "batch.size",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "metadata.broker.list": "bootstrap.servers",
    "queue.buffering.max.ms": "linger.ms",
    "request.required.acks": "acks",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.plain.password": "sasl.password",
    "sasl.plain.username": "sasl.username",
    "send.buffer.size": "send.buffer.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.timeout.ms": "request.timeout.ms",
    "ssl.ciphers": "ssl.cipher.suites",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
}

_CA: Final = "name the file of certificates with {prefix}ssl.truststore.location (PEM)"
_KEY_FILE: Final = (
    "put private key and certificates into one PEM file, and name it with {prefix}ssl.keystore.location; or set both "
    "as text with {prefix}ssl.keystore.key and {prefix}ssl.keystore.certificate.chain"
)
_VERIFIED: Final = (
    "certificates of brokers are always verified; name those of your CA with {prefix}ssl.truststore.location; only "
    "the check of the host name can be turned off, with an empty {prefix}ssl.endpoint.identification.algorithm"
)
_BY_BYTES: Final = "remove it; {prefix}buffer.memory limits what waits, in bytes and not in messages"
_KERBEROS: Final = (
    '{prefix}sasl.jaas.config has it: com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="…" '
    'principal="…";'
)
_BY_CODEC: Final = (
    "the level has a name for each codec: {prefix}compression.gzip.level, {prefix}compression.lz4.level, "
    "{prefix}compression.zstd.level"
)
_LOGGED: Final = "remove it; Python's logging says what is logged, by the logger kafka_sink"
_REPORTED: Final = "remove it; send() takes a callback, and returns a future"
_FIGURES: Final = "remove it; metrics() and prometheus() have the figures"
_FOUND_OUT: Final = "remove it; the versions of brokers are found out for each connection"
_NOTHING: Final = "remove it; nothing here corresponds to it"
_CALLBACK: Final = "set {prefix}sasl.login.callback.handler.class to a function that returns a token"
_TIME_OUT: Final = (
    "{prefix}max.block.ms limits how long send waits, {prefix}request.timeout.ms how long an answer may take, and "
    "{prefix}delivery.timeout.ms all of it"
)

#: Options without an equivalent here, or with another form.
OTHERWISE: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        words("""
        api.version api.version.auto.timeout.ms api.version.fallback.ms api.version.request
        api.version.request.timeout.ms broker.version.fallback
    """),
        _FOUND_OUT,
    ),
    **dict.fromkeys(
        words("""
        broker.address.family broker.address.ttl message.copy.max.bytes queue.buffering.backpressure.threshold
        queuing.strategy socket.keepalive.enable socket.max.fails socket.options ssl.engine.id ssl.engine.location
        ssl.providers sticky.partitioning.linger.ms
    """),
        _NOTHING,
    ),
    **dict.fromkeys(
        words("client.cert client.key ssl.certfile ssl.certificate.location ssl.key.location ssl.keyfile"),
        _KEY_FILE,
    ),
    **dict.fromkeys(
        words("debug error.cb log.cb log.connection.close log.level log.queue log.thread.name logger"),
        _LOGGED,
    ),
    **dict.fromkeys(words("delivery.report.only.error dr.cb dr.msg.cb on.delivery produce.offset.report"), _REPORTED),
    **dict.fromkeys(words("ssl.ca ssl.ca.certificate.stores ssl.ca.location ssl.cafile"), _CA),
    "auto.create.topics.enable": "remove it; it is an option of brokers",
    "batch.num.messages": "{prefix}batch.size limits batches, in bytes and not in messages",
    "block.on.buffer.full": "{prefix}max.block.ms says how long send waits for memory; 0 = not at all",
    "compression.level": _BY_CODEC,
    "enable.gapless.guarantee": "remove it; {prefix}enable.idempotence=true, the default, keeps the order of records",
    "enable.ssl.certificate.verification": _VERIFIED,
    "key.serializer.class": "set {prefix}key.serializer: bytes, string, integer, long, json, or a class of yours",
    "message.max.bytes": (
        "{prefix}max.request.size limits a record and a request, in bytes; brokers have an option message.max.bytes"
    ),
    "metadata.fetch.timeout.ms": "{prefix}max.block.ms says how long send waits for a topic's metadata",
    "partitioner": (
        "remove it if it is murmur2_random, which is how partitions are chosen by default; otherwise name a class with "
        "{prefix}partitioner.class"
    ),
    "producer.type": "remove it; send() never waits for an acknowledgement; its future does",
    "queue.buffering.max.kbytes": "set {prefix}buffer.memory, in bytes and not in KiB",
    "queue.buffering.max.messages": _BY_BYTES,
    "queue.enqueue.timeout.ms": "{prefix}max.block.ms says how long send waits for memory; 0 = not at all",
    "reconnect.backoff.jitter.ms": "remove it; {prefix}reconnect.backoff.ms has its own random share",
    "sasl.kerberos.keytab": _KERBEROS,
    "sasl.kerberos.principal": _KERBEROS,
    "sasl.oauth.token.provider": _CALLBACK,
    "sasl.oauthbearer.assertion.jwt.template.file": "set {prefix}sasl.oauthbearer.assertion.claim.…",
    "sasl.oauthbearer.assertion.private.key.pem": (
        "name a file with it: {prefix}sasl.oauthbearer.assertion.private.key.file"
    ),
    "sasl.oauthbearer.config": _CALLBACK,
    "sasl.oauthbearer.extensions": (
        'they stand in {prefix}sasl.jaas.config: …OAuthBearerLoginModule required extension_NAME="…";'
    ),
    "sasl.oauthbearer.grant.type": (
        "remove it for client_credentials; {prefix}sasl.oauthbearer.jwt.retriever.class=JwtBearerJwtRetriever stands "
        "for jwt-bearer"
    ),
    "sasl.oauthbearer.method": (
        "remove it; {prefix}sasl.oauthbearer.token.endpoint.url asks an identity provider for tokens (oidc), and "
        "{prefix}sasl.login.callback.handler.class a function of yours"
    ),
    "serializer.class": "set {prefix}value.serializer: bytes, string, integer, long, json, or a class of yours",
    "socket.nagle.disable": "remove it; the Nagle algorithm is always disabled",
    "ssl.ca.pem": "set {prefix}ssl.truststore.certificates, the text of the certificates",
    "ssl.certificate.pem": "set {prefix}ssl.keystore.certificate.chain, and {prefix}ssl.keystore.key with it",
    "ssl.check.hostname": "an empty {prefix}ssl.endpoint.identification.algorithm turns the check of the host name off",
    "ssl.context": "set {prefix}ssl.truststore.location and {prefix}ssl.keystore.location (PEM)",
    "ssl.crl.location": "remove it; lists of revoked certificates are not read",
    "ssl.crlfile": "remove it; lists of revoked certificates are not read",
    "ssl.key.pem": "set {prefix}ssl.keystore.key, and {prefix}ssl.keystore.certificate.chain with it",
    "ssl.password": "set {prefix}ssl.key.password, the password of the private key",
    "statistics.interval.ms": _FIGURES,
    "stats.cb": _FIGURES,
    "timeout.ms": _TIME_OUT,
    "topic.metadata.propagation.max.ms": "{prefix}max.block.ms says how long send waits for a topic's metadata",
    "topic.metadata.refresh.fast.interval.ms": "{prefix}retry.backoff.ms is the wait before the next request",
    "topic.metadata.refresh.sparse": "remove it; only the topics in use are asked for",
}


def instead_of(name: str, prefix: str, known: Collection[str]) -> str | None:
    """The remedy for *name*, an option of another client; None if no client is known to have it. *known*
    are the options that can be set."""
    plain = name.lower().replace("_", ".")
    if java := SAME.get(plain):
        return f"set {prefix}{java}"
    if text := OTHERWISE.get(plain):
        return text.replace("{prefix}", prefix)
    if plain == name:
        return None
    # kafka-python and aiokafka write Kafka's own names with underscores.
    if plain in known:
        return f"set {prefix}{plain}"
    reader = reader_of(plain)
    return f"remove it; {plain} is {reader}" if reader else None
