"""The options of ``format("kafkalite")``, read once on the driver.

Called by the data source in Spark's planner process, and by the functions of this package in the user's. It never
opens a connection. The tasks get a write that is built from them (:mod:`kafka_sink.spark.write_spec`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Number
from typing import Any, Final, Self, TypeAlias

from kafka_sink.common import config as c
from kafka_sink.common.errors import ConfigError
from kafka_sink.common.log_context import Said, warn
from kafka_sink.common.text import words
from kafka_sink.common.tls_config import ClientSslConfig
from kafka_sink.formats.column_format import FORMATS, JSON, PROTOBUF
from kafka_sink.producer import config as producer_config
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.registry.config import (
    URL,
    RegistryConfig,
    check_of_serializers,
    is_of_registry,
    is_of_serializers,
    registry_configs,
    registry_secrets,
)
from kafka_sink.spark.write_spec import (
    DEAD_LETTER,
    EXACTLY_ONCE_OPTIONS,
    FAIL,
    FORMATS_AND_SCHEMAS,
    KAFKA_PREFIX,
    REFUSED,
    TOPIC_AND_ROWS,
    TWO_PHASE,
    ExactlyOnce,
    WriteSpec,
    producer_spec,
)

_log = logging.getLogger(__name__)

#: A value of an option; None is an option that is not set.
OptionValue: TypeAlias = str | bool | int | float | os.PathLike[str] | None

#: The name of the format.
FORMAT = "kafkalite"
#: The error of a read.
ONLY_WRITES = (
    f'format("{FORMAT}") can only write; to read a topic use Spark\'s format("kafka"), or the command kafkalite consume'
)

#: The secrets among the options that this process has warned about.
_warned_of = Said()

_OF_REGISTRY = frozenset(c.keys(RegistryConfig))

#: Options of Spark's Kafka source (from its Kafka guide), which mappings for both source and sink contain.
_OF_SPARKS_SOURCE = frozenset(
    words("""
    assign subscribe subscribepattern startingoffsets startingoffsetsbytimestamp startingoffsetsbytimestampstrategy
    startingtimestamp endingoffsets endingoffsetsbytimestamp endingtimestamp failondataloss fetchoffset.numretries
    fetchoffset.retryintervalms groupidprefix kafkaconsumer.polltimeoutms maxoffsetspertrigger maxrecordsperpartition
    maxtriggerdelay minoffsetspertrigger minpartitions
