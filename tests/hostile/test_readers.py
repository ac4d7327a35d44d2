"""Every reader of untrusted bytes is in the table of ``readers.py``, ends, and raises only its own errors."""

from __future__ import annotations

import ast
import struct
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

from kafka_sink.http.oauth.token_login import LOGINS
from kafka_sink.trust.key_stores import KeyStoreError, trusted_certificates
from tests.conftest import Figure
from tests.hostile.fuzz import ATTACKS, attacked
from tests.hostile.readers import READERS, TABLE, Reader, read_once
from tests.support.amounts import READER_CASES, READER_MINUTES

SOURCE: Final = Path(__file__).parents[2] / "kafka_sink"

#: Functions that an attack of their own in ``fuzz.py`` covers.
ATTACKED: Final = {
    "formats.avro.parsing:_decimal": "Avro schemas",
    "formats.avro.reading:DatumReader.pieces": "Avro records",
    "formats.avro.reading:_decimal": "Avro records",
    "formats.avro.reading:_number": "Avro records",
    "formats.json.column:JsonFormat.record_name": "JSON schemas",
    "formats.schema_text:schema_json": "JSON schemas",
    "formats.json.parsing:_at": "JSON schemas",
    "formats.protobuf.weighing:_Weighing._held": "Protobuf weights",
    "cli.values.typed_values:_json_of": "Avro and JSON weights",
    "formats.protobuf.descriptors:_base64": "Protobuf schemas",
    "http.exchange:HttpAnswer._sent": "echoing registries",
    "http.local_server:LocalHandler.read_body": "HTTP requests",
    "registry.client:_json": "HTTP answers",
    "spark.driver.column_formats:given_schema": "command lines",
    "testing.registry.embedded_registry:_object": "HTTP requests",
    "testing.registry.avro_judge:_default": "Avro schemas",
}

#: Modules and functions that read no untrusted bytes, each with the reason.
EXCEPTED: Final = {
    "common.bounded": "the reader with bounds itself",
    # Data that this process or its own program created.
    "broker.faults.disk": "a folder of a partition, which the log manager made",
    "broker.network.quotas": "the value of a quota, which is a number already",
    "broker.network.request_metrics": "this process's own times",
    "common.metrics": "this process's own numbers",
    "exactly_once.progress:_dense": "bytes of our own",
    "producer.metrics": "this process's own numbers",
    "producer.sending.in_flight_batches": "an error code as a number",
    "spark.versions": "what the driver of this application pickled; Spark's own secret guards the way",
    "spark.streaming.stopping": "the progress of this application's query",
    "spark.data_source": "the number of the micro-batch, from Spark",
    "testing.registry.refusals": "our own error codes",
    "testing.registry.schemas": "a digest of our own",
    "broker.authorizer:_java_address": "the address of a connection, from the system",
    "client.connection.api_versions": "numbers that the decoder made",
    "common.errors": "numbers that the decoder made",
    "consumer.topic_reading": "offsets, which are numbers already; its cursors are of partitions",
    "client.login.sasl_authenticator:_correlation_id": "four bytes, of a frame that was read",
    "broker.log.segment": "deltas of records that record_spans has found, as compacted batches have them",
    "records.batch:write_header": "numbers of our own",
    "cli.values.json_records:bytes_to_json": "it shows bytes as text or in base64",
    "http.local_asgi": "our own answers",
    "ui.pages:_styles_of_maps": "the file of plotly that is installed",
    "spark.driver.column_formats": "a registry's refusal, of which 1,500 characters are kept",
    "trust.tls_context": "a file that the user names, in Latin-1, which has all bytes",
    **dict.fromkeys(
        ("exactly_once.planning", "preflight.cluster_steps", "preflight.cluster_steps"),
        "a setting of a broker as one number within bounds",
    ),
    **dict.fromkeys(
        ("broker.log.log_manager", "broker.log.segments"),
        "names of files in the data directory, each as one number within bounds",
    ),
    # Declarations of the source.
    "protocol.decoder:_smallest_size": "the declared fields of a message",
    "protocol.schema": "the declared versions of a message",
    "common.config:": "the declared types of options",
    "formats.json.parsing:": "the tables of keywords",
    "trust.key_stores:": "a constant",
    "trust.pem:": "constants",
    # Conversions of numbers of numpy and pyarrow to those of Python.
    **dict.fromkeys(
        (
            "columns.binary_column",
            "columns.gather",
            "columns.record_columns",
            "formats.avro.writers",
            "formats.fields",
            "formats.json.constraints",
            "formats.json.moments",
            "formats.json.writers",
            "formats.payloads",
            "producer.batching.column_append",
            "producer.plugins.partitioner",
            "producer.staging.column_staging",
            "producer.staging.limit_checks:_out_of_time",
            "producer.staging.record_staging",
            "spark.peek",
            "spark.task.placing",
            "spark.task.task_rows",
            "spark.task.task_writer",
        ),
        "numbers of numpy and pyarrow, of columns of our own",
    ),
    # Arguments and files that the user of this process passes.
    **dict.fromkeys(
        (
            "cli.commands.produce",
            "cli.commands.report",
            "cli.commands.verify",
            "common.requirements",
            "spark.check",
            "spark.driver.atomic_jobs",
            "spark.driver.lineage",
            "spark.write_spec",
            "spark.streaming.checkpoint",
            "spark.task.dead_letters",
            "testing.clusters",
            "testing.registry.embedded_registry:_Request.schema_id",
            "testing.registry.schema_store",
        ),
        "the user's own options, settings, times and packages, or text that a pattern has checked",
    ),
    "cli.comparing": "files of the user's own, and JSON that was made of a record within the bounds of what is shown",
}

