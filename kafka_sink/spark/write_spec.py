"""The values of a write: created once on the driver, and passed to the planner, the tasks and the committer.

:mod:`kafka_sink.spark.options` parses its options, and :mod:`kafka_sink.spark.driver.before_write` adds formats and
limits. It contains nothing of the schema registry, which only the driver uses. The driver does not replace references
to secrets: those in credentials are replaced when a connection is made, and those in other options by each process
that uses them.
"""

from __future__ import annotations

import hashlib
import os
import re
import resource
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

from kafka_sink.common import config as c
from kafka_sink.common.errors import ConfigError, SinkWriteError, TooManyBadRowsError, UnresolvedReferenceError
from kafka_sink.common.references import has_reference, referenced_files
from kafka_sink.exactly_once.model import BatchNumbering
from kafka_sink.formats.column_format import ColumnFormat
from kafka_sink.producer import config as producer_config
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.producer.topic_limits import TopicLimits
from kafka_sink.spark.errors import told
from kafka_sink.spark.versions import OfOneVersion

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

#: Producer options that are not supported here, with the reasons.
REFUSED: Final[Mapping[str, str]] = {
    "key.serializer": "keys are written as the bytes of the key column",
    "value.serializer": "values are written as the bytes of the value column",
    "interceptor.classes": "interceptors process single records, and the sink sends columns",
    "transactional.id": "every task has its own ids; name the sink with transactionalIdPrefix or txnAppId",
}

TWO_PHASE: Final = "transaction.two.phase.commit.enable"

#: The consequence of a failed version for the later ones, for sinks whose versions an application numbers.
IN_ORDER: Final = (
    "write it again before any later version: once a later version is committed, this one is skipped and its rows are "
    "not in Kafka"
)

#: Options that are checked together.
_OF_SECURITY: Final = ("security.", "ssl.", "sasl.")

#: A placeholder for addresses that only the processes that connect know.
_SOME_ADDRESS: Final = "localhost:9092"

#: Properties with the name of a file whose content may change.
_FILES: Final = ("ssl.keystore.location", "ssl.truststore.location")

_SALT: Final = os.urandom(16)


@dataclass(frozen=True)
class ProducerSpec:
    """The configuration of the producers and other clients of a write, as values.

    *config* has the names of options with :data:`KAFKA_PREFIX` for messages. *explicit* are the names that the user
    set. Options that are *deferred* have references that each process replaces itself; *config* has their defaults.
    *plugin_options* are only for the user's partitioner. *two_phase*: the transactions of tasks never time out.
    """

    config: ProducerConfig
    explicit: frozenset[str] = frozenset()
    deferred: Mapping[str, str] = field(default_factory=dict)
    plugin_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    two_phase: bool = False

    def here(self) -> ProducerConfig:
        """The configuration in this process, with the current values of the options that are deferred.

        :raises ConfigError: if a reference cannot be replaced, or its value is invalid.
        """
        if not self.deferred:
            return self.config
        values = {**c.changed(self.config), **self.deferred}
        return _answered(producer_config.read(values, prefix=KAFKA_PREFIX, explicit=self.explicit))

    @property
    def properties(self) -> dict[str, Any]:
        """The values that differ from Kafka's defaults, and those that the user set, by Kafka's names."""
        values = c.as_properties(self.config)
        explicit = {name: values[name] for name in self.explicit - self.deferred.keys() - self.plugin_options.keys()}
        return {**explicit, **self._values}

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
    def _values(self) -> dict[str, Any]:
        return {**c.changed(self.config), **self.deferred, **self.plugin_options}

    @cached_property
    def digest(self) -> bytes:
        """A key of these values for the caches of this process, which does not reveal secrets."""
        return digest_of(self._values)

    @cached_property
    def _files(self) -> tuple[Path, ...]:
        named = [Path(self._values[name]) for name in _FILES if name in self._values]
        texts = (value for value in self._values.values() if isinstance(value, str))
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
        # Most options have their defaults, which need not be sent to each task.
        others = self.explicit, self.deferred, self.plugin_options, self.two_phase
        return _restored, (c.changed(self.config), *others)


