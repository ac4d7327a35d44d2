"""The producer's configuration table: Kafka's property names, types and defaults.

The public class reads it once, on the calling thread. The defaults are those of Apache Kafka's newest producer
(ProducerConfig of kafka-clients 4.x). Where the meaning of a key differs here, its text says so.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kafka_sink.client.login.channel_security import create_channel_builder
from kafka_sink.client.login.credentials import is_java_handler, is_of_aws
from kafka_sink.client.options.config import ClientConfig
from kafka_sink.client.options.other_names import is_of_registry_clients
from kafka_sink.common import config as c
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.log_context import warn
from kafka_sink.common.references import PROVIDERS, has_reference, replaced_by

_log = logging.getLogger(__name__)

#: Fields whose references are replaced for each connection.
_OF_KEYS = frozenset(
    {"ssl_keystore_key", "ssl_keystore_certificate_chain", "ssl_keystore_password", "ssl_key_password"}
)
_OF_TRUST = frozenset({"ssl_truststore_certificates", "ssl_truststore_password"})
_CREDENTIALS = _OF_KEYS | _OF_TRUST | {"sasl_jaas_config", "sasl_username", "sasl_password"}
#: The placeholder of a value that only the process that connects knows.
_UNKNOWN = "unknown"
#: The prefixes of security options, which are never a plugin's; and a secret of a login module that is no reference.
_OF_SECURITY = re.compile(r"(?:enable[._])?(?:ssl|sasl|security|client)[._]", re.IGNORECASE)
_OF_LOGIN = re.compile(r"(?i)(?:password|secret)\s*=\s*(?!\s|[\"']?\$\{(?:env|file|dir):)[\"']?[^\"';\s]")

_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1

#: The number of batches that fit into buffer.memory if the default of batch.size is lowered because of it.
_BATCHES_IN_MEMORY = 8

#: The level that selects lz4 without its high-compression mode in Kafka, whose levels are those of lz4-java.
_LZ4_FAST = 9
#: The highest level of lz4; Kafka's 17 means the same.
_LZ4_HIGHEST = 16


@dataclass(frozen=True)
class ProducerConfig(ClientConfig):
    """All options of a :class:`KafkaProducer`."""

    acks: str = c.STRING(
        "all",
        "acknowledgements to wait for: from all in-sync replicas (all or -1), from the leader (1), none (0)",
        c.one_of("all", "-1", "0", "1"),
    )
    retries: int = c.INT(_INT_MAX, "maximum number of times that a failed batch is sent again", c.between(0, _INT_MAX))
    batch_size_bytes: int = c.INT(
        16384,
        "maximum size of a partition's batch before compression, bytes; large batches start small in buffer.memory "
        "and grow",
        c.between(0, 2**30),
        name="batch.size",
    )
    linger_ms: int = c.INT(5, "how long a batch that is not full may wait for more records, ms", c.between(0, _INT_MAX))
    buffer_memory_bytes: int = c.INT(
        33554432,
        "hard limit on the unacknowledged data that one producer holds, bytes; send blocks when it is reached",
        c.between(1, _LONG_MAX),
        name="buffer.memory",
    )
    max_request_size_bytes: int = c.INT(
        1048576,
        "maximum size of a record, and of the batches in one produce request, bytes",
        c.between(1, _INT_MAX),
        name="max.request.size",
    )
    max_block_ms: int = c.INT(
        60000,
        "how long send may block, waiting for the topic's metadata and for buffer memory together, ms",
        c.between(0, _LONG_MAX),
    )
    delivery_timeout_ms: int = c.INT(
        120000,
        "upper bound of the time from sending a record to its acknowledgement or failure, including retries, ms; at "
        "least linger.ms + request.timeout.ms",
        c.between(0, _INT_MAX),
    )
    compression_type: str = c.STRING(
        "none", "compression codec of the batches", c.one_of("none", "gzip", "snappy", "lz4", "zstd")
    )
    compression_gzip_level: int = c.INT(
        -1,
        "compression level of gzip",
        c.Validator("from 1 to 9, or -1 for gzip's default", lambda level: level == -1 or 1 <= level <= 9),
    )
    compression_lz4_level: int = c.INT(
        _LZ4_FAST,
        "compression level of lz4; 9, the default, selects its fast mode rather than a level, as in Kafka; other "
        "levels above 2 are slower and compress better",
        c.between(1, 17),
    )
    compression_zstd_level: int = c.INT(3, "compression level of zstd", c.between(-131072, 22))
    enable_idempotence: bool = c.BOOLEAN(
        True,
        "the broker discards duplicate batches and rejects gaps, so a retry neither duplicates nor reorders records "
        "(KIP-98); needs acks=all, retries above 0 and max.in.flight.requests.per.connection of at most 5; unless "
        "it is set explicitly, other acks or retries=0 disable it with a warning",
    )
    transactional_id: str | None = c.STRING(
        None,
        "id of this producer's transactions; a newer producer with the same id fences this one",
        c.Validator("a name", bool),
    )
    transaction_timeout_ms: int = c.INT(
        60000,
        "how long a transaction may stay open before the brokers abort it, ms; at most their "
        "transaction.max.timeout.ms (15 minutes)",
        c.between(1, _INT_MAX),
    )
    transaction_two_phase_commit_enable: bool = c.BOOLEAN(
        False,
        "transactions have no time-out, and stay open until a program ends them (KIP-939); brokers must offer it. "
        "Spark's exactly-once writes with one transaction for each task then lose nothing in an outage of any length",
    )

    key_serializer: str | object = c.PLUGIN(
        "bytes", "serializer of record keys: bytes, string, integer, long, json, or the dotted path of a class"
    )
    value_serializer: str | object = c.PLUGIN(
        "bytes", "serializer of record values: bytes, string, integer, long, json, or the dotted path of a class"
    )
    partitioner_class: str | object = c.PLUGIN(
        None,
        "partitioner: round-robin, or the dotted path of a class; if it is not set, the hash of the key decides, "
        "and records without a key stay with a partition for batch.size bytes (KIP-794)",
    )
    partitioner_ignore_keys: bool = c.BOOLEAN(
        False, "choose partitions as if no record had a key; has no effect with a partitioner.class"
    )
    partitioner_adaptive_partitioning_enable: bool = c.BOOLEAN(
        True,
        "send fewer of the records without a key to partitions whose brokers are slow; has no effect with a "
        "partitioner.class",
    )
    partitioner_availability_timeout_ms: int = c.INT(
        0,
        "exclude partitions whose broker has accepted no batch for this long, ms; 0 = never; needs "
        "partitioner.adaptive.partitioning.enable",
        c.between(0, _LONG_MAX),
    )
    interceptor_classes: tuple[Any, ...] = c.PLUGINS(
        (), "dotted paths of interceptor classes, which see every record before it is sent and every outcome"
    )
    metrics_num_samples: int = c.INT(
        2, "number of windows over which rates and averages are computed", c.between(1, _INT_MAX)
    )
    metrics_sample_window_ms: int = c.INT(30000, "length of one such window, ms", c.between(1, _INT_MAX))

    @property
    def acks_code(self) -> int:
        """acks as the protocol encodes it: -1, 0 or 1."""
        return -1 if self.acks == "all" else int(self.acks)

    @property
    def compression_level(self) -> int | None:
        """The level of the chosen codec; None for the default level, and for codecs without levels."""
        if self.compression_type == "gzip" and self.compression_gzip_level != -1:
            return self.compression_gzip_level
        if self.compression_type == "lz4" and self.compression_lz4_level != _LZ4_FAST:
            return min(self.compression_lz4_level, _LZ4_HIGHEST)
        return self.compression_zstd_level if self.compression_type == "zstd" else None


_NAMES_OF_PLUGINS = ("partitioner.class", "key.serializer", "value.serializer", "interceptor.classes")

_IN_FLIGHT_MAX = 5
_IDEMPOTENCE_NEEDS = f"needs acks=all, retries above 0 and at most {_IN_FLIGHT_MAX} requests in flight"


def names_for_plugins(properties: Mapping[str, Any], *, are_given: bool = False) -> frozenset[str]:
    """The names in *properties* that are meant for the user's own plugins, as Kafka's Java client passes all properties
    to them.

    These are the names that are not Kafka's, if there is such a plugin; the names of a schema registry's clients are
    among them. Names that are almost Kafka's are left out, so that they are refused as unknown.

    :param are_given: whether a plugin was passed as an object.
    """
    if not are_given and not any(_is_users_own(properties.get(name)) for name in _NAMES_OF_PLUGINS):
        return frozenset()
    kafka_names = [*c.keys(ProducerConfig), *ProducerConfig.NO_EFFECT, *ProducerConfig.NOT_SUPPORTED]
    return frozenset(
        name
        for name in properties
        if is_of_registry_clients(name)
        or not (
            name in kafka_names
            or ProducerConfig.reader_of(name)
            or c.misspelt(name, kafka_names)
            or (_OF_SECURITY.match(name) and ProducerConfig.instead_of(name, "", kafka_names))
        )
    )


def _is_users_own(plugin: Any) -> bool:
    if not isinstance(plugin, str):
        return plugin is not None
    return any("." in name and not name.strip().startswith("org.apache.kafka.") for name in plugin.split(","))


def read(
    properties: Mapping[str, Any],
    *,
    prefix: str = "",
    explicit: Collection[str] | None = None,
    passed_over: Collection[str] = (),
) -> ProducerConfig:
    """Parse *properties* (see :func:`~kafka_sink.common.config.parse` for the arguments), and :func:`reconcile` them.
    The names in *explicit*, by default all of *properties*, are those that the user set.

    :raises ConfigError: as :func:`~kafka_sink.common.config.parse` and :func:`reconcile`.
    """
    config = c.parse(ProducerConfig, properties, prefix=prefix, passed_over=passed_over)
    return reconcile(replace(config, option_prefix=prefix), frozenset(properties if explicit is None else explicit))


def reconcile(config: ProducerConfig, explicit: frozenset[str]) -> ProducerConfig:
    """Reconcile the options that depend on each other; *explicit* are the names that the user set, without the prefix.

    Defaults are adjusted to the options that the user set; idempotence is disabled in the same cases as in Kafka.

    :raises ConfigError: if two options that the user set contradict each other; the text names both.
    """
    config = _reconcile_batch_size(config, explicit)
    config = _reconcile_delivery_timeout(config, explicit)
    _check_two_phase(config, explicit)
    return _reconcile_idempotence(config, explicit)


def check_elsewhere(config: ProducerConfig) -> None:
    """Check the options that do not depend on the machine, before *config* is sent to the machines that connect.

    Files that cannot be read here, and the callback for tokens, may exist on those machines, so they are not checked.
    References to secrets are not replaced here, so the secrets are not checked either.

    :raises ConfigError: as :func:`create_channel_builder`.
    """
    config = _without_unknown(config)
    trusted, own, callback = (
        config.ssl_truststore_location,
        config.ssl_keystore_location,
        config.sasl_login_callback_handler_class,
    )
    here = replace(
        config,
        ssl_truststore_location=trusted if os.access(trusted, os.R_OK) else "",
        ssl_keystore_location=own if os.access(own, os.R_OK) else "",
        sasl_login_callback_handler_class=callback if callback is None or is_java_handler(callback) else lambda: "",
    )
    create_channel_builder(here, SYSTEM_CLOCK, "")


def inline_secrets(values: Mapping[str, Any]) -> list[str]:
    """The names of the options in *values* that contain a secret instead of a reference to one."""
    return [
        name
        for name, (entry, _) in c.keys(ProducerConfig).items()
        if entry.sensitive
        and values.get(name)
        # A login module may have no secret, or both a secret and a reference.
        and (name != "sasl.jaas.config" or _OF_LOGIN.search(str(values[name])))
        and (name == "sasl.jaas.config" or not has_reference(values[name], PROVIDERS))
    ]


def _without_unknown(config: ProducerConfig) -> ProducerConfig:
    """*config* without references, and without the options that cannot be checked unless these are replaced."""
    unknown = {name for name in _CREDENTIALS if has_reference(getattr(config, name), config.config_providers)}
    changes: dict[str, Any] = {"config_providers": ()}
    if unknown & _OF_TRUST:
        changes |= dict.fromkeys([*_OF_TRUST, "ssl_truststore_location"], "")
    if unknown & _OF_KEYS:
        changes |= dict.fromkeys([*_OF_KEYS, "ssl_keystore_location"], "")
    if "sasl_jaas_config" in unknown and config.sasl_jaas_config.startswith("${"):
        # The whole line is a reference: no module, and so no mechanism, is known.
        changes |= {"sasl_jaas_config": "", "sasl_username": _UNKNOWN, "sasl_password": _UNKNOWN}
        if config.sasl_oauthbearer_token_endpoint_url:
            changes |= {"sasl_oauthbearer_client_id": _UNKNOWN, "sasl_oauthbearer_client_secret": _UNKNOWN}
        elif not is_of_aws(config):
            changes["sasl_login_callback_handler_class"] = _UNKNOWN
    elif "sasl_jaas_config" in unknown:
        # A reference may be written without quotes, as its value may.
        changes["sasl_jaas_config"] = replaced_by(_UNKNOWN, config.sasl_jaas_config)
    return replace(config, **changes)


def _reconcile_batch_size(config: ProducerConfig, explicit: frozenset[str]) -> ProducerConfig:
    size, memory = config.batch_size_bytes, config.buffer_memory_bytes
    if size <= memory:
        return config
    if "batch.size" not in explicit:
        return replace(config, batch_size_bytes=max(memory // _BATCHES_IN_MEMORY, 1))
    size_option, memory_option = config.option("batch.size"), config.option("buffer.memory")
    if "buffer.memory" not in explicit:
        _log.warning(
            "raising %s to %d, because it must not be less than %s; set it explicitly to avoid this warning",
            memory_option,
            size,
            size_option,
        )
        return replace(config, buffer_memory_bytes=size)
    raise ConfigError.of(
        size_option,
        f" ({size}) is more than {memory_option} ({memory}), so no batch could be allocated; lower {size_option} or "
        f"raise {memory_option}",
    )


def _reconcile_delivery_timeout(config: ProducerConfig, explicit: frozenset[str]) -> ProducerConfig:
    least = _least_delivery_timeout_ms(config)
    if config.delivery_timeout_ms >= least:
        return config
    option, linger, request = map(config.option, ("delivery.timeout.ms", "linger.ms", "request.timeout.ms"))
    if "delivery.timeout.ms" not in explicit:
        _log.warning(
            "raising %s to %d, because it must not be less than %s + %s; set it explicitly to avoid this warning",
            option,
            least,
            linger,
            request,
        )
        return replace(config, delivery_timeout_ms=least)
    changed = config
    if "linger.ms" not in explicit:
        changed = replace(changed, linger_ms=max(0, changed.delivery_timeout_ms - changed.request_timeout_ms))
    left_ms = changed.delivery_timeout_ms - changed.linger_ms
    if "request.timeout.ms" not in explicit and left_ms > 0:
        changed = replace(changed, request_timeout_ms=min(left_ms, changed.request_timeout_ms))
    least = _least_delivery_timeout_ms(changed)
    if changed.delivery_timeout_ms >= least:
        return changed
    raise ConfigError.of(
        option,
        f" ({changed.delivery_timeout_ms}) is less than {linger} ({changed.linger_ms}) + {request} "
        f"({changed.request_timeout_ms}); raise it to at least {least} or lower the other two",
    )


def _least_delivery_timeout_ms(config: ProducerConfig) -> int:
    return min(config.linger_ms + config.request_timeout_ms, _INT_MAX)


def _reconcile_idempotence(config: ProducerConfig, explicit: frozenset[str]) -> ProducerConfig:
    if not config.enable_idempotence:
        if config.transactional_id is not None:
            needed = config.option("enable.idempotence")
            raise ConfigError.of(
                config.option("transactional.id"), f" needs {needed}=true; remove one of the two options"
            )
        return config
    if config.max_in_flight_requests_per_connection > _IN_FLIGHT_MAX:
        # This is an error even if idempotence is only on by default, as in Kafka 4.0 and newer.
        raise _contradiction(config, "max.in.flight.requests.per.connection")
    for name, violated in (("acks", config.acks_code != -1), ("retries", config.retries == 0)):
        if not violated:
            continue
        if "enable.idempotence" in explicit or config.transactional_id is not None:
            raise _contradiction(config, name)
        option, idempotence = config.option(name), config.option("enable.idempotence")
        warn(
            _log,
            "%s is disabled because of %s=%s: retries may duplicate or reorder records; set %s=false to accept this, "
            "or change %s (%s)",
            idempotence,
            option,
            c.as_properties(config)[name],
            idempotence,
            option,
            _IDEMPOTENCE_NEEDS,
        )
        return replace(config, enable_idempotence=False)
    return config


def _check_two_phase(config: ProducerConfig, explicit: frozenset[str]) -> None:
    if not config.transaction_two_phase_commit_enable:
        return
    name = config.option("transaction.two.phase.commit.enable")
    if "transaction.timeout.ms" in explicit:
        raise ConfigError.of(
            config.option("transaction.timeout.ms"),
            f"={config.transaction_timeout_ms} contradicts {name}=true, with which transactions never time out; remove "
            "one of the two options",
        )
    if config.transactional_id is None:
        raise ConfigError.of(name, f"=true needs {config.option('transactional.id')}; set it, or remove the option")


def _contradiction(config: ProducerConfig, name: str) -> ConfigError:
    option, cause = config.option(name), config.option("enable.idempotence")
    setting, way_out = f"{cause}=true", f"set {cause}=false"
    if config.transactional_id is not None:
        setting = config.option("transactional.id")
        way_out = f"remove {setting}"
    return ConfigError(
        f"option {setting} {_IDEMPOTENCE_NEEDS}, and contradicts {option}={c.as_properties(config)[name]}; change "
        f"{option}, or {way_out}",
        option=option,
    )
