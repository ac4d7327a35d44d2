"""The descriptors of a schema, as objects of Google's library: compiled from a text, or read.

Called on the driver, by the command line and by the registry in memory. Each text is compiled once in a process.

Source: google/protobuf/descriptor.proto.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from kafka_sink.formats.errors import FormatError, schema_boundary
from kafka_sink.formats.schema_text import SchemaText, check_size, without_comments

#: The prefix of the files that every compiler and every registry contains.
_WELL_KNOWN: Final = "google/protobuf/"
_SUFFIX: Final = ".proto"
_WELL_KNOWN_FILE: Final = re.compile(r"google/protobuf/(?:compiler/)?[a-z0-9_]{1,60}\.proto")
#: The name of the schema itself in the set to which it was linked; the other files are its imports.
LINKED: Final = "kafkalite-linked.proto"
#: Names of files that a schema may refer to. protoc takes them in arguments, so none can be an option (``-x``), a file
#: of arguments (``@x``), a mapping (``a=b``), a list of paths (``a:b``), or a path out of the folder.
_FILE_NAME: Final = re.compile(r"(?!.*//)(?!(?:.*/)?\.\.?/)[A-Za-z0-9_][A-Za-z0-9_./-]{0,500}\.proto")
#: Runs protoc in an isolated interpreter: neither its working directory nor PYTHON* variables are on its path. Its
#: first argument is the folder of the installed grpc_tools, which is last on the path, because it may be outside of the
#: interpreter's own packages.
_PROTOC: Final = (
    "import runpy, sys; sys.path.append(sys.argv.pop(1)); "
    "runpy.run_module('grpc_tools.protoc', run_name='__main__', alter_sys=True)"
)
#: protoc takes a fraction of a second.
_TIMEOUT_S: Final = 60
#: The maximum length of protoc's messages in an error.
_SHOWN: Final = 1_000
_KEPT: Final = 64
_IMPORT: Final = re.compile(r"""(?m)(?:^[^\S\n]*|[;}]\s*)import\s+(?:(?:public|weak|option)\s+)?["']([^"'\n]+)["']""")
#: Lines that protoc logs in addition to its errors.
_LOG_LINE: Final = re.compile(r"WARNING: |[IWE]\d{4} ")


def check_installed() -> None:
    """:raises FormatError: if a package that given schemas need is missing."""
    if importlib.util.find_spec("grpc_tools") is None:
        raise _missing("grpcio-tools")
    _library()


def is_well_known(name: str) -> bool:
    """Whether every compiler contains the file *name*."""
    return name.startswith(_WELL_KNOWN)


def kind_name(number: int) -> str:
    """The name of a field's type, which has *number* in descriptors."""
    name: str = _library().FieldDescriptorProto.Type.Name(number)
    return name.removeprefix("TYPE_").lower()


@schema_boundary("Protobuf schema")
def linked(schema: SchemaText) -> str:
    """The text of *schema* if it refers to no other; else a set of it and all schemas that it refers to, whose last
    file has the name :data:`LINKED`.

    :raises FormatError: if a text is no valid schema, if a name is no file name, or if a package is missing.
    """
    others = {name: text for name, text in schema.others().items() if not is_well_known(name)}
    if not others:
        return schema.text
    for name in others:
        if not is_file_name(name):
            raise FormatError(
                f"the Protobuf schema refers to {name!r:.200}, which is not the name of a file to import: letters, "
                "digits, '_', '-', '.' and '/', ending in .proto, and no '..'; rename the reference and its import"
            )
    return base64.b64encode(_set_of({**others, LINKED: schema.text}).SerializeToString()).decode("ascii")


def _set_of(texts: dict[str, str]) -> Any:
    """The FileDescriptorSet of the files *texts*, by their names, with all their imports."""
    library = _library()
    files = {name: _read_file(name, text) for name, text in texts.items() if _base64(text) is not None}
    sources = tuple((name, text) for name, text in texts.items() if name not in files)
    if sources:
        described = library.FileDescriptorSet(file=files.values()).SerializeToString()
        files = {**files, **{file.name: file for file in _compiled(sources, described).file}}
    root = files.pop(LINKED)
    return library.FileDescriptorSet(file=[*files.values(), root])


