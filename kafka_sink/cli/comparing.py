"""Compares the records of a topic with the rows of files by 64-bit hashes of the records and of their keys.

Without a format the bytes themselves are compared; with a format their JSON, so that the ids of schemas, the order of
fields, and payloads and columns of files make no difference. A record takes 20 bytes and is not kept itself, so more
records can be compared than fit in memory; the comparison takes about the same amount again. Of each file some thousand
rows are in memory. Runs on the main thread.
"""

from __future__ import annotations

import base64
import json
import math
import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray
from pyarrow import csv

from kafka_sink.cli.values.json_records import bytes_from_json, json_object
from kafka_sink.cli.values.typed_values import shown
from kafka_sink.common.errors import ConfigError, SerializationError
from kafka_sink.formats.column_format import JSON
from kafka_sink.formats.fields import cell_of, is_text
from kafka_sink.registry.client import RegistryClient

_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)?")
#: Every whole number up to this one is a double.
_EXACT: Final = 1 << 53


class Comparable:
    """The keys or values, called *column*, of a topic and of files, in the format *form*; None: bytes as they are.

    :raises ConfigError: if the format needs a registry and there is none, or if its package is not installed.
    """

    def __init__(self, form: str | None, column: str, registry: RegistryClient | None) -> None:
        self.form = form
        self._column = column
        self._shown = shown(form, column, registry)

    def of_payload(self, payload: bytes | None) -> bytes | None:
        """*payload* of a record.

        :raises SerializationError: if it is not in the format, or has a whole number of more than 4,300 digits.
        """
        if payload is None or self.form is None:
            return payload
        text = self._shown(payload)
        try:
            value = json.loads(text)
        except ValueError as error:
            raise SerializationError(f"the {self._column} cannot be compared: {error}") from None
        return canonical(value)

    def of_cell(self, cell: Any) -> bytes | None:
        """*cell* of a file: a payload as bytes (JSON also as text), or the value itself.

        :raises SerializationError: if a payload is not in the format, or, without a format, if the cell is not text, a
            whole number or bytes (base64 in JSON).
        """
        if cell is None:
            return None
        if isinstance(cell, bytes):
            return self.of_payload(cell)
        if self.form is None:
            is_number = isinstance(cell, int) and not isinstance(cell, bool)
            return bytes_from_json(str(cell) if is_number else cell, self._column)
        if self.form == JSON and isinstance(cell, str):
            return self.of_payload(cell.encode("utf-8"))
        return canonical(_to_json(cell))


