"""``kafka_sink.check``: finds the causes that would make a write fail, from the driver and an executor.

Called on the driver, in the caller's thread; also works in the process of a Spark Connect client. It runs one Spark
task and writes nothing to the cluster.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Final

from kafka_sink.common.errors import ConfigError, SchemaError
from kafka_sink.common.version import VERSION
from kafka_sink.formats.errors import FormatError
from kafka_sink.preflight.check import check_all
from kafka_sink.preflight.findings import (
    CheckReport,
    CheckTarget,
    ExactlyOnceTarget,
    Finding,
    NewTopicTarget,
    RegistryTarget,
    Status,
    SubjectTarget,
    split_advice,
)
from kafka_sink.registry.config import SubjectNameStrategy
from kafka_sink.registry.subjects import subject_name
from kafka_sink.spark.driver.before_write import check_schema
from kafka_sink.spark.driver.column_formats import forms_to_register, registered_schema, subject_of
from kafka_sink.spark.driver.job_failures import summary_of
from kafka_sink.spark.driver.jobs import Interrupts, run_stoppable
from kafka_sink.spark.format_lookup import look_up
from kafka_sink.spark.options import OptionValue, SinkOptions, as_texts, parse_options
from kafka_sink.spark.task.worker_process import worker_process
from kafka_sink.spark.versions import refuse_other_version
from kafka_sink.spark.write_spec import ADVISED_MIB, KAFKA_PREFIX, LIMIT, buffer_mib

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_DRIVER = "driver"
_EXECUTOR = "executor"

#: The fields of a finding, as an executor returns them.
_COLUMNS = tuple(field.name for field in fields(Finding))

#: Options of streams only.
_OF_STREAMS = frozenset({"deliveryguarantee", "transactionalidprefix"})

_MEMORY: Final = "memory"
OVERHEAD: Final = "spark.executor.memoryOverhead"

#: The largest measured memory of a worker without buffer.memory (``scripts/bench.sh memory``), rounded up.
WORKER_MIB: Final = 160

#: Powers of 1024 by the last letter of a size, in MiB.
_UNITS: Final[Mapping[str, int]] = {"": 0, "k": -1, "m": 0, "g": 1, "t": 2, "p": 3}
#: Spark's defaults.
_EXECUTOR_MIB: Final = 1024
_LEAST_OVERHEAD_MIB: Final = 384
_OVERHEAD_FACTOR: Final = 0.1
_KUBERNETES_FACTOR: Final = 0.4

#: The value of a setting of Spark; None if it is not set.
Setting = Callable[[str], str | None]


def check(
    spark: SparkSession,
    options: Mapping[str, OptionValue],
    *,
    topics: Sequence[str] = (),
    schema: StructType | None = None,
) -> CheckReport:
    """Check that a write with these *options* could succeed, and return the findings as a table.

    The driver and one executor each try the bootstrap servers and the address of every broker; the driver also checks
    topics, their settings, permissions and API versions, and the schema registry. Nothing is written: no record,
    topic, group, transaction or schema. A notebook shows the result as a table. Each wait ends after
    kafka.request.timeout.ms or kafka.max.block.ms, whichever is shorter, and at the registry after ten seconds.

    :param options: the options of ``format("kafkalite")``; for exactly once with ``txnAppId`` or
        ``transactionalIdPrefix``.
    :param topics: further topics, for a DataFrame with a topic column.
    :param schema: the columns of the rows, ``df.schema``; without it the check covers neither the columns, nor the
        schemas that are derived from them.
    """
    try:
        texts = {name.lower(): value for name, value in as_texts(options).items()}
        if "txnappid" in texts:
            # The number of the write does not matter here.
            texts.setdefault("txnversion", "0")
        parsed = parse_options(texts, is_stream=not _OF_STREAMS.isdisjoint(texts))
        if schema is not None:
            check_schema(schema, parsed)
        target = _target(parsed, topics, schema)
    except ConfigError as error:
        step = "columns" if isinstance(error, SchemaError | FormatError) else "options"
        return CheckReport([Finding(step, "all", Status.FAILED, *split_advice(str(error)), place=_DRIVER)])
    memory = memory_findings(lambda name: spark.conf.get(name, None), buffer_mib(parsed.spec.producer))
    of_spark = [replace(finding, place=_DRIVER) for finding in (look_up(spark), *memory)]
    return CheckReport([*check_all(target, _DRIVER), *of_spark, *_from_executor(spark, parsed, target)])


def _target(options: SinkOptions, topics: Sequence[str], schema: StructType | None) -> CheckTarget:
    spec, once = options.spec, options.spec.exactly_once
    own = [topic for topic in (spec.topic, spec.dead_letter_topic) if topic is not None]
    return CheckTarget(
        spec.producer.properties,
        tuple(dict.fromkeys([*own, *topics])),
        None
        if once is None
        else ExactlyOnceTarget(once.name, once.progress_topic, spec.producer.transaction_timeout_ms, once.two_phase),
        KAFKA_PREFIX,
        ()
        if options.topic_partitions is None
        else tuple(NewTopicTarget(topic, options.topic_partitions, options.topic_replication_factor) for topic in own),
        _registry(options, schema),
    )


def _registry(options: SinkOptions, schema: StructType | None) -> RegistryTarget | None:
    """The registry of these options, with the known subjects; without *schema* only those named after the topic."""
    config = options.registry
    if not config.urls:
        return None
    subjects = []
    for wanted in options.wanted_formats:
        is_of_registry = config.chosen(wanted.column) is not None or wanted.references is not None
        forms = [] if schema is None or is_of_registry else forms_to_register(wanted, schema)
        if forms:
            named = [subject_of(form, config, options.spec.topic) for form in forms]
            texts = [text for _, text in named]
            subject = SubjectTarget(named[0][0], wanted.column, wanted.name.upper(), texts[0])
            subjects.append(replace(subject, is_derived=wanted.schema is None, earlier=tuple(texts[1:])))
        elif options.spec.topic is not None and config.strategy(wanted.column) == SubjectNameStrategy.TOPIC:
            schema_text = None if wanted.schema is None else registered_schema(wanted)
            name = subject_name(SubjectNameStrategy.TOPIC, wanted.column, options.spec.topic, None)
            subjects.append(SubjectTarget(name, wanted.column, wanted.name.upper(), schema_text, wanted.schema is None))
    return RegistryTarget(options.registry_properties, tuple(subjects))


def _from_executor(spark: SparkSession, options: SinkOptions, target: CheckTarget) -> list[Finding]:
    # Tasks send no requests to the registry, so they get none of its credentials.
    target, drivers, is_tuned = replace(target, registry=None), VERSION, options.spec.tune_python_workers

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        refuse_other_version(drivers)
        with worker_process.task(tuned=is_tuned):
            from kafka_sink.preflight.check import check_connections

            findings = check_connections(target, f"{_EXECUTOR} {platform.node()}")
        columns = {name: [str(getattr(finding, name)) for finding in findings] for name in _COLUMNS}
        columns["status"] = [finding.status.value for finding in findings]
        yield pyarrow.RecordBatch.from_pydict(columns)

    try:
        # Columns of text instead of pickle: with Spark Connect they come from another machine.
        schema = ", ".join(f"{name} string" for name in _COLUMNS)
        with Interrupts() as interrupts:
            rows = run_stoppable(spark, spark.range(0, 1, 1, 1).mapInArrow(run, schema).collect, interrupts)
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if "Error: " in line]
        reason = lines[-1] if lines else summary_of(error)
        advice = "look into the executor's log; its Python (PYSPARK_PYTHON) needs kafkalite and pyarrow"
        return [Finding("task", "check on an executor", Status.FAILED, reason, advice, place=_EXECUTOR)]
    return [Finding(**{**row.asDict(), "status": Status(row.status)}) for row in rows]


# --- memory -----------------------------------------------------------------------------------------------------------


def mib(size: str) -> int:
    """A size in the form of Spark's settings, such as ``512m`` or ``2g``, in MiB; a number alone is in MiB."""
    match = re.fullmatch(r"\s*([0-9]+)([kmgtp]?)b?\s*", size, re.IGNORECASE)
    return int(int(match[1]) * 1024.0 ** _UNITS[match[2].lower()]) if match else 0


