"""Reads a schema from a file, from several, or from a folder, with what they refer to among each other.

Called on the driver and by the command line. Of several files the first is the schema; of a folder, the one that no
other refers to. A ``.proto`` file imports files beside it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Final, NamedTuple

from kafka_sink.formats.column_format import AVRO, JSON, PROTOBUF
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.schema_text import MOST_REFERENCES, Reference, SchemaText

#: A schema is a few kilobytes, and more with all that it imports; larger files are others.
_MAX_BYTES: Final = 8 << 20
#: Of files and folders in a folder that is named as a schema.
_MOST_SEEN: Final = 20_000
_SUFFIXES: Final[Mapping[str, tuple[str, ...]]] = {
    AVRO: (".avsc", ".json"),
    JSON: (".json",),
    PROTOBUF: (".proto",),
}


class _Named(NamedTuple):
    """The *text* of a file, the names by which others may refer to it, and those that it uses: of each, what it may
    stand for, and what the reference is called if the file does not say (Avro's references have the name of a type)."""

    text: str
    declared: tuple[str, ...]
    used: tuple[tuple[str, ...], ...]


def read_schema(form: str, paths: Sequence[Path], message: str | None = None) -> SchemaText:
    """The schema in *paths*, of the format *form*; *message* is the one of Protobuf that is looked for.

    :raises FormatError: if a file is none of a schema, if they are too large, if they refer to each other in a circle,
        if none of them or several are the schema, or if a package is missing.
    :raises OSError: if a file cannot be read.
    :raises UnicodeDecodeError: if one is no text in UTF-8.
    """
    root = paths[0]
    if len(paths) == 1 and root.is_dir():
        files = _folder(form, root)
        named = {name: _named(form, name, _text(path)) for name, path in files.items()}
        return _assembled(form, named, _root(named, root, message))
    if form == PROTOBUF and root.suffix not in _SUFFIXES[form]:
        return SchemaText(_descriptor_set(root))
    named = {str(path): _named(form, path.as_posix(), _text(path)) for path in paths}
    if form == PROTOBUF:
        named |= _beside(root, named)
    return _assembled(form, named, str(root))


def _folder(form: str, folder: Path) -> dict[str, Path]:
    """The files of schemas in *folder* and below, but for those that are hidden, by their names there."""
    found: dict[str, Path] = {}
    for seen, path in enumerate(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.suffix in _SUFFIXES[form] and not any(part.startswith(".") for part in name.parts) and path.is_file():
            found[name.as_posix()] = path
        if seen > _MOST_SEEN or len(found) > MOST_REFERENCES:
            raise FormatError(
                f"the folder {folder} has more than {MOST_REFERENCES} schemas, or too many other files; name yours"
            )
    for suffix in _SUFFIXES[form]:
        if chosen := {name: path for name, path in sorted(found.items()) if name.endswith(suffix)}:
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
    from kafka_sink.formats.protobuf.descriptors import is_set

    _check_size(path)
    data = path.read_bytes()
    if not is_set(data):
        raise FormatError(
            f"the file {path} is no descriptor set; name a file that ends in .proto, or one that protoc "
            "--include_imports --descriptor_set_out has written"
        )
    return base64.b64encode(data).decode("ascii")


def _named(form: str, name: str, text: str) -> _Named:
    """The file *name*, which others may call by its last parts."""
    if form == AVRO:
        from kafka_sink.formats.avro.linking import names_of

        return _Named(text, *names_of(text))
    endings = tuple("/".join(PurePath(name).parts[-count:]) for count in range(len(PurePath(name).parts), 0, -1))
    if form == PROTOBUF:
        from kafka_sink.formats.protobuf.descriptors import imports_in

        return _Named(text, endings, tuple((each,) for each in imports_in(text)))
    from kafka_sink.formats.json.references import id_of, meanings_of

    own = id_of(text)
    return _Named(text, (*((own,) if own else ()), *endings), meanings_of(text))


def _beside(root: Path, named: Mapping[str, _Named]) -> dict[str, _Named]:
    """The files in the folder of *root* that it and its imports import, and that are not *named*."""
    found: dict[str, _Named] = {}
    waiting = list(named.values())
    while waiting:
        for (name,) in waiting.pop().used:
            path = root.parent / name
            is_known = any(name in each.declared for each in (*named.values(), *found.values()))
            if not is_known and path.is_file() and len(found) < MOST_REFERENCES:
                found[str(path)] = _named(PROTOBUF, name, _text(path))
                waiting.append(found[str(path)])
    return found


def _root(named: Mapping[str, _Named], folder: Path, message: str | None) -> str:
    """The name of the file that is the schema."""
    if message is not None:
        from kafka_sink.formats.protobuf.descriptors import may_declare

        declaring = [name for name, each in named.items() if may_declare(each.text, message)]
        if len(declaring) == 1:
            return declaring[0]
    referred = {other for name, each in named.items() for _, other in _referred(name, each, named)}
    roots = [name for name in named if name not in referred]
    if len(roots) != 1:
        what = f"none that no other refers to: {', '.join(named)}" if not roots else f"several: {', '.join(roots)}"
        raise FormatError(
            f"the schema must be the one file of the folder {folder} that no other refers to, and there are "
            f"{what:.500}; name the files instead, the schema first, with commas between"
        )
    return roots[0]


def _referred(name: str, file: _Named, named: Mapping[str, _Named]) -> Iterator[tuple[str, str]]:
    """What *file* refers to: each name that it uses, and the other file that this is."""
    for meanings in file.used:
        if any(each in file.declared for each in meanings):
            continue
        for each in meanings:
            others = [other for other in named if other != name and each in named[other].declared]
            # Of several with the same last part, the one with this very name.
            others = [other for other in others if other == each] or others
            if len(others) > 1:
                raise FormatError(f"{name} refers to {each}, which several files are: {', '.join(others)}; keep one")
            if others:
                yield meanings[-1], others[0]
                break


def _assembled(form: str, named: Mapping[str, _Named], root: str) -> SchemaText:
    done: dict[str, SchemaText] = {}
    begun: set[str] = set()

    def of(name: str) -> SchemaText:
        if name not in done:
            if name in begun:
                raise FormatError(f"the schema {name} refers to itself, through others; write what they share into one")
            begun.add(name)
            # A type of Avro is found by its own name, whichever of those in its file is used.
            found = {
                (named[other].declared[0] if form == AVRO else used): other
                for used, other in _referred(name, named[name], named)
            }
            done[name] = SchemaText(
                named[name].text, tuple(Reference(used, of(other)) for used, other in found.items())
            )
        return done[name]

    return of(root)