""")
)

AT_LEAST_ONCE = "at-least-once"
EXACTLY_ONCE = "exactly-once"

#: Options of a streaming query that Spark passes to the sink.
_CHECKPOINT = "checkpointlocation"
_OF_THE_QUERY = frozenset({_CHECKPOINT, "queryname"})

#: Options of Spark's asynchronous progress tracking, which Spark also passes to the sink. With at-least-once delivery
#: they do not concern the sink.
_ASYNC_PROGRESS = "asyncprogresstrackingenabled"
_OF_ASYNC_PROGRESS = frozenset(
    {_ASYNC_PROGRESS, "asyncprogresstrackingcheckpointintervalms", "_asyncprogresstrackingoverridesinksupportcheck"}
)


@dataclass(frozen=True)
class WantedFormat:
    """The options of a column that is written in the format *name*: a given *schema*, the *message* of Protobuf in it,
    and the *references* to schemas of a registry."""

    column: str
    name: str
    schema: str | None
    message: str | None
    references: str | None = None


#: The options of a column: their texts, with {} for the column, and their values.
_OF_COLUMNS: Final[Mapping[str, tuple[str, c.Validator]]] = {
    "format": ("write the column {} in this format; default: a string or binary column as it is", c.one_of(*FORMATS)),
    "schema": (
        "with {}.format: the schema, or the name of a file, of a folder, or of several files separated by commas (the "
        "schema first) on the driver; default: derived from the column",
        c.Validator("a schema", bool),
    ),
    "refs": (
        "with {}.schema and a registry: the schema's references to schemas of the registry, a JSON list of name, "
        "subject and version",
        c.Validator("a list in JSON", bool),
    ),
    "message": (
        "with {}.format=protobuf and {}.schema or a registry's schema: the name of the message; default: the first one",
        c.Validator("the name of a message", bool),
    ),
}


def _of_column(column: str, option: str, shown: str = "") -> Any:
    text, validator = _OF_COLUMNS[option]
    name = f"{column}.{option}"
    return c.STRING(None, text.replace("{}", shown or column), validator, name=name, group=FORMATS_AND_SCHEMAS)


@dataclass(frozen=True)
class SinkOptions(c.Options):
    """The options of a write: those that only the driver reads, and *spec* with those that tasks read, too."""

    IS_CAMEL_CASE = True

    topic_partitions: int | None = c.INT(
        None,
        "create the topic of option topic with this number of partitions if it does not exist, once, before the tasks "
        "begin; an existing topic is not changed",
        c.between(1, 2**31 - 1),
        group=TOPIC_AND_ROWS,
    )
    topic_replication_factor: int | None = c.INT(
        None,
        "with topicPartitions: number of replicas of each partition; default: the brokers' default.replication.factor",
        c.between(1, 2**15 - 1),
        group=TOPIC_AND_ROWS,
    )
    key_format: str | None = _of_column("key", "format", "key, of any type,")
    key_schema: str | None = _of_column("key", "schema")
    key_refs: str | None = _of_column("key", "refs")
    key_message: str | None = _of_column("key", "message")
    value_format: str | None = _of_column("value", "format", "value, such as struct('*'),")
    value_schema: str | None = _of_column("value", "schema")
    value_refs: str | None = _of_column("value", "refs")
    value_message: str | None = _of_column("value", "message")
    include_headers: bool | None = c.BOOLEAN(
        None,
        "headers are written whenever the headers column exists; true requires that it exists, false that it does not",
        group=TOPIC_AND_ROWS,
    )
    delivery_guarantee: str | None = c.STRING(
        None,
        "for writeStream: exactly-once = no micro-batch is lost, partly written or duplicated after any failure; "
        "needs transactionalIdPrefix; default: at-least-once, or exactly-once if transactionalIdPrefix is set",
        c.one_of(AT_LEAST_ONCE, EXACTLY_ONCE),
        group=EXACTLY_ONCE_OPTIONS,
    )
    transactional_id_prefix: str | None = c.STRING(
        None,
        "for writeStream, exactly-once: unique name of the sink; its transactional ids begin with it, and the "
        "consumer group of this name stores its progress",
        c.Validator("a name", bool),
        group=EXACTLY_ONCE_OPTIONS,
    )
    txn_app_id: str | None = c.STRING(
        None,
        "for batch writes: name of the application that numbers its writes with txnVersion; each number is written "
        "once",
        c.Validator("a name", bool),
        group=EXACTLY_ONCE_OPTIONS,
    )
    txn_version: int | None = c.INT(
        None,
        "for batch writes with txnAppId: number of this write; nothing is written if it is not above the last "
        "committed number",
        c.between(0, 2**63 - 2),
        group=EXACTLY_ONCE_OPTIONS,
    )
    progress_topic: str | None = c.STRING(
        None,
        "existing topic under whose name the progress of exactly-once writes is stored (as offsets; nothing is "
        "written to it); default: option topic",
        c.Validator("a name", bool),
        group=EXACTLY_ONCE_OPTIONS,
    )
    #: The write by these options, before its columns and topics are checked.
    spec: WriteSpec = field(kw_only=True)
    #: The options of the schema registry as given, then parsed, and its TLS options.
    registry_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    registry: RegistryConfig = field(default_factory=RegistryConfig)
    registry_tls: ClientSslConfig = field(default_factory=ClientSslConfig)

    def settle(self, explicit: Collection[str]) -> Self:
        """Derive options that are not set from those that are."""
        sink, progress_topic = self.transactional_id_prefix or self.txn_app_id, self.progress_topic or self.spec.topic
        once = None
        if sink is not None and progress_topic is not None:
            once = ExactlyOnce(sink, progress_topic, self.txn_version, self.spec.producer.two_phase)
        guarantee = AT_LEAST_ONCE if self.transactional_id_prefix is None else EXACTLY_ONCE
        return replace(
            self, delivery_guarantee=self.delivery_guarantee or guarantee, spec=replace(self.spec, exactly_once=once)
        )

    @cached_property
    def wanted_formats(self) -> tuple[WantedFormat, ...]:
        """The formats of the columns that have one."""
        columns = (
            ("key", self.key_format, self.key_schema, self.key_message, self.key_refs),
            ("value", self.value_format, self.value_schema, self.value_message, self.value_refs),
        )
        return tuple(
            WantedFormat(column, name, schema, message, references)
            for column, name, schema, message, references in columns
            if name is not None
        )

    def numbered(self, version: int) -> SinkOptions:
        """These options for the write *version* of an application that numbers its writes."""
        once = None if self.spec.exactly_once is None else replace(self.spec.exactly_once, version=version)
        return replace(self, txn_version=version, spec=replace(self.spec, exactly_once=once))


def as_texts(options: Mapping[str, OptionValue]) -> dict[str, str]:
    """*options* as texts: ``5`` as ``"5"``, ``True`` as ``"true"``, a path as its name. None is left out. Spark does
    the same for ``df.write.options(…)``.

    Source: apache/spark ``python/pyspark/sql/utils.py`` (``to_str``).

    :raises ConfigError: if *options* is not a mapping of names, or a value is of another type; the text names option
        and type, and does not show the value.
    """
    texts = {name: _text(name, value) for name, value in c.without_none(options).items()}
    for name, text in texts.items():
        if not text.isascii() and text.encode(errors="replace").decode() != text:
            raise ConfigError.of(name, " is not valid UTF-8; correct it")
    return texts


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Number):
        return str(value)
    path = os.fspath(value) if isinstance(value, os.PathLike) else None
    if isinstance(path, str):
        return path
    remedy = "join its parts with commas" if isinstance(value, list | tuple | set) else "convert it to text"
    raise ConfigError.of(
        name,
        f": a value of the type {type(value).__name__} is not accepted, expected text, a number, True or False; "
        f"{remedy}",
    )


def parse_options(options: Mapping[str, OptionValue], *, is_stream: bool = False) -> SinkOptions:
    """Parse the options of one write. Spark passes every name in lower case. Options that are not set are derived from
    those that are (docs/options.md, "Options that depend on each other").

    :raises ConfigError: if an option is invalid; the text names the option, the given value, the expected value, and
        for an unknown name the nearest one.
    """
    tables = (WriteSpec, SinkOptions)
    own = {name.lower(): name for table in tables for name in c.keys(table)}
    sink_values: dict[str, str] = {}
    kafka_values: dict[str, str] = {}
    registry_values: dict[str, str] = {}
    without_effect: dict[str, str] = {}
    checkpoint: str | None = None
    is_async = False
    for name, value in as_texts(options).items():
        lowered = name.lower()
        if lowered.startswith(KAFKA_PREFIX):
            kafka_values[lowered.removeprefix(KAFKA_PREFIX)] = value
        elif is_stream and lowered in _OF_ASYNC_PROGRESS:
            is_async |= lowered == _ASYNC_PROGRESS and value.strip().lower() == "true"
        elif is_stream and lowered in _OF_THE_QUERY:
            checkpoint = value if lowered == _CHECKPOINT else checkpoint
        elif lowered in own:
            sink_values[own[lowered]] = value
        elif is_of_registry(lowered):
            registry_values[lowered] = value
        elif is_of_serializers(lowered):
            check_of_serializers(lowered, value)
            without_effect[name] = "what is written in any case"
        elif lowered in _OF_SPARKS_SOURCE:
            # Mappings for both source and sink contain options of the source.
            without_effect[name] = "for reading"
        elif lowered in _OF_THE_QUERY | _OF_ASYNC_PROGRESS:
            without_effect[name] = "for streams"
        elif reader := c.reader_of(ProducerConfig, lowered):
            without_effect[name] = reader
        else:
            raise _refused(name, value, list(own.values()))
    _check_prefixed(kafka_values, own)
    registry, registry_tls = registry_configs(registry_values)
    secrets_of_registry = registry_secrets(registry_values)
    secrets = [f"{KAFKA_PREFIX}{name}" for name in producer_config.inline_secrets(kafka_values)]
    of_tasks, of_driver = ({n: sink_values[n] for n in c.keys(table) if n in sink_values} for table in tables)
    producer = producer_spec(kafka_values, without_effect)
    spec = c.parse(WriteSpec, of_tasks, made={"producer": producer, "checkpoint_location": checkpoint})
    of_registry = {"registry_properties": registry_values, "registry": registry, "registry_tls": registry_tls}
    parsed = c.parse(SinkOptions, of_driver, made={"spec": spec, **of_registry})
    _warn_of_secrets(secrets)
    _warn_of_secrets(secrets_of_registry)
    _check_formats(parsed)
    _check_topics(parsed)
    _check_exactly_once(parsed, is_stream=is_stream)
    if is_async and parsed.delivery_guarantee == EXACTLY_ONCE:
        raise ConfigError.of(
            "asyncProgressTrackingEnabled",
            " cannot be used with deliveryGuarantee=exactly-once: Spark then "
            "records the contents of a batch after the batch, so the same number may stand for other rows after a "
            "restart; remove one of them",
        )
    return parsed


def parse_arguments(options: Mapping[str, OptionValue], arguments: Mapping[str, OptionValue]) -> SinkOptions:
    """:raises ConfigError: if an option is invalid, or is also given as an argument."""
    texts, argument_texts = as_texts(options), as_texts(arguments)
    named = {name.lower() for name in texts}
    for name, value in argument_texts.items():
        if name.lower() in named:
            raise ConfigError(
                f"{name} is set twice: as an argument ({value!r}) and in options; remove one of them", option=name
            )
    return parse_options({**texts, **argument_texts})


def _check_prefixed(kafka_values: Mapping[str, str], own: Mapping[str, str]) -> None:
    """Check that options of the sink (*own*, by their names in lower case) have no prefix; a partitioner of the user
    may have its own options.

    :raises ConfigError: if one of *kafka_values* is an option of the sink, or of a serializer.
    """
    others = kafka_values.keys() - c.keys(ProducerConfig).keys()
    for name in others and others - producer_config.names_for_plugins(kafka_values):
        dotted = name.replace("_", ".")
        if name in own or is_of_registry(dotted):
            own_name = own.get(name, dotted)
            raise ConfigError(
                f"unknown option {KAFKA_PREFIX}{name}: it is an option of the sink; set {own_name}",
                option=f"{KAFKA_PREFIX}{name}",
            )
        if is_of_serializers(name):
            check_of_serializers(name, kafka_values[name])


def _warn_of_secrets(names: Sequence[str]) -> None:
    """Warn about each set of *names* once per process."""
    listed = ", ".join(names)
    if names and _warned_of.is_new(listed):
        warn(
            _log,
            "the value of %s is a secret. It travels with Spark's options, also into its event log. Put it into "
            "a file that the executors can read, and set the option to a reference: "
            "${file:/path/of/secrets.properties:key}, ${dir:/path/of/a/directory:file} or ${env:NAME} "
            "(docs/security.md)",
            listed,
        )


#: Names of options of Confluent's Python client and Spark's ``to_avro``, with the corresponding options here.
_MEANT: Final[Mapping[str, str]] = {
    "url": URL,
    "auto.register": "auto.register.schemas",
    "avroschema": "value.schema",
    "jsonformatschema": "value.schema",
    "subject_name_strategy": "value.subject.name.strategy or key.subject.name.strategy",
}


def _refused(name: str, value: str, own: list[str]) -> ConfigError:
    """The error for an option that is neither one of the sink's *own* options nor a Kafka option."""
    lowered = name.lower()
    if lowered == "path":
        return ConfigError(
            f"save({value!r}) names a path, but this sink writes to topics; use save() and option('topic', …)",
            option="path",
        )
    if lowered in c.keys(ProducerConfig) and lowered not in REFUSED:
        hint = f" (did you mean {KAFKA_PREFIX}{lowered}?)"
    elif meant := _MEANT.get(lowered) or c.misspelt(lowered, [*own, *_OF_REGISTRY]):
        hint = f" (did you mean {meant}?)"
    else:
        hint = c.hint(ProducerConfig, lowered, KAFKA_PREFIX, without=REFUSED) or (
            f"; remove it: the options are {', '.join(own)}, and Kafka's options as {KAFKA_PREFIX}…"
        )
    return ConfigError(f"unknown option {name}{hint}", option=name)


