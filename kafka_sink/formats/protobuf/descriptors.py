"""The descriptors of a schema, as Google's library has them: compiled from a text, or read.

Called where :mod:`kafka_sink.formats.protobuf.parsing` is. Each text is compiled once in a process.

Source: google/protobuf/descriptor.proto.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import importlib.util
import re
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from kafka_sink.formats.bounds import check_size
from kafka_sink.formats.errors import FormatError

#: What every compiler and every registry has.
_WELL_KNOWN: Final = "google/protobuf/"
_SUFFIX: Final = ".proto"
#: protoc takes a fraction of a second.
_TIMEOUT_S: Final = 60
#: Of what protoc says so much is shown.
_SHOWN: Final = 1_000
_KEPT: Final = 64
#: What protoc logs beside its errors.
_LOG_LINE: Final = re.compile(r"WARNING: |[IWE]\d{4} ")


def check_installed() -> None:
    """:raises FormatError: if a package that given schemas need is missing."""
    if importlib.util.find_spec("grpc_tools") is None:
        raise _missing("grpcio-tools")
    _library()


def is_well_known(name: str) -> bool:
    """Whether everybody has the file *name*."""
    return name.startswith(_WELL_KNOWN)


def kind_name(number: int) -> str:
    """The name of the type of a field that descriptors have as *number*."""
    name: str = _library().FieldDescriptorProto.Type.Name(number)
    return name.removeprefix("TYPE_").lower()


def read_schema(path: Path) -> str:
    """The text of the schema in a file: a ``.proto`` file, by its name, or a descriptor set. If a ``.proto`` file
    imports others, which are looked for beside it, the text is that of a set.

    :raises FormatError: if it is no valid schema, or if a package is missing.
    :raises OSError: if a file cannot be read.
    :raises UnicodeDecodeError: if a ``.proto`` file is no text in UTF-8.
    """
    if path.suffix != _SUFFIX:
        data = path.read_bytes()
        if _read_set(data) is None:
            raise FormatError(
                f"the file {path} is no descriptor set; name a file that ends in {_SUFFIX}, or one that protoc "
                "--include_imports --descriptor_set_out has written"
            )
        return base64.b64encode(data).decode("ascii")
    text = path.read_text(encoding="utf-8")
    files = _compiled(text, path.name, path.parent)
    if all(is_well_known(each.name) for each in files.file[:-1]):
        return text
    return base64.b64encode(files.SerializeToString()).decode("ascii")


@lru_cache(_KEPT)
def descriptors(text: str) -> Any:
    """The FileDescriptorSet of *text*; the file that it is stands last.

    :raises FormatError: if it is no valid schema, or if a package is missing.
    """
    check_size(text, "Protobuf schema")
    data = _base64(text)
    if data is None:
        return _compiled(text, f"schema{_SUFFIX}", None)
    found = _read_set(data)
    if found is not None:
        return found
    library = _library()
    from google.protobuf.message import DecodeError

    try:
        return library.FileDescriptorSet(file=[library.FileDescriptorProto.FromString(data)])
    except DecodeError as error:
        raise FormatError(f"the Protobuf schema is base64 of no descriptor ({error})") from None


def has_own_set(text: str) -> bool:
    """Whether *text* is a set, which may have several files."""
    data = _base64(text)
    return data is not None and _read_set(data) is not None


def other_imports(text: str, name: str) -> list[str]:
    """The files that the file *name* of *text* imports and that not everybody has."""
    declared = next(each for each in descriptors(text).file if each.name == name)
    return [each for each in declared.dependency if not is_well_known(each)]


@lru_cache(_KEPT)
def pool_of(text: str) -> Any:
    """A pool with the descriptors of *text*.

    :raises FormatError: if they lack what they import, or are invalid.
    """
    from google.protobuf.descriptor_pool import DescriptorPool

    pool, files = DescriptorPool(), {each.name: each for each in descriptors(text).file}
    for declared in _in_order(files):
        try:
            pool.AddSerializedFile(declared.SerializeToString())
        except TypeError as error:
            raise FormatError(f"the Protobuf schema is invalid: {error}") from None
    return pool


def _in_order(files: dict[str, Any]) -> list[Any]:
    """*files*, and what they import of others, each after those that it imports itself."""
    found: dict[str, Any] = {}
    begun: set[str] = set()
    waiting = list(reversed(files))
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        if not isinstance(name, str):
            raise FormatError(f"the Protobuf schema has a file whose name is no text: {name!r:.60}")
        declared = files.get(name) or _well_known(name)
        missing = [] if name in begun else [each for each in declared.dependency if each not in found]
        begun.add(name)
        if missing:
            waiting += [name, *missing]
        else:
            found[name] = declared
    return list(found.values())


def _well_known(name: str) -> Any:
    """The descriptor of a file of ``google/protobuf/``."""
    found = _library().FileDescriptorProto()
    try:
        if not is_well_known(name):
            raise ImportError
        importlib.import_module(f"{name.removesuffix(_SUFFIX).replace('/', '.')}_pb2").DESCRIPTOR.CopyToProto(found)
    except ImportError:
        raise FormatError(
            f"the Protobuf schema imports {name}, which is not there; put all messages into one file, or give a "
            "descriptor set with all of them (protoc --include_imports --descriptor_set_out)"
        ) from None
    return found


def _base64(text: str) -> bytes | None:
    """The bytes of *text*; None if it is no base64, as no ``.proto`` file is."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _read_set(data: bytes) -> Any | None:
    """The FileDescriptorSet that *data* is; None if it is none, such as a single file."""
    library = _library()
    from google.protobuf.message import DecodeError
    from google.protobuf.unknown_fields import UnknownFieldSet

    try:
        found = library.FileDescriptorSet.FromString(data)
    except DecodeError:
        return None
    return found if found.file and not len(UnknownFieldSet(found)) else None


@lru_cache(_KEPT)
def _compiled(text: str, name: str, folder: Path | None) -> Any:
    """The FileDescriptorSet that protoc makes of *text*, the file *name* in *folder*."""
    check_installed()
    library = _library()
    with tempfile.TemporaryDirectory(prefix="kafkalite-protoc-") as place:
        target = Path(place) / "set"
        (Path(place) / name).write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "grpc_tools.protoc", "-I."]
        command += [] if folder is None else [f"-I{folder.absolute()}"]
        command += ["--include_imports", f"--descriptor_set_out={target}", name]
        try:
            subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
        except subprocess.TimeoutExpired:
            raise FormatError(f"the Protobuf schema was not compiled within {_TIMEOUT_S} s; try again") from None
        except subprocess.CalledProcessError as error:
            said = " ".join(line for line in error.stderr.splitlines() if not _LOG_LINE.match(line))
            raise FormatError(
                f"the Protobuf schema is invalid: {said[:_SHOWN]} Correct it; imports are those of {_WELL_KNOWN}, and "
                "files beside a schema that is a file, and others need a descriptor set"
            ) from None
        return library.FileDescriptorSet.FromString(target.read_bytes())


def _library() -> Any:
    """:raises FormatError: if it is not installed."""
    try:
        from google.protobuf import descriptor_pb2
    except ImportError:
        raise _missing("protobuf") from None
    return descriptor_pb2


def _missing(package: str) -> FormatError:
    return FormatError(
        f"a given Protobuf schema needs the package {package}, which pip install 'kafkalite[protobuf]' installs"
    )
