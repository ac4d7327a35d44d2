"""A Protobuf schema of a registry runs no code, gives protoc no argument, and writes no file of the user's.

A user who may register a schema chooses the names and texts of its references, and every reader compiles them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.protobuf.descriptors import linked
from kafka_sink.formats.schema_text import Reference, SchemaText

#: Valid both as Protobuf and as Python: as Python it writes a file.
_BOTH = 'syntax = "proto3" // open({mark!r}, "w").write("x") or """ \\\n;\nmessage Both {{ string a = 1; }}\n// """\n'
_NAMES = [
    "grpc_tools/__init__.py",
    "re.py",
    "__main__.py",
    "site.py",
    "@x",
    "@x.proto",
    "-I/",
    "--python_out=.proto",
    "--plugin=x.proto",
    "a=b.proto",
    "a:b.proto",
    "a;b.proto",
    "a,b.proto",
    "a b.proto",
    "../a.proto",
    "a/../../b.proto",
    "./a.proto",
    "a//b.proto",
    "/etc/a.proto",
    "a\n.proto",
    "a\0.proto",
    "a\\b.proto",
    ".proto",
    "a",
    "",
    "a" * 600 + ".proto",
]


def _referring(name: str, text: str) -> SchemaText:
    return SchemaText(
        f'syntax = "proto3"; import "{name}"; message M {{ string a = 1; }}',
        (Reference(name, SchemaText(text), "other", 1),),
    )


@pytest.mark.parametrize("name", _NAMES)
def test_reference_names_that_are_no_proto_file_are_refused(name: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(FormatError, match=r"refers to .*, which is not the name of a file to import"):
        linked(_referring(name, _BOTH.format(mark=str(mark))))
    assert not mark.exists()


def test_protoc_imports_nothing_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "mark"
    program = f"open({str(mark)!r}, 'w').write('x')"
    for name in ("grpc_tools/__init__.py", "grpc_tools/protoc.py", "re.py", "runpy.py", "sitecustomize.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(program)
    (tmp_path / "a.proto").write_text("this is a file of the user's, and no schema")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ".")
    monkeypatch.setenv("PYTHONSTARTUP", "re.py")
    before = sorted(tmp_path.rglob("*"))
    assert linked(_referring("a.proto", 'syntax = "proto3"; message A {}'))
    assert linked(_referring("grpc_tools/protoc.proto", 'syntax = "proto3"; message B {}'))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_name_within_a_folder_is_the_one_that_is_imported() -> None:
    other = 'syntax = "proto3"; package p; message Part { string a = 1; }'
    text = 'syntax = "proto3"; import "p-1/part_2.x.proto"; message M { p.Part part = 1; }'
    assert linked(SchemaText(text, (Reference("p-1/part_2.x.proto", SchemaText(other), "other", 1),)))


def test_errors_show_files_by_their_names_in_the_schema() -> None:
    with pytest.raises(FormatError, match=r"the Protobuf schema is invalid: shop/other\.proto:2:3: ") as refused:
        linked(_referring("shop/other.proto", 'syntax = "proto3";\n  mesage Other {}'))
    assert "kafkalite-protoc-" not in str(refused.value)