def _read_file(name: str, text: str) -> Any:
    file = _library().FileDescriptorProto()
    file.CopyFrom(descriptors(text).file[-1])
    file.name = name
    return file


def is_file_name(name: str) -> bool:
    """Whether *name* is the name of a proto file that cannot be outside of the folder to which it is relative."""
    return _FILE_NAME.fullmatch(name) is not None


def imports_in(text: str) -> list[str]:
    """The files that the proto file *text* imports, without the well-known ones."""
    return [match[1] for match in _IMPORT.finditer(without_comments(text)) if not is_well_known(match[1])]


def may_declare(text: str, message: str) -> bool:
    """Whether the proto file *text* seems to declare *message*, a full name or its last part."""
    name = re.escape(message.rpartition(".")[2])
    return re.search(rf"\bmessage\s+{name}\s*\{{", without_comments(text)) is not None


@lru_cache(_KEPT)
@schema_boundary("Protobuf schema")
def descriptors(text: str) -> Any:
    """The FileDescriptorSet of *text*, whose own file is the last.

    :raises FormatError: if it is no valid schema, declares a type of Google's package, or if a package is missing.
    """
    check_size(text, "Protobuf schema")
    described = _described(text)
    for file in described.file:
        # Libraries would mistake it for a type of their own, such as another Timestamp.
        if f"{file.package}.".startswith(_WELL_KNOWN.replace("/", ".")) and not is_well_known(file.name):
            raise FormatError(
                f"the Protobuf schema declares names in {file.package!r:.60}, which are Google's; choose another "
                "package"
            )
    return described


def _described(text: str) -> Any:
    data = _base64(text)
    if data is None:
        return _compiled(((f"schema{_SUFFIX}", text),))
    described = _read_set(data)
    if described is not None:
        return described
    library = _library()
    from google.protobuf.message import DecodeError

    try:
        return library.FileDescriptorSet(file=[library.FileDescriptorProto.FromString(data)])
    except DecodeError as error:
        raise FormatError(f"the Protobuf schema is not a descriptor in base64 ({error})") from None


def has_own_set(text: str) -> bool:
    """Whether *text* is a set of descriptors, which may have several files.

    :raises FormatError: if a package is missing.
    """
    data = _base64(text)
    return data is not None and _read_set(data) is not None


def own_files(text: str) -> list[Any]:
    """The files of *text* that are not well-known, each after those that it imports.

    :raises FormatError: if an import is missing.
    """
    ordered = _in_order({file.name: file for file in descriptors(text).file})
    return [file for file in ordered if not is_well_known(file.name)]


@lru_cache(_KEPT)
@schema_boundary("Protobuf schema")
def pool_of(text: str) -> Any:
    """A pool with the descriptors of *text*. :raises FormatError: if an import is missing, or they are invalid."""
    from google.protobuf.descriptor_pool import DescriptorPool

    pool, files = DescriptorPool(), {file.name: file for file in descriptors(text).file}
    for declared in _in_order(files):
        try:
            pool.AddSerializedFile(declared.SerializeToString())
        except TypeError as error:
            raise FormatError(f"the Protobuf schema is invalid: {error}") from None
    return pool


def _in_order(files: dict[str, Any]) -> list[Any]:
    """*files*, and the well-known files that they import, each after those that it imports itself."""
    ordered: dict[str, Any] = {}
    begun: set[str] = set()
    waiting = list(reversed(files))
    while waiting:
        name = waiting.pop()
        if name in ordered:
            continue
        if not isinstance(name, str):
            raise FormatError(f"the Protobuf schema has a file whose name is not a text: {name!r:.60}")
        declared = _well_known(name) if is_well_known(name) or name not in files else files[name]
        missing = [] if name in begun else [imported for imported in declared.dependency if imported not in ordered]
        begun.add(name)
        if missing:
            waiting += [name, *missing]
        else:
            ordered[name] = declared
    return list(ordered.values())


