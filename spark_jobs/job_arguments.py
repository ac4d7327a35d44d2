"""The command lines of the jobs in ``spark_jobs``: parses the arguments, and creates the input rows in the sink's
columns and the sink's options.

Called once, on the main thread of a job. It uses Spark's readers and has no Kafka code.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType

from kafka_sink.common.errors import ConfigError, KafkaError
from kafka_sink.common.properties import load_properties
from kafka_sink.common.references import PROVIDERS, has_reference
from kafka_sink.producer.config import inline_secrets
from kafka_sink.spark.errors import cause_of
from kafka_sink.spark.write_spec import KAFKA_PREFIX

_FORMATS: Final = ("text", "csv", "json", "parquet", "orc")
_BOOTSTRAP_SERVERS: Final = f"{KAFKA_PREFIX}bootstrap.servers"
_HAVE_A_SCHEMA: Final = ("parquet", "orc")


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        # The text may be a secret without its name, so it is not repeated.
        raise argparse.ArgumentTypeError("expected NAME=VALUE")
    return name, value


def job_parser(description: str | None, *, is_stream: bool) -> argparse.ArgumentParser:
    """Return a parser for the source of the rows, their conversion to records, and the target."""
    parser = argparse.ArgumentParser(description=description)
    _add_target(parser)
    _add_source(parser, is_stream=is_stream)
    _add_records(parser)
    return parser


def _add_target(parser: argparse.ArgumentParser) -> None:
    target = parser.add_argument_group("target")
    target.add_argument(
        "--bootstrap-servers", metavar="HOST:PORT[,…]", help="required unless --command-config has bootstrap.servers"
    )
    target.add_argument(
        "--command-config",
        metavar="FILE",
        help="properties file with options of Kafka, such as passwords, which must exist under the same path on every "
        "executor; --option takes precedence",
    )
    target.add_argument("--topic", help="required unless the rows name their topics (--as-is with a column topic)")
    target.add_argument(
        "--option",
        dest="sink_options",
        type=_pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any option of the sink, such as kafka.compression.type=zstd; may be repeated",
    )
    target.add_argument(
        "--report", help="file to which each write appends one JSON line when it is committed or has failed"
    )


def _add_source(parser: argparse.ArgumentParser, *, is_stream: bool) -> None:
    source = parser.add_argument_group("source")
    if is_stream:
        source.add_argument("--source", choices=["files", "socket", "rate"], default="files")
        source.add_argument(
            "--files-per-batch", type=int, default=1, help="number of files per micro-batch (default 1)"
        )
    where = "folder, HOST:PORT, or rows per second" if is_stream else "file or folder"
    source.add_argument("--input", required=True, help=where)
    source.add_argument("--format", choices=_FORMATS, default="text", help="format of the files (default text)")
    source.add_argument("--schema", help="columns of the files, such as 'id LONG, name STRING'")
    source.add_argument(
        "--read-option",
        dest="read_options",
        type=_pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of Spark's reader, such as header=true; may be repeated",
    )


def _add_records(parser: argparse.ArgumentParser) -> None:
    records = parser.add_argument_group("records")
    records.add_argument("--key", metavar="COLUMN", help="column to use as the key (default: no keys)")
    records.add_argument(
        "--value",
        metavar="COLUMN",
        help="column to use as the value (default: a line of text; for other formats the row as JSON, or in the format "
        "of the option value.format)",
    )
    records.add_argument(
        "--as-is", action="store_true", help="the columns are already those of the sink: value, key, topic, headers …"
    )


def read_records(spark: SparkSession, arguments: argparse.Namespace, *, is_stream: bool) -> DataFrame:
    """Return the rows from the source in *arguments*, in the sink's columns.

    :raises SystemExit: if arguments contradict each other; the text says what to do.
    """
    return _to_records(_read_stream(spark, arguments) if is_stream else _read_files(spark, arguments), arguments)


def _read_files(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    reader = spark.read.options(**dict(arguments.read_options))
    if arguments.schema:
        reader = reader.schema(arguments.schema)
    return reader.format(arguments.format).load(arguments.input)


def _read_stream(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    reader = spark.readStream.options(**dict(arguments.read_options))
    if arguments.source == "socket":
        host, separator, port = arguments.input.rpartition(":")
        if not separator or not port.isdecimal():
            refuse(f"--input {arguments.input}: --source socket needs HOST:PORT")
        return reader.format("socket").option("host", host).option("port", port).load()
    if arguments.source == "rate":
        if not arguments.input.isdecimal():
            refuse(f"--input {arguments.input}: --source rate needs a number of rows per second")
        return reader.format("rate").option("rowsPerSecond", arguments.input).load()
    schema = "value STRING" if arguments.format == "text" else arguments.schema
    if schema is None and arguments.format in _HAVE_A_SCHEMA:
        schema = spark.read.format(arguments.format).load(arguments.input).schema
    if schema is None:
        refuse(f"a stream of {arguments.format} files needs --schema, such as --schema 'id LONG, name STRING'")
    reader = reader.schema(schema).option("maxFilesPerTrigger", arguments.files_per_batch)
    return reader.format(arguments.format).load(arguments.input)


def _to_records(rows: DataFrame, arguments: argparse.Namespace) -> DataFrame:
    if arguments.as_is:
        if arguments.key or arguments.value:
            refuse("--as-is uses the columns as they are: remove --key and --value")
        return rows
    for column in (arguments.key, arguments.value):
        if column is not None and column not in rows.columns:
            refuse(f"there is no column {column}; the columns are {', '.join(rows.columns)}")
    formatted = {name.lower().removesuffix(".format") for name, _ in arguments.sink_options}
    value = arguments.value or ("value" if rows.columns == ["value"] else None)
    row = f.struct("*") if "value" in formatted else f.to_json(f.struct("*"))
    columns = [row if value is None else _column(rows, value, "value" in formatted)]
    names = ["value"]
    if arguments.key:
        columns.append(_column(rows, arguments.key, "key" in formatted))
        names.append("key")
    return rows.select(*(column.alias(name) for column, name in zip(columns, names, strict=True)))


def _column(rows: DataFrame, name: str, is_formatted: bool) -> Any:
    """Return the column unchanged if a format encodes it, otherwise as bytes or text."""
    column = f.col(f"`{name}`")
    return column if is_formatted or isinstance(rows.schema[name].dataType, BinaryType) else column.cast("string")


def to_kafka(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the sink's options from *arguments*; references replace the secrets in the file of --command-config.

    :raises SystemExit: if the file cannot be read, or no bootstrap servers are given; the text says what to do.
    """
    options = _from_file(arguments.command_config) if arguments.command_config else {}
    if arguments.bootstrap_servers:
        options[_BOOTSTRAP_SERVERS] = arguments.bootstrap_servers
    options |= dict(arguments.sink_options)
    if _BOOTSTRAP_SERVERS not in options:
        refuse("add --bootstrap-servers HOST:PORT, or bootstrap.servers to the file of --command-config")
    if arguments.topic:
        options["topic"] = arguments.topic
    if arguments.report:
        options["reportPath"] = arguments.report
    return options