#: Readers that no call reveals: they examine single bytes, or match patterns.
SEEN_BY_NOTHING: Final = {
    "variable-length numbers",
    "addresses of token endpoints",
    "options of login modules",
    "references to secrets",
}

#: Names of functions that read.
_NAMES: Final = frozenset(
    {
        *("int", "float", "Decimal", "UUID", "read_varint", "read_varlong"),
        *("Cursor", "parsed_json", "json_number", "whole_number", "known_number"),
    }
)
_ATTRIBUTES: Final = frozenset(
    {
        *("unpack", "unpack_from", "iter_unpack", "from_bytes", "loads", "b64decode", "urlsafe_b64decode", "fromhex"),
        *("fromtimestamp", "fromisoformat", "strptime", "literal_eval", "Decimal", "UUID"),
    }
)
#: Methods of numpy arrays and Python's random numbers whose results are numbers already.
_NUMBERS: Final = frozenset({"min", "max", "sum", "argmin", "argmax", "searchsorted", "count_nonzero", "uniform"})


def _reads(call: ast.Call) -> bool:
    function, first = call.func, call.args[0] if call.args else None
    if isinstance(function, ast.Attribute):
        is_json_file = function.attr == "load" and isinstance(function.value, ast.Name) and function.value.id == "json"
        is_text = (
            function.attr == "decode" and not isinstance(function.value, ast.Call) and not _is_class(function.value)
        )
        return function.attr in _ATTRIBUTES or is_json_file or is_text
    if not isinstance(function, ast.Name):
        return False
    if function.id == "map":
        return isinstance(first, ast.Name | ast.Attribute) and getattr(first, "id", getattr(first, "attr", "")) in (
            _NAMES | _ATTRIBUTES
        )
    if function.id not in ("int", "float"):
        return function.id in _NAMES
    is_number = isinstance(first, ast.Call) and isinstance(first.func, ast.Attribute) and first.func.attr in _NUMBERS
    return first is not None and not is_number and not isinstance(first, ast.BinOp | ast.Compare | ast.BoolOp)


