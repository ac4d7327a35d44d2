"""The producer of a write: the options ``kafka.…``, read once on the driver, and passed to the tasks as values.

Read in Spark's planner process or in the user's. References to secrets are not followed there: credentials keep theirs
until a connection is made, and other options with references are read by each process that uses them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from kafka_sink.common import config as c
from kafka_sink.common.errors import ConfigError, UnresolvedReferenceError
from kafka_sink.common.references import has_reference, referenced_files
from kafka_sink.producer import config as producer_config
from kafka_sink.producer.config import ProducerConfig

#: Precedes the names of Kafka's options.
KAFKA_PREFIX: Final = "kafka."

#: A Spark task sends whole columns and flushes at its end, so batches may be larger and wait longer than by default.
#: Transactions may be open for as long as Kafka allows by default. The operating system chooses the TCP send buffer:
#: Kafka's 128 KiB reduce the throughput by up to a quarter, and by more with long round trips.
SINK_DEFAULTS: Final[Mapping[str, int]] = {
    "batch.size": 524288,
    "linger.ms": 100,
    "send.buffer.bytes": -1,
    "transaction.timeout.ms": 900000,
}

#: Producer options whose meaning is another one here: each task has a producer.
SINK_MEANINGS: Final[Mapping[str, str]] = {
    "acks": (
        "acknowledgements to wait for: from all in-sync replicas (all or -1), or from the leader (1). 0 is refused: "
        "without acknowledgements it is not known whether rows were written (one of all, -1, 1)"
    ),
    "buffer.memory": (
        "limit for the unacknowledged data of each task, bytes; the task waits when it reaches the limit, and N tasks "
        "that run on an executor at the same time need N times this memory (from 1 to "
        "9223372036854775807)"
    ),
    "transaction.two.phase.commit.enable": (
        "exactly once with a transaction for each task: a decided batch waits for its driver however long that takes "
        "(KIP-939), instead of kafka.transaction.timeout.ms; brokers must offer it (true or false)"
    ),
}

#: Producer options that are not supported here, each with the reason.
REFUSED: Final[Mapping[str, str]] = {
    "key.serializer": "keys are written as the bytes of the key column",
    "value.serializer": "values are written as the bytes of the value column",
    "interceptor.classes": "interceptors process single records, and the sink sends columns",
    "transactional.id": "every task has its own ids; name the sink with transactionalIdPrefix or txnAppId",
}

TWO_PHASE: Final = "transaction.two.phase.commit.enable"

#: Options that are checked together.
_OF_SECURITY: Final = ("security.", "ssl.", "sasl.")

#: Stands for addresses that only the processes that connect know.
_SOME_ADDRESS: Final = "localhost:9092"

#: Properties that name a file whose content may change under the same name.
_FILES: Final = ("ssl.keystore.location", "ssl.truststore.location")

_SALT: Final = os.urandom(16)


@dataclass(frozen=True)
class ProducerSpec:
    """The configuration of the producers and other clients of a write, as values.

    *config* has the names of options with :data:`KAFKA_PREFIX` for messages. *explicit* are the names that the user
    set. Options that are *deferred* have references that each process replaces itself; *config* has their defaults.
    *plugin_options* are for the user's partitioner alone. *two_phase*: the transactions of tasks never time out.
    """

    config: ProducerConfig
    explicit: frozenset[str] = frozenset()
    deferred: Mapping[str, str] = field(default_factory=dict)
    plugin_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    two_phase: bool = False

    def here(self) -> ProducerConfig:
        """The configuration in this process, with the present values of the options that are deferred.

        :raises ConfigError: if a reference cannot be replaced, or its value is invalid.
        """
        if not self.deferred:
            return self.config
        given = {**c.changed(self.config), **self.deferred}
        return producer_config.read(given, prefix=KAFKA_PREFIX, explicit=self.explicit)

    @property
    def properties(self) -> dict[str, Any]:
        """Values other than Kafka's defaults, and those that the user set, by Kafka's names."""
        values = c.as_properties(self.config)
        explicit = {name: values[name] for name in self.explicit - self.deferred.keys() - self.plugin_options.keys()}
        return {**c.changed(self.config), **explicit, **self.deferred, **self.plugin_options}

    @property
    def bootstrap_servers(self) -> tuple[str, ...]:
        """The addresses, or the reference to them."""
        deferred = self.deferred.get("bootstrap.servers")
        return self.config.bootstrap_servers if deferred is None else (deferred,)

    @property
    def transaction_timeout_ms(self) -> int | None:
        """``transaction.timeout.ms`` as the user has set it; None for the longest that the brokers allow."""
        timeout_ms = self.here().transaction_timeout_ms
        return None if timeout_ms == SINK_DEFAULTS["transaction.timeout.ms"] else timeout_ms

    @cached_property
    def digest(self) -> bytes:
        """A key of these values in the caches of this process; secrets cannot be read from it."""
        return digest_of({**c.changed(self.config), **self.deferred, **self.plugin_options})

    @cached_property
    def _files(self) -> tuple[Path, ...]:
        values = {**c.changed(self.config), **self.deferred, **self.plugin_options}
        named = [Path(values[name]) for name in _FILES if name in values]
        texts = (value for value in values.values() if isinstance(value, str))
        return (*named, *(path for text in texts for path in referenced_files(text)))

    def digest_with_files(self) -> bytes:
        """A key of these values and the current state of the files that they name, also in references: after a
        certificate or a password was renewed, connections made before must not be reused."""
        if not self._files:
            return self.digest
        digest = hashlib.blake2b(self.digest, key=_SALT)
        for path in self._files:
            try:
                status = path.stat()
            except OSError:
                continue
            digest.update(f"{path} {status.st_mtime_ns} {status.st_size} {status.st_ino}\n".encode())
        return digest.digest()

    def __reduce__(self) -> tuple[Any, ...]:
        # Most options have their defaults, which need not travel to each task.
        return _restored, (
            c.changed(self.config),
            self.explicit,
            dict(self.deferred),
            dict(self.plugin_options),
            self.two_phase,
        )


def _restored(
    values: Mapping[str, Any],
    explicit: frozenset[str],
    deferred: dict[str, str],
    plugin_options: dict[str, str],
    two_phase: bool,
) -> ProducerSpec:
    table = c.keys(ProducerConfig)
    config = ProducerConfig(option_prefix=KAFKA_PREFIX, **{table[name][1].name: values[name] for name in values})
    return ProducerSpec(config, explicit, deferred, plugin_options, two_phase)


def digest_of(values: Mapping[str, object]) -> bytes:
    """A key for *values*, in any order, in the caches of this process; secrets cannot be read from it."""
    digest = hashlib.blake2b(key=_SALT)
    for name, value in sorted(values.items()):
        shown = repr(value)
        digest.update(f"{len(name)} {name} {len(shown)} {shown}\n".encode())
    return digest.digest()


def producer_spec(values: Mapping[str, str], without_effect: Mapping[str, str] = MappingProxyType({})) -> ProducerSpec:
    """The producer of a write by the options *values*, whose names are Kafka's without the prefix. One warning names
    those among them that have no effect, and the options *without_effect*, each with the reason.

    :raises ConfigError: if an option is invalid; the text uses the user's option names.
    """
    plugin_options = {name: values[name] for name in producer_config.names_for_plugins(values)}
    own = {name: value for name, value in values.items() if name not in plugin_options}
    ignored = c.without_effect(ProducerConfig, own)
    c.warn_without_effect({**without_effect, **{f"{KAFKA_PREFIX}{name}": why for name, why in ignored.items()}})
    own = {name: value for name, value in own.items() if name not in ignored}
    _check_names(own)
    two_phase = _take_two_phase(own)
    table, providers = c.keys(ProducerConfig), c.providers_of(ProducerConfig, own)
    deferred = {
        name: value
        for name, value in own.items()
        if name in table and not table[name][0].at_connect and has_reference(value, providers)
    }
    here = {name: value for name, value in own.items() if name not in deferred or _is_known_here(name, own)}
    defaults: dict[str, Any] = dict(SINK_DEFAULTS)
    if "bootstrap.servers" in deferred:
        defaults["bootstrap.servers"] = _SOME_ADDRESS
    is_secure_here = not any(name.startswith(_OF_SECURITY) for name in own.keys() - here.keys())
    checked = producer_config.read({**defaults, **here}, prefix=KAFKA_PREFIX, explicit=here)
    if is_secure_here:
        producer_config.check_elsewhere(checked)
    if checked.acks == "0":
        raise ConfigError.of(
            f"{KAFKA_PREFIX}acks",
            ": '0' is not allowed, expected all or 1; without acknowledgements it is not "
            "known whether the rows were written",
        )
    if deferred:
        here = {name: value for name, value in own.items() if name not in deferred}
        checked = replace(c.parse(ProducerConfig, {**defaults, **here}), option_prefix=KAFKA_PREFIX)
    return ProducerSpec(checked, frozenset(own), deferred, plugin_options, two_phase)


def _take_two_phase(kafka_values: dict[str, str]) -> bool:
    """Whether the transactions of tasks never time out. The option is removed from *kafka_values*: the producers of
    tasks join transactions that have begun already.

    :raises ConfigError: if a time-out is set as well.
    """
    value = kafka_values.pop(TWO_PHASE, None)
    two_phase: bool = value is not None and c.read_one(ProducerConfig, TWO_PHASE, {TWO_PHASE: value})
    timeout = kafka_values.get("transaction.timeout.ms")
    if two_phase and timeout is not None:
        raise ConfigError.of(
            f"{KAFKA_PREFIX}transaction.timeout.ms",
            f"={timeout} contradicts {KAFKA_PREFIX}{TWO_PHASE}=true, with "
            "which transactions never time out; remove one of the two options",
        )
    return two_phase


def _check_names(values: Mapping[str, str]) -> None:
    """:raises ConfigError: if one of *values* is not supported or not known."""
    for name, reason in REFUSED.items():
        if name in values:
            raise ConfigError.of(f"{KAFKA_PREFIX}{name}", f" is not supported: {reason}; remove it")
    for name in values:
        if name in c.keys(ProducerConfig) or name in ProducerConfig.NOT_SUPPORTED:
            continue
        hint = c.hint(ProducerConfig, name, KAFKA_PREFIX, without=REFUSED)
        raise ConfigError(
            f"unknown option {KAFKA_PREFIX}{name}"
            + (hint or f": {KAFKA_PREFIX}… is for options of Kafka's producer, which docs/options.md lists; remove it"),
            option=f"{KAFKA_PREFIX}{name}",
        )


def _is_known_here(name: str, values: Mapping[str, str]) -> bool:
    """Whether the value of *name* can be read here; what a reference in it names may only exist on the executors."""
    try:
        c.read_one(ProducerConfig, name, values)
    except UnresolvedReferenceError:
        return False
    except ConfigError:
        # The check of all options says what is wrong, with the name that the user wrote.
        return True
    return True
