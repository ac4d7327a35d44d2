"""Reads a schema from a file, from several, or from a folder, with the references between them.

Called on the driver and by the command line. The first of several files is the schema; in a folder, the file that no
other refers to. A ``.proto`` file imports files from its folder.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Final, NamedTuple

from kafka_sink.formats.column_format import AVRO, JSON, PROTOBUF
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.schema_text import MOST_DEPTH, MOST_REFERENCES, Reference, SchemaText

#: A schema has a few kilobytes, and more with all imports; a larger file is no schema.
_MAX_BYTES: Final = 8 << 20
#: The maximum number of files and folders in a folder that is named as a schema.
_MOST_SEEN: Final = 20_000
_SUFFIXES: Final[Mapping[str, tuple[str, ...]]] = {AVRO: (".avsc", ".json"), JSON: (".json",), PROTOBUF: (".proto",)}


class _Named(NamedTuple):
    """The *text* of a file; the names by which other files may refer to it; those names that refer to itself in its own
    text; and its references: the names that each may resolve to, the last as the file writes it."""

    text: str
    declared: tuple[str, ...]
    own: tuple[str, ...]
    used: tuple[tuple[str, ...], ...]


def read_schema(form: str, paths: Sequence[Path], message: str | None = None) -> SchemaText:
    """The schema in *paths*, of the format *form*; *message* is the Protobuf message that is required.

    :raises FormatError: if a file contains no schema, if they are too large, if they refer to each other in a circle,
        if none of them or several are the schema, or if a package is missing.
    :raises OSError: if a file cannot be read.
    :raises UnicodeDecodeError: if a file is no text in UTF-8.
    """
    root = paths[0]
    if len(paths) == 1 and root.is_dir():
        files = _folder(form, root)
        named = {name: _named(form, name, _text(path)) for name, path in files.items()}
        return _Files(form, named).schema_of_folder(root, message)
    if form == PROTOBUF and root.suffix not in _SUFFIXES[form]:
        return SchemaText(_descriptor_set(root))
    named = {str(path): _named(form, path.as_posix(), _text(path)) for path in paths}
    if form == PROTOBUF:
        named |= _beside(root, named)
    return _Files(form, named).schema(str(root))


def _folder(form: str, folder: Path) -> dict[str, Path]:
    """The files of schemas in *folder* and below, except hidden ones, by their paths relative to it."""
    files: dict[str, Path] = {}
    for seen, path in enumerate(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.suffix in _SUFFIXES[form] and not any(part.startswith(".") for part in name.parts) and path.is_file():
            files[name.as_posix()] = path
        if seen > _MOST_SEEN or len(files) > MOST_REFERENCES:
            raise FormatError(
                f"the folder {folder} has more than {MOST_REFERENCES} schemas, or too many other files; name yours"
            )
    for suffix in _SUFFIXES[form]:
        if chosen := {name: path for name, path in sorted(files.items()) if name.endswith(suffix)}:
            return chosen
    raise FormatError(f"the folder {folder} has no file that ends in {' or '.join(_SUFFIXES[form])}; name another one")


def _text(path: Path) -> str:
    _check_size(path)
    return path.read_text(encoding="utf-8-sig")


def _check_size(path: Path) -> None:
    if (size := path.stat().st_size) > _MAX_BYTES:
        raise FormatError(
            f"the file {path} has {size} bytes, and a schema at most {_MAX_BYTES}; name the file of the schema"
        )


def _descriptor_set(path: Path) -> str:
    from kafka_sink.formats.protobuf.descriptors import has_own_set

    _check_size(path)
    text = base64.b64encode(path.read_bytes()).decode("ascii")
    if not has_own_set(text):
        raise FormatError(
            f"the file {path} is not a valid descriptor set; name a file that ends in .proto, or one that protoc "
            "--include_imports --descriptor_set_out has written"
        )
    return text


def _named(form: str, name: str, text: str) -> _Named:
    """The file *name*, to which others may refer by its last parts."""
    if form == AVRO:
        from kafka_sink.formats.avro.parsing import names_of

        declared, used = names_of(text)
        return _Named(text, declared, declared, used)
    endings = tuple("/".join(PurePath(name).parts[-count:]) for count in range(len(PurePath(name).parts), 0, -1))
    if form == PROTOBUF:
        from kafka_sink.formats.protobuf.descriptors import imports_in

        return _Named(text, endings, (), tuple((imported,) for imported in imports_in(text)))
    from kafka_sink.formats.json.parsing import id_of, meanings_of

    own = (name,) if (name := id_of(text)) else ()
    return _Named(text, (*own, *endings), own, meanings_of(text))


def _beside(root: Path, named: Mapping[str, _Named]) -> dict[str, _Named]:
    """The files in the folder of *root*, and below, that it and its imports import, and that are not *named*."""
    from kafka_sink.formats.protobuf.descriptors import is_file_name

    imported: dict[str, _Named] = {}
    waiting = list(named.values())
    while waiting:
        for (name,) in waiting.pop().used:
            path = root.parent / name
            is_known = any(name in other.declared for other in (*named.values(), *imported.values()))
            if not is_known and is_file_name(name) and path.is_file() and len(imported) < MOST_REFERENCES:
                imported[str(path)] = _named(PROTOBUF, name, _text(path))
                waiting.append(imported[str(path)])
    return imported


class _Files:
    """Files that refer to each other."""

    def __init__(self, form: str, named: Mapping[str, _Named]) -> None:
        self._form, self._named = form, named
        self._by_name: dict[str, list[str]] = {}
        for file, named_file in named.items():
            for name in dict.fromkeys(named_file.declared):
                self._by_name.setdefault(name, []).append(file)
        self._done: dict[str, SchemaText] = {}

    def schema_of_folder(self, folder: Path, message: str | None) -> SchemaText:
        """The schema that no other refers to, or the only one that declares *message*."""
        if message is not None:
            from kafka_sink.formats.protobuf.descriptors import may_declare

            declaring = [file for file, named_file in self._named.items() if may_declare(named_file.text, message)]
            if len(declaring) == 1:
                return self.schema(declaring[0])
        referred = {other for file in self._named for _, other in self._referred(file)}
        roots = [file for file in self._named if file not in referred]
        if len(roots) != 1:
            all_of_them = ", ".join(self._named)
            what = f"none that no other refers to: {all_of_them}" if not roots else f"several: {', '.join(roots)}"
            raise FormatError(
                f"the schema must be the one file of the folder {folder} that no other refers to, and there are "
                f"{what:.500}; name the files instead, separated by commas, the schema first"
            )
        return self.schema(roots[0])

    def schema(self, file: str, inside: tuple[str, ...] = ()) -> SchemaText:
        """The schema in *file*; *inside* are the files that refer to it."""
        if file not in self._done:
            if file in inside or len(inside) > MOST_DEPTH:
                raise FormatError(
                    f"the schema {file} refers to itself, through others, or to others more than {MOST_DEPTH} levels "
                    "deep; write what they share into one"
                )
            # An Avro reference has the name of the file's outermost type, whichever of its types is used.
            by_name = {
                self._named[other].declared[0] if self._form == AVRO else used: other
                for used, other in self._referred(file)
            }
            references = [Reference(name, self.schema(other, (*inside, file))) for name, other in by_name.items()]
            self._done[file] = SchemaText(self._named[file].text, tuple(references))
        return self._done[file]

    def _referred(self, file: str) -> Iterator[tuple[str, str]]:
        """The files that *file* refers to: each name that it uses, and the file with this name."""
        for meanings in self._named[file].used:
            if any(meaning in self._named[file].own for meaning in meanings):
                continue
            for meaning in meanings:
                others = [other for other in self._by_name.get(meaning, ()) if other != file]
                # Among several files with the same last part, the one with exactly this name.
                others = [meaning] if meaning in others else others
                if len(others) > 1:
                    raise FormatError(
                        f"{file} refers to {meaning}, which several files are: {', '.join(others):.500}; keep one"
                    )
                if others:
                    yield meanings[-1], others[0]
                    break