def memory_findings(setting: Setting, buffer: int) -> list[Finding]:
    """Findings about the memory of executors whose tasks have *buffer* MiB of ``buffer.memory`` each, by *setting*;
    empty for a session without executors of its own and without a limit.

    Two settings count (docs/clusters.md, Memory). A cluster manager ends an executor whose processes together exceed
    its container: ``spark.executor.memory`` is the JVM's, and Python has part of ``spark.executor.memoryOverhead``, to
    which ``spark.executor.pyspark.memory`` is added. The latter also limits the address space of each worker
    (:mod:`kafka_sink.spark.task.worker_process`).
    """
    cores = int(setting("spark.executor.cores") or 1)
    tasks = max(1, cores // int(setting("spark.task.cpus") or 1))
    limit = setting(LIMIT)
    findings = []
    if limit is not None:
        of_worker, needed = mib(limit) // cores, ADVISED_MIB + buffer
        text = f"{mib(limit)} MiB, which are {of_worker} MiB of address space for each worker"
        finding = Finding(_MEMORY, LIMIT, Status.OK, text)
        if of_worker < needed:
            advice = (
                f"set {LIMIT} to {needed * cores}m or more ({needed}m for each of spark.executor.cores), or not at all"
            )
            finding = Finding(_MEMORY, LIMIT, Status.WARNING, f"{text}; a write may need {needed} MiB", advice)
        findings.append(finding)
    master = setting("spark.master") or ""
    if master == "yarn" or master.startswith("k8s"):
        findings.append(_of_container(setting, master, tasks, tasks * (WORKER_MIB + buffer)))
    return findings


def _of_container(setting: Setting, master: str, tasks: int, needed: int) -> Finding:
    heap = mib(setting("spark.executor.memory") or f"{_EXECUTOR_MIB}m")
    factor = float(
        setting("spark.executor.memoryOverheadFactor")
        or (setting("spark.kubernetes.memoryOverheadFactor") or _KUBERNETES_FACTOR if master != "yarn" else 0)
        or _OVERHEAD_FACTOR
    )
    least = mib(setting("spark.executor.minMemoryOverhead") or f"{_LEAST_OVERHEAD_MIB}m")
    overhead = setting(OVERHEAD)
    default = max(int(heap * factor), least)
    left = (default if overhead is None else mib(overhead)) + mib(setting(LIMIT) or "0")
    text = f"{left} MiB beside the heap for the JVM and {tasks} Python workers"
    if left >= needed:
        return Finding(_MEMORY, OVERHEAD, Status.OK, text)
    advice = f"set {OVERHEAD} to {default + needed}m or more, or the container may be killed"
    return Finding(_MEMORY, OVERHEAD, Status.WARNING, f"{text}, which need up to {needed} MiB", advice)