def _restored(values: Mapping[str, Any], *others: Any) -> ProducerSpec:
    table = c.keys(ProducerConfig)
    config = ProducerConfig(option_prefix=KAFKA_PREFIX, **{table[name][1].name: values[name] for name in values})
    return ProducerSpec(config, *others)


def digest_of(values: Mapping[str, object]) -> bytes:
    """A key of *values*, in any order, for the caches of this process, which does not reveal secrets."""
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
    _answered(checked)
    if deferred:
        here = {name: value for name, value in own.items() if name not in deferred}
        checked = replace(c.parse(ProducerConfig, {**defaults, **here}), option_prefix=KAFKA_PREFIX)
    return ProducerSpec(checked, frozenset(own), deferred, plugin_options, two_phase)


def _answered(config: ProducerConfig) -> ProducerConfig:
    """*config*. :raises ConfigError: if brokers would not acknowledge records (acks=0)."""
    if config.acks == "0":
        text = ": '0' is not allowed, expected all or 1; without acknowledgements it is not known whether the rows were"
        raise ConfigError.of(f"{KAFKA_PREFIX}acks", f"{text} written")
    return config


def _take_two_phase(kafka_values: dict[str, str]) -> bool:
    """Whether the transactions of tasks never time out. The option is removed from *kafka_values*: the producers of
    tasks join transactions that have already begun.

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
    """Whether the value of *name* can be read here; the target of a reference in it may exist only on executors."""
    try:
        c.read_one(ProducerConfig, name, values)
    except UnresolvedReferenceError:
        return False
    except ConfigError:
        # The check of all options reports the error, with the name that the user wrote.
        return True
    return True


#: The treatment of rows that cannot be written (option onBadRow).
FAIL: Final = "fail"
DROP: Final = "drop"
DEAD_LETTER: Final = "dead-letter"

#: The column (int8) with the kind of each row that was placed (:mod:`kafka_sink.spark.task.placing`).
KIND: Final = "kind"

_LIMIT: Final = re.compile(r"(?P<rows>[0-9]+)|(?P<percent>[0-9]+(?:\.[0-9]+)?) ?%")


@dataclass(frozen=True, slots=True)
class BadRowLimit:
    """The option maxBadRows: a number of rows, or a share of all rows; *text* is the user's value. Each task checks the
    number for its own rows, and the driver checks either for all tasks together."""

    text: str
    rows: int | None
    share: Fraction

    @classmethod
    def parse(cls, value: object) -> BadRowLimit:
        """:raises ValueError: if *value* is neither a number of rows nor a share in percent."""
        text = str(value).strip()
        match = _LIMIT.fullmatch(text)
        if match is None:
            raise ValueError(text)
        if match["rows"] is not None:
            return cls(text, int(match["rows"]), Fraction(0))
        share = Fraction(match["percent"]) / 100
        if share > 1:
            raise ValueError(text)
        return cls(text, None, share)

    def check_task(self, bad_rows: int, first: str) -> None:
        """Check the *bad_rows* that one task has found so far; *first* is the problem of the first one.

        :raises TooManyBadRowsError: if these are already too many.
        """
        if self.rows is not None and bad_rows > self.rows:
            raise self._error(f"{bad_rows} rows of one task", first)

    def check(self, bad_rows: int, rows: int, first: str) -> None:
        """Check a whole write of *rows* rows.

        :raises TooManyBadRowsError: if too many of them are bad.
        """
        most = self.share * rows if self.rows is None else self.rows
        if bad_rows > most:
            raise self._error(f"{bad_rows} of {rows} rows ({bad_rows / rows:.2%})", first)

    def _error(self, rows: str, first: str) -> TooManyBadRowsError:
        return TooManyBadRowsError(
            f"{rows} cannot be written, more than option maxBadRows={self.text} allows; the first: {first}; correct "
            "the rows, or raise maxBadRows",
            option="maxBadRows",
            is_permanent=True,
        )


# --- the address space of a worker ------------------------------------------------------------------------------------

# Each worker may have spark.executor.pyspark.memory divided by spark.executor.cores (RLIMIT_AS). Address space is more
# than memory: libraries are mapped whole, threads reserve their stacks. Without the check an import or numpy fails in
# one of many places.

LIMIT: Final = "spark.executor.pyspark.memory"

#: Address space besides buffer.memory, MiB: below the first value writes always fail, from the second on they succeed.
#: In between it depends on how much the allocators of pyarrow and the C library reserve, whatever the limit is.
NEEDED_MIB: Final = 320
ADVISED_MIB: Final = 608

_MIB: Final = 1 << 20


def buffer_mib(producer: ProducerSpec) -> int:
    """``buffer.memory``, rounded up to MiB."""
    return ceil(producer.here().buffer_memory_bytes / _MIB)


def _limit_mib() -> int | None:
    """The limit of this process; None if there is none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft // _MIB


