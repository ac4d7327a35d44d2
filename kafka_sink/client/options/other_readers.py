"""Options that stand in shared files and that only others read: consumers, admin clients, Streams, Connect, registries.

Data only; read when a configuration is parsed. A client takes such a name, and one warning says whom it is for.

Source: the ``configNames()`` of apache/kafka 4.3.0, whose ``ConsumerConfig``, ``ProducerConfig``, ``AdminClientConfig``
and ``DistributedConfig`` tests ask; its ``StreamsConfig``; Confluent's ``AbstractKafkaSchemaSerDeConfig``; librdkafka's
``CONFIGURATION.md`` (the properties for consumers).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kafka_sink.common.text import words

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
#: What consumers of librdkafka have besides.
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
#: What Confluent's serializers and deserializers read.
REGISTRY_CLIENTS: Final = words("""
    auto.register.schemas avro.reflection.allow.null avro.remove.java.properties avro.use.logical.type.converters
    basic.auth.credentials.source basic.auth.user.info bearer.auth.cache.expiry.buffer.seconds bearer.auth.client.id
    bearer.auth.client.secret bearer.auth.credentials.source bearer.auth.identity.pool.id
    bearer.auth.issuer.endpoint.url bearer.auth.logical.cluster bearer.auth.scope bearer.auth.scope.claim.name
    bearer.auth.sub.claim.name bearer.auth.token http.connect.timeout.ms http.read.timeout.ms id.compatibility.strict
    json.fail.invalid.schema json.key.type json.oneof.for.nullables json.value.type key.subject.name.strategy
    latest.cache.size latest.cache.ttl.sec latest.compatibility.strict max.schemas.per.subject normalize.schemas
    proxy.host proxy.port reference.subject.name.strategy schema.format schema.reflection schema.registry.url
    specific.avro.key.type specific.avro.reader specific.avro.value.type specific.protobuf.key.type
    specific.protobuf.value.type use.latest.version use.latest.with.metadata use.schema.id value.subject.name.strategy
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
#: The beginnings of names that Streams and Connect pass on to clients of their own.
_OF_INNER_CLIENTS: Final = re.compile(
    r"(?:(?:main|restore|global)\.)?(?:consumer|producer|admin)\.(?:override\.)?(?=[a-z])"
)
#: The same of what they pass on to converters, topics and clients of a registry.
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
    """Whom the option *name* is for, as in "for consumers"; None if no other program is known to read it."""
    if reader := READERS.get(name):
        return reader
    if inner := _OF_INNER_CLIENTS.match(name):
        return f"for the {inner[0].rstrip('.')} of Kafka Streams or Kafka Connect"
    return next((reader for begin, reader in _OF_INNER_PARTS if name.startswith(begin)), None)


def is_of_registry_clients(name: str) -> bool:
    """Whether *name* is for clients of a schema registry, which a user's own serializer may be."""
    return reader_of(name) == "for clients of a schema registry"