def _from_file(path: str) -> dict[str, str]:
    try:
        properties = load_properties(path)
    except ConfigError as error:
        refuse(f"--command-config {error}")
    except OSError as error:
        refuse(f"--command-config {path} cannot be read: {error.strerror}")
    for name in inline_secrets(properties):
        # The executors read the value, so Spark's options do not contain it. They would not resolve a reference within
        # it; the sink warns of a secret next to one.
        if not has_reference(properties[name], PROVIDERS):
            properties[name] = f"${{file:{Path(path).resolve()}:{name}}}"
    return {f"{KAFKA_PREFIX}{name}": value for name, value in properties.items()}


def sink_name(arguments: argparse.Namespace) -> str:
    """The sink's name: --name, or the topic if it is not given."""
    name = arguments.name or arguments.topic
    if not name:
        refuse("if rows name their topics, the sink needs a name of its own: --name")
    return str(name)


def refuse(text: str) -> NoReturn:
    """:raises SystemExit: always, with the exit code of an invalid command line; *text* is written to stderr."""
    sys.stderr.write(f"error: {text}\n")
    raise SystemExit(2)


def run_job(job: Callable[[], None]) -> None:
    """Run *job*; print an error of Kafka or Spark as one line on stderr.

    :raises SystemExit: with exit code 1 after such an error.
    """
    try:
        job()
    except (KafkaError, PySparkException) as error:
        text = str(cause_of(error) or error)
        line = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
        raise SystemExit(f"error: {line}") from None