def require_address_space(producer: ProducerSpec) -> None:
    """:raises SinkWriteError: if this worker cannot have the address space that a write needs."""
    limit = _limit_mib()
    if limit is None:
        return
    buffer = buffer_mib(producer)
    if limit < NEEDED_MIB + buffer:
        text = (
            f"this Python worker may have {limit} MiB of address space, and a write needs {NEEDED_MIB + buffer} MiB at "
            f"least; set {LIMIT}, which is divided by spark.executor.cores, to {ADVISED_MIB + buffer}m for each core, "
            "or not at all"
        )
        raise told(SinkWriteError(text, option=LIMIT, is_permanent=True))


def advice_on(error: BaseException) -> str:
    """The remedy for *error* if it comes from the limit of this process's address space; otherwise empty."""
    limit = _limit_mib()
    if limit is None or not (isinstance(error, MemoryError) or "can't start new thread" in str(error)):
        return ""
    return f" (this Python worker may have {limit} MiB of address space: raise {LIMIT} or lower kafka.buffer.memory)"


# --- the write --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExactlyOnce:
    """A delivery that is committed once: the sink's *name*, and the topic under whose name its progress is stored.

    *version* is the number of a batch write; None for a stream, whose batches Spark numbers. With *two_phase* the
    transactions of tasks never time out (transaction.two.phase.commit.enable).
    """

    name: str
    progress_topic: str
    version: int | None
    two_phase: bool


#: Headings of docs/options.md.
TOPIC_AND_ROWS: Final = "Topic and rows"
FORMATS_AND_SCHEMAS: Final = "Formats and schemas"
BAD_ROWS: Final = "Rows that cannot be written"
EXACTLY_ONCE_OPTIONS: Final = "Exactly once"

_A_LIMIT = c.ConfigType("a number of rows (100) or a share of them (1%)", BadRowLimit.parse)