def _check_formats(options: SinkOptions) -> None:
    """:raises ConfigError: if options of a format have no effect."""
    formatted = [wanted.column for wanted in options.wanted_formats]
    for column, settings in (
        ("key", {"schema": options.key_schema, "message": options.key_message, "refs": options.key_refs}),
        ("value", {"schema": options.value_schema, "message": options.value_message, "refs": options.value_refs}),
    ):
        unused = [f"{column}.{name}" for name, value in settings.items() if value is not None]
        if unused and column not in formatted:
            raise ConfigError.of(unused[0], f" has no effect without {column}.format; set both, or remove it")
    for wanted in options.wanted_formats:
        _check_format(wanted, options.registry)
    if options.registry_properties and not formatted:
        raise ConfigError(
            "options of a schema registry have no effect without key.format or value.format; set one",
            option=next(iter(options.registry_properties)),
        )
    if options.registry.schema_id is not None and len(formatted) > 1:
        raise ConfigError(
            f"use.schema.id={options.registry.schema_id} is the id of one schema, and key.format and value.format have "
            "two; set key.use.schema.id and value.use.schema.id",
            option="use.schema.id",
        )


def _check_format(wanted: WantedFormat, registry: RegistryConfig) -> None:
    """:raises ConfigError: if options of a column that has a format have no effect."""
    column, chosen = wanted.column, registry.chosen(wanted.column)
    if chosen is not None and wanted.schema is not None:
        raise ConfigError.of(f"{column}.schema", f" has no effect with {chosen}; remove one of them")
    if wanted.schema is not None and wanted.name == JSON and not registry.urls:
        raise ConfigError.of(
            f"{column}.schema",
            f" has no effect with {column}.format=json and without schema.registry.url: JSON "
            "is written without a schema; remove it",
        )
    if wanted.references is not None and (wanted.schema is None or not registry.urls):
        raise ConfigError.of(
            f"{column}.refs",
            f" has no effect without {column}.schema and schema.registry.url: it says what that "
            "schema refers to in the registry; set both, or remove it",
        )
    if wanted.message is None:
        return
    if wanted.name != PROTOBUF:
        raise ConfigError.of(
            f"{column}.message",
            f" has no effect with {column}.format={wanted.name}: only schemas of Protobuf have messages; remove it",
        )
    if wanted.schema is None and chosen is None:
        raise ConfigError.of(
            f"{column}.message",
            f" has no effect without {column}.schema or use.latest.version=true: a derived "
            "schema has one message; remove it, or give a schema",
        )