def _is_class(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id[0].isupper()


def _readers(node: ast.AST, name: str) -> Iterator[str]:
    """Yield the names of the functions that read in *node*, whose name is *name*; empty for the module."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _readers(child, f"{name}.{child.name}" if name else child.name)
        else:
            if isinstance(child, ast.Call) and _reads(child):
                yield name
            yield from _readers(child, name)


def found() -> set[str]:
    """Return ``module:function`` of all functions of the source that read bytes or text."""
    return {
        f"{'.'.join(file.relative_to(SOURCE).with_suffix('').parts)}:{name}"
        for file in SOURCE.rglob("*.py")
        for name in _readers(ast.parse(file.read_text(encoding="utf-8")), "")
    }


def excepted(function: str) -> set[str]:
    """Return the keys of EXCEPTED that cover *function*: itself, its module, or its package."""
    module = function.partition(":")[0]
    return {each for each in EXCEPTED if each in (function, module) or module.startswith(f"{each}.")}


@pytest.mark.behaviour("Readers", "Each function that reads others' bytes is in the table, or excepted with a reason")
def test_each_reader_is_in_the_table_or_excepted() -> None:
    listed = {function for reader in TABLE for function in reader.of.split()} | set(ATTACKED)
    reading = found()
    assert {each for each in reading - listed if not excepted(each)} == set()
    # No function is listed that no longer exists, and none twice.
    used = {line for each in reading - listed for line in excepted(each)}
    assert set(EXCEPTED) - used == set()
    assert set(ATTACKED) <= reading
    assert set(ATTACKED.values()) <= set(ATTACKS)
    assert len(READERS) == len(TABLE)
    assert {each.name for each in TABLE if reading.isdisjoint(each.of.split())} == SEEN_BY_NOTHING
    for function in listed:
        module, _, names = function.partition(":")
        place: object = import_module(f"kafka_sink.{module}")
        for name in names.split("."):
            # Functions within a function are not accessible from outside.
            place = getattr(place, name, None) or pytest.fail(function) if name != "read" else place


def _cases(reader: Reader) -> int:
    return max(int(READER_CASES * reader.share), 20)


@pytest.mark.behaviour("Readers", "A reader ends in time proportional to its input, with a value or its own error")
@pytest.mark.parametrize("name", READERS)
def test_a_reader_ends_with_a_value_or_its_error(name: str, figure: Figure) -> None:
    reader, case = READERS[name], 0
    for seed in reader.seeds:
        read_once(reader, seed)
    end_s = time.monotonic() + READER_MINUTES * 60
    while case < _cases(reader) or time.monotonic() < end_s:
        error = attacked(name, 1, case)
        if error is not None:
            error.add_note(f"python -m tests.hostile.fuzz --only '{name}' --seed 1 --case {case}")
            raise error
        case += 1
    LOGINS.forget()
    figure(f"inputs of the reader of {name}", case)


def test_what_stands_still_is_seen() -> None:
    def back(data: bytes) -> None:
        # A reader with negative lengths, in a file of the source.
        exec(compile("at = 0\nwhile at < 5:\n    at += 1\n    at -= 1\n", f"{SOURCE}/back.py", "exec"), {})

    with pytest.raises(AssertionError, match="StandsStill"):
        read_once(Reader("back", "", back, (b"",)), b"")
    with pytest.raises(AssertionError, match="KeyError"):
        read_once(Reader("other", "", dict[bytes, int]().__getitem__, (b"",), ValueError), b"")


@pytest.mark.behaviour("Readers", "A key store of nested strings is refused, however deep they are")
def test_nested_strings_of_a_key_store_are_refused() -> None:
    """Regression: each level was read twice, so 40 levels of 8 bytes took 2⁴⁰ steps."""
    inner = b"\x02\x01\x05"
    for _ in range(30):
        sequence = b"\x30\x82" + struct.pack(">H", len(inner)) + inner
        piece = b"\x04\x82" + struct.pack(">H", len(sequence)) + sequence
        inner = b"\x24\x82" + struct.pack(">H", len(piece)) + piece
    for store in (b"\x30\x82" + struct.pack(">H", len(inner)) + inner, b"\x30\x80" + b"\x24\x80" * 50_000):
        with pytest.raises(KeyStoreError, match="levels deep"):
            trusted_certificates(store, "st0re")