@dataclass(frozen=True)
class WriteSpec(OfOneVersion, c.Options):
    """A write: the options that tasks or the committer read, and values that the driver derives from the others.

    *formats* are those of the columns that have one, *limits* those of the topics whose settings are known.
    *exactly_once*: None for at least once. *checkpoint_location* is the stream's, if it is set as an option and not in
    Spark's configuration. *columns* are the names and types of the columns, if lineage needs them. *is_placed*: tasks
    have chosen the partitions of the rows, serialized them, and marked the bad ones.
    """

    is_shared = True
    IS_CAMEL_CASE = True

    topic: str | None = c.STRING(
        None,
        "topic of all rows; takes precedence over a topic column",
        c.Validator("a name", bool),
        group=TOPIC_AND_ROWS,
    )
    max_records_per_second: int | None = c.INT(
        None,
        "limit for each task: N tasks that run at the same time write up to N times this number; for "
        "exactly once, a batch must still end within kafka.transaction.timeout.ms",
        c.between(1, 2**31 - 1),
        group=TOPIC_AND_ROWS,
    )
    report_path: str | None = c.STRING(
        None,
        "file on the driver to which each write appends one JSON line when it is committed or has failed",
        group=TOPIC_AND_ROWS,
    )
    tune_python_workers: bool = c.BOOLEAN(
        True,
        "Spark's Python processes send data to the JVM without delay (TCP_NODELAY), and do not run the garbage "
        "collector over imported modules after every task; false keeps Spark's own settings",
        group=TOPIC_AND_ROWS,
    )
    on_bad_row: str = c.STRING(
        None,
        "handling of a row that cannot be written: fail = the write fails; drop = the sink discards the row; "
        "dead-letter = the sink writes it to deadLetterTopic; default: fail, or dead-letter if deadLetterTopic is set",
        c.one_of(FAIL, DROP, DEAD_LETTER),
        group=BAD_ROWS,
    )
    dead_letter_topic: str | None = c.STRING(
        None,
        "topic of the rows that cannot be written, with the reason in headers; with exactly once they are in the same "
        "transaction as the other rows of the batch",
        c.Validator("a name", bool),
        group=BAD_ROWS,
    )
    max_bad_rows: BadRowLimit | None = _A_LIMIT(  # noqa: RUF009
        None,
        "with onBadRow=drop or dead-letter: a write, or a micro-batch, with more bad rows than this number or share "
        "of its rows (100, 1%) fails; default: no limit",
        group=BAD_ROWS,
    )
    allow_missing_progress: bool = c.BOOLEAN(
        False,
        "for exactly-once micro-batches: write a batch other than the first although there is no progress "
        "record, for example when an existing query becomes exactly-once; remove the option after that batch",
        group=EXACTLY_ONCE_OPTIONS,
    )
    producer: ProducerSpec = field(kw_only=True)
    exactly_once: ExactlyOnce | None = field(default=None, kw_only=True)
    checkpoint_location: str | None = field(default=None, kw_only=True)
    formats: tuple[ColumnFormat, ...] = field(default=(), kw_only=True)
    limits: Mapping[str, TopicLimits] = field(default_factory=dict, kw_only=True)
    columns: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)
    is_placed: bool = field(default=False, kw_only=True)

    def settle(self, explicit: Collection[str]) -> Self:
        """With deadLetterTopic, the default of onBadRow is dead-letter."""
        default = FAIL if self.dead_letter_topic is None else DEAD_LETTER
        return replace(self, on_bad_row=self.on_bad_row or default)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """:raises SinkWriteError: in a task whose address space is too small; later an import would fail."""
        require_address_space(state["producer"])
        super().__setstate__(state)

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics that rows go to; None if rows name their topics."""
        if self.topic is None:
            return None
        return frozenset({self.topic} if self.dead_letter_topic is None else {self.topic, self.dead_letter_topic})

    @property
    def numbers_of_a_query(self) -> BatchNumbering:
        """The numbering of the batches of a query."""
        under_way = self.allow_missing_progress
        return BatchNumbering.OF_A_QUERY_UNDER_WAY if under_way else BatchNumbering.OF_A_QUERY

    @property
    def job(self) -> str:
        """The name of the write in lineage."""
        return f"kafkalite.{self.topic or 'topics'}" if self.exactly_once is None else self.exactly_once.name

    def placed(self) -> WriteSpec:
        """This write for the tasks that get the rows after they were placed."""
        limits = self.limits
        if self.on_bad_row != FAIL:
            # The rows were checked: a timestamp at the limit must not fail the write because time has passed.
            limits = {topic: replace(limit, before=None, after=None) for topic, limit in limits.items()}
        return replace(self, formats=(), limits=limits, is_placed=True)