def _check_topics(options: SinkOptions) -> None:
    """:raises ConfigError: if options about new topics, or about bad rows and theirs, contradict each other."""
    spec = options.spec
    if options.topic_partitions is not None and spec.topic is None:
        raise ConfigError.of("topicPartitions", " needs option topic; topics named in a column are not created")
    if options.topic_replication_factor is not None and options.topic_partitions is None:
        raise ConfigError.of(
            "topicReplicationFactor",
            " has no effect without topicPartitions, which creates a missing topic; set both, or remove it",
        )
    if spec.on_bad_row == DEAD_LETTER and spec.dead_letter_topic is None:
        raise ConfigError.of("onBadRow", "=dead-letter needs the topic of the bad rows: set option deadLetterTopic")
    if spec.on_bad_row != DEAD_LETTER and spec.dead_letter_topic is not None:
        raise ConfigError.of(
            "deadLetterTopic",
            f" has no effect with onBadRow={spec.on_bad_row}; remove one of them: "
            "deadLetterTopic alone means onBadRow=dead-letter",
        )
    if spec.on_bad_row == FAIL and spec.max_bad_rows is not None:
        raise ConfigError.of(
            "maxBadRows",
            " has no effect, because the write fails at the first bad row; set deadLetterTopic or "
            "onBadRow=drop, or remove it",
        )
    if spec.dead_letter_topic is not None and spec.dead_letter_topic == spec.topic:
        raise ConfigError.of(
            "deadLetterTopic",
            f": {spec.dead_letter_topic!r} is the topic of the rows themselves (option topic); name another topic",
        )


