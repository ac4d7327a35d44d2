"""Schemas with references are linked to one text, within bounds."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pytest

from kafka_sink.formats.avro.parsing import linked, parse_schema
from kafka_sink.formats.avro.schema import Record
from kafka_sink.formats.errors import FormatError
from kafka_sink.formats.protobuf.descriptors import linked as linked_protobuf
from kafka_sink.formats.schema_text import Reference, SchemaText
from tests.support.cases import with_each


def record(name: str, *kinds: Any, **more: Any) -> str:
    fields = [{"name": f"f{at}", "type": kind} for at, kind in enumerate(kinds)]
    return json.dumps({"type": "record", "name": name, **more, "fields": fields})


def of(text: str, **others: SchemaText) -> SchemaText:
    return SchemaText(text, tuple(Reference(name.replace("_", "."), each) for name, each in others.items()))


BARE = of(record("Bare", "int"))
DEEP = of(
    record("a.Deep", {"type": "enum", "name": "Kind", "symbols": ["X"]}, {"type": "fixed", "name": "b.Four", "size": 4})
)
MIDDLE = of(record("Middle", "Deep", ["null", {"type": "array", "items": "Kind"}], namespace="a"), a_Deep=DEEP)


@pytest.mark.behaviour("Avro", "A schema means the same with its references as in one text")
@with_each(
    ("schema", "whole"),
    [
        (of(record("c.Root", "Bare"), Bare=BARE), record("c.Root", json.loads(record("Bare", "int", namespace="")))),
        (
            # Types that another type contains are used before that one, and each is declared once.
            of(
                record("Root", "Kind", "b.Four", "Middle", {"type": "map", "values": "Deep"}, namespace="a"),
                a_Middle=MIDDLE,
                a_Deep=DEEP,
            ),
            record(
                "a.Root",
                {"type": "enum", "name": "a.Kind", "symbols": ["X"]},
                {"type": "fixed", "name": "b.Four", "size": 4},
                {
                    **json.loads(record("a.Middle", 0, ["null", {"type": "array", "items": "a.Kind"}])),
                    "fields": [
                        {"name": "f0", "type": json.loads(record("a.Deep", "a.Kind", "b.Four"))},
                        {"name": "f1", "type": ["null", {"type": "array", "items": "a.Kind"}]},
                    ],
                },
                {"type": "map", "values": "a.Deep"},
            ),
        ),
        (of('["null", "a.Deep"]', a_Deep=DEEP), json.dumps(["null", json.loads(DEEP.text)])),
        # A type that the schema declares itself is not replaced.
        (
            of(record("r.Root", {"type": "enum", "name": "Kind", "symbols": ["Y"]}, "Kind"), a_Deep=DEEP),
            record("r.Root", {"type": "enum", "name": "r.Kind", "symbols": ["Y"]}, "r.Kind"),
        ),
    ],
)
def test_linked_avro_means_the_same(schema: SchemaText, whole: str) -> None:
    text = linked(schema)
    assert parse_schema(text) == parse_schema(whole)
    # Another library reads the text, too.
    fastavro.parse_schema(json.loads(text))


def test_avro_with_a_circle_or_without_its_types_is_refused() -> None:
    tree = of(record("t.Tree", "t.Leaf"), t_Leaf=of(record("t.Leaf", "t.Tree")))
    with pytest.raises(FormatError, match=r"refers to t\.Tree, which contains it"):
        parse_schema(linked(tree))
    with pytest.raises(FormatError, match="unknown type 'Gone'"):
        parse_schema(linked(of(record("t.Tree", "Gone"), a_Deep=DEEP)))


def test_comments_are_no_part_of_a_schema() -> None:
    text = '// a "record"\n{"type": "record", /*\n "name" */ "name": "R", "doc": "//x /*y*/ \\"//", "fields": []} //'
    found = parse_schema(text)
    assert isinstance(found, Record) and found.name == "R"
    for broken in ("/*", '{"type": "int" /* }', "//"):
        with pytest.raises(FormatError, match="is not valid JSON"):
            parse_schema(broken)


@with_each("name", ["../x.proto", "/etc/x.proto", "-x", "a//b", "a\\b", "", "./x", "a\0", "x\n"])
def test_names_that_leave_the_folder_are_refused(name: str) -> None:
    schema = SchemaText(f'syntax = "proto3"; message M {{}} // {name!r}', (Reference(name, SchemaText("")),))
    with pytest.raises(FormatError, match="which is not the name of a file to import"):
        linked_protobuf(schema)


def test_a_name_may_be_a_folder_of_another() -> None:
    one = SchemaText('syntax = "proto3";')
    schema = SchemaText(
        'syntax = "proto3"; message M {}', (Reference("a.proto", one), Reference("a.proto/b.proto", one))
    )
    assert linked_protobuf(schema)


def test_references_are_bounded() -> None:
    deep = SchemaText("")
    for level in range(102):
        deep = SchemaText("", (Reference(str(level), deep),))
    with pytest.raises(FormatError, match="more than 100 levels deep"):
        deep.others()
    with pytest.raises(FormatError, match="refers to more than 1000 others"):
        SchemaText("", tuple(Reference(str(each), SchemaText("")) for each in range(1001))).others()
    with pytest.raises(FormatError, match="or to more than 1048576 characters"):
        SchemaText("", tuple(Reference(str(each), SchemaText("x" * 2**19)) for each in range(3))).others()
    # Every level has two references to the same schema, which is visited once.
    for level in range(100):
        deep = SchemaText("", (Reference(f"x{level}", BARE), Reference(f"y{level}", BARE)))
    assert len(deep.others()) == 2
