"""What to write instead of the names that other clients have: librdkafka's, kafka-python's, old ones of Kafka's.

Data only; read when a name is unknown. A hint stands here only if it keeps the meaning: where units or forms differ,
the text says so, and where nothing corresponds it says that too. ``{prefix}`` is that of the user's names.

Source: librdkafka's ``CONFIGURATION.md``; kafka-python's and aiokafka's ``KafkaProducer``; the ``ProducerConfig`` of
Kafka 0.8 to 0.10.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from kafka_sink.client.options.other_readers import reader_of

#: Another name for the same: values and units are those of the Java name.
_SAME: Final[Mapping[str, str]] = {
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

#: What has no name of its own here, or another form.
_OTHERWISE: Final[Mapping[str, str]] = {
    "api.version": _FOUND_OUT,
    "api.version.auto.timeout.ms": _FOUND_OUT,
    "api.version.fallback.ms": _FOUND_OUT,
    "api.version.request": _FOUND_OUT,
    "api.version.request.timeout.ms": _FOUND_OUT,
    "auto.create.topics.enable": "remove it; it is an option of brokers",
    "batch.num.messages": "{prefix}batch.size limits batches, in bytes and not in messages",
    "block.on.buffer.full": "{prefix}max.block.ms says how long send waits for memory; 0 = not at all",
    "broker.address.family": _NOTHING,
    "broker.address.ttl": _NOTHING,
    "broker.version.fallback": _FOUND_OUT,
    "client.cert": _KEY_FILE,
    "client.key": _KEY_FILE,
    "compression.level": _BY_CODEC,
    "debug": _LOGGED,
    "delivery.report.only.error": _REPORTED,
    "dr.cb": _REPORTED,
    "dr.msg.cb": _REPORTED,
    "enable.gapless.guarantee": "remove it; {prefix}enable.idempotence=true, the default, keeps the order of records",
    "enable.ssl.certificate.verification": _VERIFIED,
    "error.cb": _LOGGED,
    "key.serializer.class": "set {prefix}key.serializer: bytes, string, integer, long, json, or a class of yours",
    "log.cb": _LOGGED,
    "log.connection.close": _LOGGED,
    "log.level": _LOGGED,
    "log.queue": _LOGGED,
    "log.thread.name": _LOGGED,
    "message.copy.max.bytes": _NOTHING,
    "message.max.bytes": (
        "{prefix}max.request.size limits a record and a request, in bytes; brokers have an option message.max.bytes"
    ),
    "logger": _LOGGED,
    "metadata.fetch.timeout.ms": "{prefix}max.block.ms says how long send waits for a topic's metadata",
    "on.delivery": _REPORTED,
    "partitioner": (
        "remove it if it is murmur2_random, which is how partitions are chosen by default; otherwise name a class with "
        "{prefix}partitioner.class"
    ),
    "produce.offset.report": _REPORTED,
    "producer.type": "remove it; send() never waits for an acknowledgement; its future does",
    "queue.buffering.backpressure.threshold": _NOTHING,
    "queue.buffering.max.kbytes": "set {prefix}buffer.memory, in bytes and not in KiB",
    "queue.buffering.max.messages": _BY_BYTES,
    "queue.enqueue.timeout.ms": "{prefix}max.block.ms says how long send waits for memory; 0 = not at all",
    "queuing.strategy": _NOTHING,
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
    "socket.keepalive.enable": _NOTHING,
    "socket.max.fails": _NOTHING,
    "socket.nagle.disable": "remove it; the Nagle algorithm is always disabled",
    "socket.options": _NOTHING,
    "ssl.ca": _CA,
    "ssl.ca.certificate.stores": _CA,
    "ssl.ca.location": _CA,
    "ssl.ca.pem": "set {prefix}ssl.truststore.certificates, the text of the certificates",
    "ssl.cafile": _CA,
    "ssl.certfile": _KEY_FILE,
    "ssl.certificate.location": _KEY_FILE,
    "ssl.certificate.pem": "set {prefix}ssl.keystore.certificate.chain, and {prefix}ssl.keystore.key with it",
    "ssl.check.hostname": "an empty {prefix}ssl.endpoint.identification.algorithm turns the check of the host name off",
    "ssl.context": "set {prefix}ssl.truststore.location and {prefix}ssl.keystore.location (PEM)",
    "ssl.crl.location": "remove it; lists of revoked certificates are not read",
    "ssl.crlfile": "remove it; lists of revoked certificates are not read",
    "ssl.engine.id": _NOTHING,
    "ssl.engine.location": _NOTHING,
    "ssl.key.location": _KEY_FILE,
    "ssl.key.pem": "set {prefix}ssl.keystore.key, and {prefix}ssl.keystore.certificate.chain with it",
    "ssl.keyfile": _KEY_FILE,
    "ssl.password": "set {prefix}ssl.key.password, the password of the private key",
    "ssl.providers": _NOTHING,
    "statistics.interval.ms": _FIGURES,
    "stats.cb": _FIGURES,
    "sticky.partitioning.linger.ms": _NOTHING,
    "timeout.ms": _TIME_OUT,
    "topic.metadata.propagation.max.ms": "{prefix}max.block.ms says how long send waits for a topic's metadata",
    "topic.metadata.refresh.fast.interval.ms": "{prefix}retry.backoff.ms is the wait before the next request",
    "topic.metadata.refresh.sparse": "remove it; only the topics in use are asked for",
}

#: The names that have a hint, with dots and in small letters.
KNOWN: Final = frozenset({*_SAME, *_OTHERWISE})


def instead_of(name: str, prefix: str, known: Collection[str]) -> str | None:
    """What to do instead of setting *name*, a name of another client; None if no client is known to have it. *known*
    are the options that can be set.
    """
    plain = name.lower().replace("_", ".")
    if java := _SAME.get(plain):
        return f"set {prefix}{java}"
    if text := _OTHERWISE.get(plain):
        return text.replace("{prefix}", prefix)
    if plain == name:
        return None
    # kafka-python and aiokafka write Kafka's own names with underscores.
    if plain in known:
        return f"set {prefix}{plain}"
    reader = reader_of(plain)
    return f"remove it; {plain} is {reader}" if reader else None