def _check_exactly_once(options: SinkOptions, *, is_stream: bool) -> None:
    """:raises ConfigError: if options of exactly-once writes contradict each other."""
    if is_stream:
        _check_stream_name(options)
    else:
        _check_batch_number(options)
    is_named = options.transactional_id_prefix is not None or options.txn_app_id is not None
    if not is_named and options.spec.producer.two_phase:
        raise ConfigError.of(
            f"{KAFKA_PREFIX}{TWO_PHASE}",
            "=true has no effect at least once; set deliveryGuarantee=exactly-once "
            "and transactionalIdPrefix (a stream), or txnAppId and txnVersion (a batch), or remove it",
        )
    if not is_named and options.progress_topic is not None:
        raise ConfigError.of("progressTopic", " has no effect without transactionalIdPrefix or txnAppId; remove it")
    if is_named and options.spec.exactly_once is None:
        raise ConfigError(
            "exactly-once needs a topic under whose name its progress is stored: set option progressTopic to an "
            "existing topic (nothing is written to it)",
            option="progressTopic",
        )
    if is_named:
        _check_idempotence(options.spec.producer.config)


def _check_idempotence(config: ProducerConfig) -> None:
    """:raises ConfigError: if the user set an option to a value that transactions exclude."""
    # The last one may be derived from the others.
    for name, value, is_right, expected in (
        ("acks", config.acks, config.acks in ("all", "-1"), "all"),
        ("retries", config.retries, config.retries > 0, "more than 0"),
        ("enable.idempotence", config.enable_idempotence, config.enable_idempotence, "true"),
    ):
        if not is_right:
            raise ConfigError.of(
                f"{KAFKA_PREFIX}{name}",
                f": '{str(value).lower()}' cannot be used with exactly-once, expected {expected}; remove it",
            )


