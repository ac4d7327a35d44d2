"""The handling of rows of a task that cannot be written, by reason."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kafka_sink import EmbeddedCluster
from kafka_sink.errors import SinkWriteError, TooManyBadRowsError
from kafka_sink.formats.column_format import ColumnFormat
from kafka_sink.spark.options import parse_options
from kafka_sink.spark.task.dead_letters import HEADERS_TYPE, PREFIX, json_column
from kafka_sink.spark.task.task_writer import write_task
from kafka_sink.spark.write_spec import BadRowLimit, WriteSpec
from tests.support.cases import with_each
from tests.support.readback import read_topic

ROWS, DEAD = "rows", "rejected"
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        ],
    }
)
ORDER = pa.struct([("id", pa.int32()), ("colour", pa.string())])


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(auto_create_topics=False) as cluster:
        for topic in (ROWS, DEAD):
            cluster.create_topic(topic, 2)
        yield cluster


def options_of(cluster: EmbeddedCluster, **more: str) -> WriteSpec:
    given = {"topic": ROWS, "deadLetterTopic": DEAD, **{name.replace("_", "."): value for name, value in more.items()}}
    servers = cluster.bootstrap_servers
    return parse_options({"kafka.bootstrap.servers": servers, **{k: v for k, v in given.items() if v}}).spec


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.record_batch(list(columns.values()), names=list(columns))


def values_of(cluster: EmbeddedCluster, topic: str = ROWS) -> list[str]:
    return sorted((message.value or b"").decode() for message in read_topic(cluster.bootstrap_servers, topic))


def letters_of(cluster: EmbeddedCluster) -> list[tuple[Any, dict[str, str]]]:
    """The dead letters by their row, with their headers without the prefix."""
    found = []
    for message in read_topic(cluster.bootstrap_servers, DEAD):
        headers = {name.removeprefix(PREFIX): (value or b"").decode() for name, value in message.headers}
        found.append((message, headers))
    return sorted(found, key=lambda each: int(each[1]["row"]))


def numbered(count: int) -> pa.Array:
    return pa.array([f"v{number}" for number in range(count)])


TIMES = pa.array([datetime(2026, 1, 1, tzinfo=UTC) - timedelta(days=days * 10_000) for days in (0, 1, 3)] * 2)
_KEYS = pa.array([b"a", b"h\xff", b"b"], pa.binary())
NOT_UTF8 = pa.StructArray.from_arrays(
    [pa.Array.from_buffers(pa.string(), 3, _KEYS.buffers()), pa.array([b"1", b"2", None])],
    fields=[*HEADERS_TYPE.value_type],
)
REASONS: list[tuple[dict[str, pa.Array], dict[str, str], list[int], str, str, str]] = [
    (
        {"partition": pa.array([0, 2, None, 1, 9, 0], pa.int32())},
        {},
        [1, 4],
        "invalid-partition",
        "partition",
        r"names partition 2 of topic rows, which has only 2",
    ),
    (
        {"partition": pa.array([0, 1, None, -1, 0, -7], pa.int32())},
        {},
        [3, 5],
        "invalid-partition",
        "partition",
        "has partition -1",
    ),
    (
        {"topic": pa.array([ROWS, None, ROWS, None, ROWS, ROWS])},
        {"topic": ""},
        [1, 3],
        "null-topic",
        "topic",
        "has a null topic",
    ),
    (
        {"topic": pa.array([b"rows", b"r\xff", b"rows", b"rows", b"rows", b"rows"], pa.binary()).view(pa.string())},
        {"topic": ""},
        [1],
        "null-topic",
        "topic",
        "has a topic that is not valid UTF-8; correct it",
    ),
    ({"timestamp": TIMES}, {}, [2, 5], "invalid-timestamp", "timestamp", "has the timestamp -"),
    (
        {
            "headers": pa.array(
                [None, [], [{"key": "a", "value": b"1"}, {"key": None, "value": b"2"}], None, [], []], HEADERS_TYPE
            )
        },
        {},
        [2],
        "invalid-headers",
        "headers",
        r"has a header \(1\) that has a null key",
    ),
    (
        {"headers": pa.ListArray.from_arrays([0, 0, 2, 3, 3, 3, 3], NOT_UTF8)},
        {},
        [1],
        "invalid-headers",
        "headers",
        r"has a header \(1\) that has a key that is not valid UTF-8; correct it",
    ),
    (
        {"key": pa.array(["k", "k" * 2000, None, "k", "k" * 9000, "k"])},
        {"kafka_max_request_size": "1500"},
        [1, 4],
        "too-large",
        "",
        "needs up to",
    ),
]


@pytest.mark.behaviour("Dead letters", "A row that cannot be written goes to the dead letter topic, with the reason")
@pytest.mark.parametrize(("columns", "options", "bad", "reason", "column", "message"), REASONS)
def test_rows_are_refused_for_each_reason(
    cluster: EmbeddedCluster,
    columns: dict[str, pa.Array],
    options: dict[str, str],
    bad: list[int],
    reason: str,
    column: str,
    message: str,
) -> None:
    rows = batch(value=numbered(6), **columns)
    commit = write_task(iter([rows.slice(0, 3), rows.slice(3)]), options_of(cluster, **options))
    assert (commit.rows_in, commit.rows_acked, commit.bad_rows) == (6, 6 - len(bad), len(bad))
    assert values_of(cluster) == [f"v{row}" for row in range(6) if row not in bad]
    letters = letters_of(cluster)
    assert [int(headers["row"]) for _, headers in letters] == bad
    for row, (letter, headers) in zip(bad, letters, strict=True):
        assert letter.value == f"v{row}".encode()
        assert (headers["reason"], headers.get("column", "")) == (reason, column)
        assert headers["message"].startswith(f"row {row} of this task")

    assert re.search(message, letters[0][1]["message"])
    assert commit.first_bad_row == letters[0][1]["message"]


def orders(colours: list[str | None]) -> pa.RecordBatch:
    """Rows with a struct; those with a colour that the schema does not have cannot be encoded."""
    values = [{"id": row, "colour": colour} for row, colour in enumerate(colours)]
    return batch(
        key=pa.array([b"k"] * len(colours)),
        value=pa.array(values, ORDER),
        headers=pa.array([[{"key": "own", "value": b"h"}]] * len(colours), HEADERS_TYPE),
        timestamp=pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * len(colours)),
        partition=pa.array([1] * len(colours), pa.int32()),
    )


def as_avro(options: WriteSpec, schema: str = SCHEMA) -> WriteSpec:
    return replace(options, formats=(ColumnFormat("value", "avro", schema),))


@pytest.mark.behaviour(
    "Dead letters", "A dead letter has key, value (as JSON if it is a struct) and headers of the row"
)
def test_a_dead_letter_has_what_the_row_had(cluster: EmbeddedCluster) -> None:
    rows = orders(["RED", "GREEN", "BLUE", None, "GREEN"])
    given = options_of(cluster, txnAppId="app", txnVersion="7", progressTopic=ROWS)
    commit = write_task(iter([rows, rows.slice(0, 2)]), as_avro(given))
    assert (commit.rows_in, commit.rows_acked, commit.bad_rows) == (7, 3, 4)
    letters = letters_of(cluster)
    assert [int(headers["row"]) for _, headers in letters] == [1, 3, 4, 6]
    letter, headers = letters[0]
    assert (letter.key, json.loads(letter.value)) == (b"k", {"id": 1, "colour": "GREEN"})
    assert letter.timestamp > datetime(2026, 2, 1, tzinfo=UTC).timestamp() * 1000
    assert letter.headers[0] == ("own", b"h")
    assert abs(datetime.fromisoformat(headers.pop("timestamp")).timestamp() * 1000 - letter.timestamp) < 60_000
    message = headers.pop("message")
    assert message.startswith("row 1 of this task has 'GREEN' in column 'value.colour', which is not one of the enum's")
    assert headers == {
        "own": "h",
        "reason": "not-encodable",
        "column": "value.colour",
        "value.encoding": "json",
        "topic": ROWS,
        "partition": "1",
        "row.timestamp": str(int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)),
        "row": "1",
        "sink": "app",
        "batch.id": "7",
        "task": "0",
        "attempt": "0",
    }
    assert "is null in column 'value.colour'" in letters[1][1]["message"]


@pytest.mark.behaviour("Dead letters", "What is too large for a dead letter is cut, and its headers say so")
def test_a_row_that_is_too_large_is_cut(cluster: EmbeddedCluster) -> None:
    own = [{"key": "own", "value": b"h" * 3000}]
    rows = batch(
        key=pa.array(["k" * 9000, None, "k"]),
        value=pa.array(["v", "ü" * 50_000, "v"]),
        headers=pa.array([own, own, None], HEADERS_TYPE),
    )
    commit = write_task(iter([rows]), options_of(cluster, kafka_max_request_size="8000"))
    assert (commit.rows_acked, commit.bad_rows) == (1, 2)
    (first, of_first), (second, of_second) = letters_of(cluster)
    assert (first.key, first.value) == (b"k" * 1000, b"v")
    assert (second.key, second.value) == (None, ("ü" * 500).encode())
    assert (of_first["key.size"], of_first["headers.omitted"], "value.size" in of_first) == ("9000", "1", False)
    assert (of_second["value.size"], of_second["headers.omitted"], "own" in of_second) == ("100000", "1", False)


def test_what_json_does_not_have_is_a_text_in_it(cluster: EmbeddedCluster) -> None:
    waits = pa.struct([("id", pa.int32()), ("wait", pa.duration("us"))])
    fields = [{"name": "id", "type": "int"}, {"name": "wait", "type": ["null", "long"]}]
    schema = json.dumps({"type": "record", "name": "Wait", "fields": fields})
    rows = batch(value=pa.array([{"id": None, "wait": timedelta(seconds=7)}], waits))
    assert write_task(iter([rows]), as_avro(options_of(cluster), schema)).bad_rows == 1
    ((letter, headers),) = letters_of(cluster)
    assert json.loads(letter.value) == {"wait": "INTERVAL '0 00:00:07' DAY TO SECOND"}
    assert headers["value.encoding"] == "json"


@pytest.mark.behaviour("Dead letters", "Rows of several problems and batches have their numbers in the task")
def test_each_row_has_its_number_and_its_problem(cluster: EmbeddedCluster) -> None:
    colours = ["RED", "GREEN", None, "BLUE"] * 25
    rows = orders(colours)
    partitions = pa.array([7 if row % 10 == 0 else 1 for row in range(100)], pa.int32())
    rows = rows.set_column(rows.schema.get_field_index("partition"), "partition", partitions)
    commit = write_task(iter([rows.slice(start, 20) for start in range(0, 100, 20)]), as_avro(options_of(cluster)))
    expected = {}
    for row, colour in enumerate(colours):
        if colour not in ("RED", "BLUE"):
            expected[row] = "not-encodable"
        elif row % 10 == 0:
            expected[row] = "invalid-partition"
    letters = letters_of(cluster)
    assert {int(headers["row"]): headers["reason"] for _, headers in letters} == expected
    assert len(letters) == commit.bad_rows == len(expected)
    for letter, headers in letters:
        if headers["reason"] == "not-encodable":
            assert json.loads(letter.value)["id"] == int(headers["row"])
        else:
            # The payload for the topic: a zig-zag varint, and the position of the colour.
            assert letter.value[0] == 2 * int(headers["row"]) % 128 + (128 if int(headers["row"]) > 63 else 0)
            assert "value.encoding" not in headers


def test_rows_may_all_be_bad(cluster: EmbeddedCluster) -> None:
    rows = orders(["GREEN"] * 5)
    commit = write_task(iter([rows] * 3), as_avro(options_of(cluster)))
    assert (commit.rows_in, commit.rows_acked, commit.bad_rows) == (15, 0, 15)
    assert values_of(cluster) == []
    assert [int(headers["row"]) for _, headers in letters_of(cluster)] == list(range(15))


@pytest.mark.behaviour(
    "Dead letters", "onBadRow=drop leaves rows out, and counts them; onBadRow=fail fails at the first"
)
def test_rows_are_dropped_or_fail_the_task(cluster: EmbeddedCluster) -> None:
    rows = orders(["RED", "GREEN", "BLUE"])
    commit = write_task(iter([rows]), as_avro(options_of(cluster, deadLetterTopic="", onBadRow="drop")))
    assert (commit.rows_in, commit.rows_acked, commit.bad_rows) == (3, 2, 1)
    assert len(values_of(cluster)) == 2
    assert letters_of(cluster) == []
    with pytest.raises(SinkWriteError, match=r"row 4 of this task has 'GREEN' in column 'value\.colour'"):
        write_task(iter([rows.slice(0, 1)] * 3 + [rows]), as_avro(options_of(cluster, deadLetterTopic="")))


@pytest.mark.behaviour(
    "Dead letters", "A task fails as soon as it has more bad rows than maxBadRows, with the first one"
)
def test_a_task_fails_beyond_the_limit(cluster: EmbeddedCluster) -> None:
    rows = orders(["GREEN", "RED"])
    options = as_avro(options_of(cluster, maxBadRows="2"))
    assert write_task(iter([rows] * 2), options).bad_rows == 2
    limit = (
        r"3 rows of one task cannot be written, more than option maxBadRows=2 allows; the first: row 0 of this task has"
    )
    with pytest.raises(SinkWriteError, match=limit):
        write_task(iter([rows] * 3), options)


def test_rows_cannot_name_the_dead_letter_topic(cluster: EmbeddedCluster) -> None:
    rows = batch(value=numbered(3), topic=pa.array([ROWS, DEAD, None]))
    with pytest.raises(
        SinkWriteError, match="rows of this task have the topic 'rejected', which is the dead letter topic"
    ):
        write_task(iter([rows]), options_of(cluster, topic=""))


def test_a_missing_dead_letter_topic_is_named(cluster: EmbeddedCluster) -> None:
    options = as_avro(options_of(cluster, deadLetterTopic="nowhere", kafka_max_block_ms="300"))
    with pytest.raises(SinkWriteError, match="topic nowhere is not present"):
        write_task(iter([orders(["GREEN"])]), options)


@pytest.mark.behaviour("Dead letters", "maxBadRows is a number of rows, or a share of all rows of the write")
@with_each(
    ("text", "allowed", "too_many"),
    [("0", 0, 1), ("7", 7, 8), ("1%", 10, 11), ("0.5 %", 5, 6), ("100%", 1000, None), ("0%", 0, 1)],
)
def test_limits_are_numbers_or_shares(text: str, allowed: int, too_many: int | None) -> None:
    limit = BadRowLimit.parse(text)
    limit.check(allowed, 1000, "")
    if too_many is not None:
        with pytest.raises(TooManyBadRowsError, match=rf"{too_many} of 1000 rows \(.*%\) .* maxBadRows={text}"):
            limit.check(too_many, 1000, "row 1 …")


SPAN = timedelta(days=1, hours=2, minutes=3, seconds=4, microseconds=500_000)
SHOWN = "INTERVAL '1 02:03:04.5' DAY TO SECOND"


def loaded(column: pa.Array) -> list[Any]:
    return [None if text is None else json.loads(text) for text in json_column(column, "value").to_pylist()]


@pytest.mark.behaviour("Dead letters", "A dead letter is JSON, whatever types its row has")
@with_each(
    ("kind", "values", "expected"),
    [
        (pa.duration("us"), [SPAN, None, -timedelta(seconds=1)], [SHOWN, None, "INTERVAL '-0 00:00:01' DAY TO SECOND"]),
        (
            pa.struct([("id", pa.int64()), ("wait", pa.duration("us")), ("at", pa.timestamp("us", "UTC"))]),
            [{"id": 1, "wait": SPAN, "at": datetime(2026, 1, 1, tzinfo=UTC)}, None, {"id": 2}],
            [{"id": 1, "wait": SHOWN, "at": "2026-01-01T00:00:00.000Z"}, None, {"id": 2}],
        ),
        (pa.list_(pa.duration("us")), [[SPAN, None], [], None], [[SHOWN, None], [], None]),
        (
            pa.map_(pa.string(), pa.list_(pa.struct([("wait", pa.duration("us")), ("price", pa.decimal128(5, 2))]))),
            [[("a", [{"wait": SPAN, "price": Decimal("1.50")}]), ('b"', [])], None],
            [{"a": [{"wait": SHOWN, "price": 1.5}], 'b"': []}, None],
        ),
        (pa.map_(pa.date32(), pa.int32()), [[(datetime(2026, 1, 2).date(), 7)]], [{"2026-01-02": 7}]),
        (pa.map_(pa.int32(), pa.duration("us")), [[(7, SPAN)]], [{"7": SHOWN}]),
        (pa.time64("us"), [datetime(2026, 1, 1, 3, 4).time()], ["03:04:00"]),
    ],
)
def test_every_type_is_json(kind: pa.DataType, values: list[Any], expected: list[Any]) -> None:
    column = pa.array(values, kind)
    assert loaded(column) == expected
    assert loaded(pa.concat_arrays([column, column]).slice(1, len(values))) == [*expected[1:], expected[0]]


def test_bytes_that_are_no_text_are_json() -> None:
    text = pa.array([b"a", b"\xff\xfe", None], pa.binary()).view(pa.string())
    rows = pa.StructArray.from_arrays([pa.array([1, 2, 3]), text], names=["id", "text"])
    assert loaded(rows) == [{"id": 1, "text": "a"}, {"id": 2, "text": "��"}, {"id": 3}]


def test_moments_that_python_does_not_have_are_json() -> None:
    rows = pa.array([2**62], pa.int64()).view(pa.timestamp("us", "UTC"))
    assert loaded(pa.StructArray.from_arrays([rows, pa.array([SPAN])], names=["at", "wait"]))[0]["wait"] == SHOWN