def _well_known(name: str) -> Any:
    """The descriptor of a file of ``google/protobuf/`` in the library, even if a schema contains another one."""
    file = _library().FileDescriptorProto()
    try:
        if not _WELL_KNOWN_FILE.fullmatch(name):
            raise ImportError
        importlib.import_module(f"{name.removesuffix(_SUFFIX).replace('/', '.')}_pb2").DESCRIPTOR.CopyToProto(file)
    except ImportError:
        raise FormatError(
            f"the Protobuf schema imports {name!r:.200}, which is missing; put all messages into one file, or name a "
            "descriptor set with all of them (protoc --include_imports --descriptor_set_out)"
        ) from None
    return file


def _base64(text: str) -> bytes | None:
    """The bytes of *text*; None if it is no base64. No ``.proto`` file is valid base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _read_set(data: bytes) -> Any | None:
    """The FileDescriptorSet in *data*; None if it contains another message, such as a single file."""
    library = _library()
    from google.protobuf.message import DecodeError
    from google.protobuf.unknown_fields import UnknownFieldSet

    try:
        described = library.FileDescriptorSet.FromString(data)
    except DecodeError:
        return None
    return described if described.file and not len(UnknownFieldSet(described)) else None


@lru_cache(_KEPT)
def _compiled(sources: tuple[tuple[str, str], ...], described: bytes = b"") -> Any:
    """The FileDescriptorSet that protoc compiles from *sources*, names and texts, and from the set *described*."""
    check_installed()
    library = _library()
    with tempfile.TemporaryDirectory(prefix="kafkalite-protoc-") as folder:
        files, target, set_in, empty = (Path(folder) / name for name in ("files", "set", "given", "empty"))
        # On the disk the files have safe names, which protoc maps to the names that schemas import.
        written = {name: files / f"{number}{_SUFFIX}" for number, (name, _) in enumerate(sources)}
        command = [sys.executable, "-I", "-c", _PROTOC, _folder_of_protoc()]
        command += [f"-I{name}={file}" for name, file in written.items()]
        if described:
            command.append(f"--descriptor_set_in={set_in}")
        command += ["--include_imports", f"--descriptor_set_out={target}", *map(str, written.values())]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        try:
            files.mkdir()
            empty.mkdir()
            set_in.write_bytes(described)
            for name, text in sources:
                written[name].write_text(text, encoding="utf-8")
            subprocess.run(
                command, cwd=empty, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
            )
        except OSError as error:
            raise FormatError(
                f"the files of the Protobuf schema cannot be written to be compiled: {error.strerror}"
            ) from None
        except subprocess.TimeoutExpired:
            raise FormatError(f"the Protobuf schema was not compiled within {_TIMEOUT_S} s; try again") from None
        except subprocess.CalledProcessError as error:
            errors = " ".join(line for line in error.stderr.splitlines() if not _LOG_LINE.match(line))
            for name, file in written.items():
                errors = errors.replace(str(file), name)
            raise FormatError(
                f"the Protobuf schema is invalid: {errors[:_SHOWN]} Correct it; imports are those of {_WELL_KNOWN}, "
                "files beside a schema that is a file, and those that are given with it; others need a descriptor set"
            ) from None
        return library.FileDescriptorSet.FromString(target.read_bytes())


def _folder_of_protoc() -> str:
    """The absolute path of the folder from which this process would import grpc_tools."""
    spec = importlib.util.find_spec("grpc_tools")
    assert spec is not None and spec.submodule_search_locations, "check_installed has found it"
    return str(Path(spec.submodule_search_locations[0]).absolute().parent)


def _library() -> Any:
    """:raises FormatError: if Google's library is not installed."""
    try:
        from google.protobuf import descriptor_pb2
    except ImportError:
        raise _missing("protobuf") from None
    return descriptor_pb2


def _missing(package: str) -> FormatError:
    return FormatError(
        f"a given Protobuf schema needs the package {package}, which pip install 'kafkalite[protobuf]' installs"
    )