def _to_json(value: Any) -> Any:
    """Convert *value*, as Python's libraries read it, to the types of JSON."""
    if isinstance(value, dict):
        return {name: _to_json(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_to_json(item) for item in value]
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value if isinstance(value, str | int | float | None) else str(value)


def canonical(value: Any) -> bytes:
    """The JSON *value* as text that is the same for equal values: fields are sorted, and without those that are null;
    whole numbers have no fraction; times are those of UTC, without zeros at their end.

    :raises SerializationError: if it is nested too deeply.
    """
    try:
        return json.dumps(_plain(value), sort_keys=True, separators=(",", ":")).encode("ascii")
    except RecursionError:
        raise SerializationError("the value is nested too deeply to be compared") from None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    if isinstance(value, str) and (moment := _TIME.fullmatch(value)):
        try:
            return _in_utc(*moment.groups())
        except (ValueError, OverflowError):
            # There is no such day or hour, so it is a text.
            return value
    return value


def _in_utc(seconds: str, fraction: str | None, offset: str | None) -> str:
    if offset not in (None, "Z"):
        seconds = datetime.fromisoformat(f"{seconds}{offset}").astimezone(UTC).replace(tzinfo=None).isoformat()
    return f"{seconds}{(fraction or '').rstrip('0').rstrip('.')}"


Hashes = NDArray[np.int64]

#: Represents "no key"; the order of such records is not compared.
_NO_KEY: Final = np.iinfo(np.int64).min
#: The maximum number of examples in a verdict.
_SHOWN: Final = 5


class Fingerprint:
    """The records of one side in their order; filled once, by one thread."""

    def __init__(self) -> None:
        self._records = array("q")
        self._keys = array("q")
        self._partitions = array("i")

    def __len__(self) -> int:
        return len(self._records)

    def add(self, key: bytes | None, value: bytes | None, partition: int = 0) -> None:
        # Python's hash of bytes is SipHash with a secret of this process, which is the same for both sides.
        self._records.append(hash((key, value)))
        self._keys.append(_NO_KEY if key is None else hash(key))
        self._partitions.append(partition)

    @property
    def records(self) -> Hashes:
        return np.frombuffer(self._records, np.int64)

    @property
    def keys(self) -> Hashes:
        return np.frombuffer(self._keys, np.int64)

    @property
    def partitions(self) -> NDArray[np.int32]:
        return np.frombuffer(self._partitions, np.int32)


@dataclass(frozen=True)
class Verdict:
    """The differences between two sides. ``twice`` counts records that occur more often than expected, ``extra``
    records that are not expected at all. The order is checked for keys with the correct records, if these are in one
    partition."""

    expected: int
    written: int
    missing: int
    twice: int
    extra: int
    keys: int
    keys_judged: int
    keys_out_of_order: int
    keys_in_several_partitions: int
    #: The positions of the first missing records in the input, counted from 0.
    missing_rows: tuple[int, ...]

    @property
    def has_the_same_records(self) -> bool:
        return not (self.missing or self.twice or self.extra)

    @property
    def is_in_order(self) -> bool:
        return not (self.keys_out_of_order or self.keys_in_several_partitions)


def compare(expected: Fingerprint, written: Fingerprint) -> Verdict:
    records, counts = np.unique(expected.records, return_counts=True)
    actual, actual_counts = np.unique(written.records, return_counts=True)
    there = _counts_of(records, actual, actual_counts)
    wanted = _counts_of(actual, records, counts)
    missing = np.maximum(counts - there, 0)
    surplus = np.maximum(actual_counts - wanted, 0)
    keys = np.unique(expected.keys[expected.keys != _NO_KEY])
    wrong = np.union1d(
        expected.keys[np.isin(expected.records, records[missing > 0])],
        written.keys[np.isin(written.records, actual[surplus > 0])],
    )
    judged = np.setdiff1d(keys, wrong, assume_unique=True)
    several = _in_several_partitions(written, judged)
    rows = np.flatnonzero(np.isin(expected.records, records[missing > 0])) if missing.any() else np.empty(0, np.int64)
    return Verdict(
        expected=len(expected),
        written=len(written),
        missing=int(missing.sum()),
        twice=int(surplus[wanted > 0].sum()),
        extra=int(surplus[wanted == 0].sum()),
        keys=len(keys),
        keys_judged=len(judged),
        keys_out_of_order=_out_of_order(expected, written, np.setdiff1d(judged, several, assume_unique=True)),
        keys_in_several_partitions=len(several),
        missing_rows=tuple(int(row) for row in rows[:_SHOWN]),
    )


def _counts_of(hashes: Hashes, others: Hashes, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often each of *hashes* occurs in *others*; both are sorted and without repetitions."""
    if not len(others):
        return np.zeros(len(hashes), np.int64)
    indexes: Any = np.minimum(np.searchsorted(others, hashes), len(others) - 1)
    return np.where(others[indexes] == hashes, counts[indexes], 0)


def _by_key(side: Fingerprint, keys: Hashes) -> tuple[Hashes, Hashes, NDArray[np.int32]]:
    """Keys, records and partitions of the records with one of *keys*, by key; the records of a key keep their order."""
    chosen = np.flatnonzero(np.isin(side.keys, keys))
    chosen = chosen[np.argsort(side.keys[chosen], kind="stable")]
    return side.keys[chosen], side.records[chosen], side.partitions[chosen]


def _in_several_partitions(written: Fingerprint, keys: Hashes) -> Hashes:
    of_key, _, partitions = _by_key(written, keys)
    moved = (of_key[1:] == of_key[:-1]) & (partitions[1:] != partitions[:-1])
    return np.unique(of_key[1:][moved])


def _out_of_order(expected: Fingerprint, written: Fingerprint, keys: Hashes) -> int:
    """The number of *keys* whose records, which are the same on both sides, have a different order."""
    of_key, wanted, _ = _by_key(expected, keys)
    _, actual, _ = _by_key(written, keys)
    return len(np.unique(of_key[wanted != actual]))


_JSON: Final = "json"
#: The formats of files.
FILE_FORMATS: Final = ("parquet", "csv", _JSON, "orc")
_SUFFIXES: Final = {".parquet": "parquet", ".csv": "csv", ".json": _JSON, ".jsonl": _JSON, ".orc": "orc"}

#: CSV as Spark writes it: an empty field is null, and "" is an empty text (although Spark itself reads it as null).
_CSV: Final = ds.CsvFileFormat(
    convert_options=csv.ConvertOptions(null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False)
)
_ROWS_AT_A_TIME: Final = 16_384
_KEY: Final = "key"
#: Files, and folders such as _temporary, that Spark does not read either; it reads _id=7, a partition column.
_ADDITIONAL: Final = re.compile(r"/(\.|_[^=/]*(/|$))")

Pair = tuple[bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """The columns *key* and *value* of files, which are compared as *keys* and *values*.

    *file_format* None: the suffixes of the files decide; *key* None: the column ``key``, if there is one.
    """

    file_format: str | None
    key: str | None
    value: str
    keys: Comparable
    values: Comparable

    def read(self, paths: Sequence[Path]) -> Iterator[Pair]:
        """Key and value of each row, in the order of the file names.

        :raises ConfigError: if a file has an unknown format, or a column is missing or of a type that is not compared.
        :raises SerializationError: if a row cannot be compared; the text names the file and the row.
        """
        for file in (file for path in paths for file in _files(path)):
            kind = self.file_format or _SUFFIXES.get(file.suffix)
            if kind is None:
                formats = "|".join(FILE_FORMATS)
                raise ConfigError(f"cannot tell the format of {file} from its name; give --file-format {formats}")
            number = 0
            try:
                for pair in self._of_lines(file) if kind == _JSON else self._of_columns(file, kind):
                    yield pair
                    number += 1
            except SerializationError as error:
                raise SerializationError(f"{file}, row {number} (from 0): {error}") from None

    def _of_lines(self, file: Path) -> Iterator[Pair]:
        names: dict[str, None] = {}
        with file.open("rb") as lines:
            for line in lines:
                if not line.strip():
                    continue
                row = json_object(line, "one JSON object in each line")
                names.update(dict.fromkeys(row))
                yield self.keys.of_cell(row.get(self.key or _KEY)), self.values.of_cell(row.get(self.value))
        if names:
            self._check_columns(file, names)

    def _of_columns(self, file: Path, kind: str) -> Iterator[Pair]:
        rows = ds.dataset(file, format=kind)
        names = rows.schema.names
        if kind == "csv":
            # The columns of CSV are text, even if they look like numbers.
            rows = ds.dataset(file, format=_CSV, schema=pa.schema([(name, pa.string()) for name in names]))
        self._check_columns(file, names)
        key = self.key or (_KEY if _KEY in names else None)
        columns = [self.value] if key is None else [self.value, key]
        for batch in rows.to_batches(
            columns=columns, batch_size=_ROWS_AT_A_TIME, batch_readahead=1, fragment_readahead=1
        ):
            values = _cells(batch.column(self.value), self.value, self.values)
            keys: Iterable[bytes | None] = (
                repeat(None, len(batch)) if key is None else _cells(batch.column(key), key, self.keys)
            )
            yield from zip(keys, values, strict=True)

    def _check_columns(self, file: Path, names: Collection[str]) -> None:
        for name in (self.key, self.value):
            if name is not None and name not in names:
                raise ConfigError(
                    f"{file} has no column {name!r}; give --key or --value with one of {', '.join(names)}"
                )


def _files(path: Path) -> list[Path]:
    """*path*, or the files in a folder, without the additional files of Spark and Hadoop (_SUCCESS, .part-….crc)."""
    if not path.is_dir():
        return [path]
    found = (file for file in path.rglob("*") if file.is_file())
    files = sorted(file for file in found if not _ADDITIONAL.search(f"/{file.relative_to(path)}"))
    if not files:
        raise ConfigError(f"--against {path}: the folder contains no files")
    return files


def _cells(column: pa.Array, name: str, comparable: Comparable) -> Iterable[bytes | None]:
    if comparable.form is not None:
        return (comparable.of_cell(cell_of(cell, column.type)) for cell in column.to_pylist())
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_integer(column.type):
        # CSV has no types: text that consists of digits is read as a number.
        column = pc.cast(column, pa.string())
    if not is_text(column.type):
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            return list(column.to_pylist())
        raise ConfigError(
            f"column {name!r} is {column.type}, expected text or bytes, as in the records; write the files with the "
            "columns that go to the sink, or give --format (--key-format) to compare decoded values"
        )
    return list(pc.cast(column, pa.large_binary()).to_pylist())