def _check_stream_name(options: SinkOptions) -> None:
    """:raises ConfigError: if a stream has options of batch writes, or only one of guarantee and name."""
    for name, value in {"txnAppId": options.txn_app_id, "txnVersion": options.txn_version}.items():
        if value is not None:
            raise ConfigError.of(
                name,
                " is for batch writes, as in foreachBatch; Spark numbers the batches of a stream: "
                "set deliveryGuarantee=exactly-once and transactionalIdPrefix instead",
            )
    wanted = options.delivery_guarantee == EXACTLY_ONCE
    if wanted and options.transactional_id_prefix is None:
        raise ConfigError(
            "deliveryGuarantee=exactly-once needs the name of the sink: set transactionalIdPrefix too, or remove it",
            option="deliveryGuarantee",
        )
    if not wanted and options.transactional_id_prefix is not None:
        raise ConfigError(
            "transactionalIdPrefix is for exactly-once, and contradicts deliveryGuarantee=at-least-once; remove one of "
            "them",
            option="transactionalIdPrefix",
        )


def _check_batch_number(options: SinkOptions) -> None:
    """:raises ConfigError: if a batch write has options of streams, or only one of application and number."""
    if options.delivery_guarantee == EXACTLY_ONCE or options.transactional_id_prefix is not None:
        raise ConfigError(
            "deliveryGuarantee and transactionalIdPrefix are for writeStream; to write each batch of a batch "
            "job exactly once, number the writes with txnAppId and txnVersion",
            option="deliveryGuarantee",
        )
    if (options.txn_app_id is None) != (options.txn_version is None):
        raise ConfigError(
            "txnAppId and txnVersion belong together: the name of the application and its number", option="txnAppId"
        )
