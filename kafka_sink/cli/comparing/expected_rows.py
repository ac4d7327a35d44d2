"""The rows of files as comparable keys and values, in the order of the file names.

Runs on the main thread. Of each file some thousand rows are in memory.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kafka_sink.cli.comparing.comparable import Comparable
from kafka_sink.common.errors import ConfigError, SerializationError
from kafka_sink.formats.fields import is_text

_JSON: Final = "json"
#: The formats of files.
FILE_FORMATS: Final = ("parquet", "csv", _JSON, "orc")
_SUFFIXES: Final = {".parquet": "parquet", ".csv": "csv", ".json": _JSON, ".jsonl": _JSON, ".orc": "orc"}

_ROWS_AT_A_TIME: Final = 16_384
_KEY: Final = "key"

Pair = tuple[bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """The columns *key* and *value* of files, which are compared as *keys* and *values*.

    *file_format* is None if the names of the files tell it; *key* is None for the column ``key``, if there is one.
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
                row = _object(line)
                names.update(dict.fromkeys(row))
                yield self.keys.of_cell(row.get(self.key or _KEY)), self.values.of_cell(row.get(self.value))
        if names:
            self._check_columns(file, names)

    def _of_columns(self, file: Path, kind: str) -> Iterator[Pair]:
        rows = ds.dataset(file, format=kind)
        names = rows.schema.names
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
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.name[0] not in "._")
    if not files:
        raise ConfigError(f"--against {path}: the folder contains no files")
    return files


def _object(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SerializationError(f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise SerializationError("expected one JSON object in each line")
    return row


def _cells(column: pa.Array, name: str, comparable: Comparable) -> Iterable[bytes | None]:
    if comparable.form is not None:
        return map(comparable.of_cell, column.to_pylist(maps_as_pydicts="strict"))
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
            "columns that go to the sink, or give --format (--key-format) to compare what the records mean"
        )
    return list(pc.cast(column, pa.large_binary()).to_pylist())
