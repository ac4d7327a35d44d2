"""Settings of Spark's session that change the output of ``to_json`` and ``to_avro``: with each value the payloads are
equal to theirs, or the sink refuses the rows whose payloads would differ.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType, StructField, StructType

import kafka_sink
from kafka_sink.common.errors import RowSerializationError
from kafka_sink.formats.column_format import ColumnEncoder, ColumnFormat, SessionSettings, format_of
from tests.support.readback import read_topic
from tests.support.spark_version import requires_spark

IGNORES_NULLS = "spark.sql.jsonGenerator.ignoreNullFields"
OF_DEFAULTS = "spark.sql.jsonGenerator.writeNullIfWithDefaultValue"
ZONE = "spark.sql.session.timeZone"
TIME_PARSER = "spark.sql.legacy.timeParserPolicy"
REBASE = "spark.sql.avro.datetimeRebaseModeInWrite"
COLUMNS = """named_struct('a', cast(null as int), 'inner', named_struct('b', cast(null as string), 'c', 1),
    'list', array(named_struct('d', cast(null as date))), 'at', timestamp'2026-07-01 12:00:00', 'n', null,
    'of_table', of_table, 'of_tables', array(named_struct('e', of_table)))"""
#: From the year -44 to 12345, with the changes of calendars and of offsets.
DAYS = (
    -735_600,
    -719_528,
    -719_163,
    -719_162,
    -354_285,
    -141_438,
    -141_437,
    -141_428,
    -141_427,
    -25_568,
    -25_567,
    0,
    25_000,
    2_932_896,
    2_932_897,
    3_789_000,
)


DAY = 86_400_000_000


@contextmanager
def session_with(spark: SparkSession, **settings: str) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    """Return rows with a table's column, which has the catalog's metadata of its default. Spark 3.5 drops the metadata
    when it simplifies the expressions of a plan, but not for rows that it has cached."""
    metadata = {"EXISTS_DEFAULT": "5", "CURRENT_DEFAULT": "5"}
    schema = StructType([StructField("of_table", IntegerType(), metadata=metadata)])
    return spark.createDataFrame([(None,)], schema).selectExpr(f"{COLUMNS} as value").localCheckpoint()


@pytest.mark.behaviour("JSON", "Settings of Spark's session change payloads as they change to_json")
@pytest.mark.parametrize(
    ("way", "setting", "value"),
    [
        ("write", IGNORES_NULLS, "false"),
        ("format", IGNORES_NULLS, "false"),
        ("write", IGNORES_NULLS, "true"),
        ("write", OF_DEFAULTS, "false"),
        ("format", OF_DEFAULTS, "true"),
        ("write", ZONE, "Asia/Kolkata"),
        ("write", TIME_PARSER, "legacy"),
        ("write", TIME_PARSER, "EXCEPTION"),
    ],
)
def test_payloads_follow_the_settings(frame: DataFrame, cluster: Any, way: str, setting: str, value: str) -> None:
    spark = frame.sparkSession
    if way == "format" and not hasattr(spark, "dataSource"):
        pytest.skip("needs Spark 4.0: Python data sources")
    topic = f"{way}-{setting}-{value}".replace("/", "-")
    cluster.create_topic(topic, partitions=1)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic, "value.format": "json"}
    with session_with(spark, **{setting: value}):
        expected = frame.select(f.to_json("value")).first()[0]  # type: ignore[index]
        if way == "write":
            kafka_sink.write(frame, options)
        else:
            kafka_sink.register(spark)
            frame.write.format("kafkalite").mode("append").options(**options).save()
    (record,) = read_topic(cluster.bootstrap_servers, topic)
    assert record.value == expected.encode()
    assert ("a" in json.loads(expected)) is (setting == IGNORES_NULLS and value == "false")
    assert ("of_table" in json.loads(expected)) is ((setting, value) != (OF_DEFAULTS, "false"))


def encoded(encoder: ColumnEncoder, rows: pa.Array) -> dict[int, bytes]:
    """Return the payloads of the *rows* that *encoder* accepts, by row number."""
    left = list(range(len(rows)))
    while True:
        try:
            return dict(zip(left, encoder.encode(rows.take(pa.array(left))).to_pylist(), strict=True))
        except RowSerializationError as error:
            left = [row for at, row in enumerate(left) if at not in error.rows]


@pytest.mark.behaviour(
    "JSON", "With timeParserPolicy=LEGACY the rows are refused whose texts it changes, and no others"
)
@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Africa/Monrovia", "Africa/Windhoek"])
def test_texts_that_legacy_changes_are_refused(spark: SparkSession, zone: str) -> None:
    moment = "timestamp_micros(day * 86400000000L + 43200123456)"
    day = "named_struct('d', date_from_unix_date(day), 'n', cast(date_from_unix_date(day) as timestamp_ntz))"
    texts: dict[str, list[str]] = {}
    for policy in ("CORRECTED", "LEGACY"):
        with session_with(spark, **{TIME_PARSER: policy, ZONE: zone}):
            frame = spark.createDataFrame([(each,) for each in DAYS], "day int")
            rows = frame.selectExpr(f"to_json({day})", f"to_json(named_struct('t', {moment}))").collect()
        texts[policy] = [text for column in zip(*rows, strict=True) for text in column]
    micros = [day * DAY + 43_200_123_456 for day in DAYS]
    of_days = pa.StructArray.from_arrays(
        [pa.array(DAYS, pa.int32()).cast(pa.date32()), pa.array([day * DAY for day in DAYS]).cast(pa.timestamp("us"))],
        ["d", "n"],
    )
    of_moments = pa.StructArray.from_arrays([pa.array(micros).cast(pa.timestamp("us", zone))], ["t"])
    written: list[bytes | None] = []
    for rows in (of_days, of_moments):
        form = ColumnFormat("value", "json", "", settings=SessionSettings(time_parser="LEGACY"))
        payloads = encoded(format_of("json").encoder(form, rows.type), rows)
        written += [payloads.get(row) for row in range(len(rows))]
    for payload, corrected, legacy in zip(written, texts["CORRECTED"], texts["LEGACY"], strict=True):
        # The sink also refuses some times before 1900 whose text is the same.
        is_old = zone != "UTC" and legacy[6] in "01"
        assert payload == legacy.encode() or (payload is None and (corrected != legacy or is_old)), (corrected, legacy)


@requires_spark("4.3", "Spark's Avro is in its own jar before")
@pytest.mark.behaviour("Avro", "With each datetimeRebaseModeInWrite rows are those of to_avro, or refused")
@pytest.mark.parametrize("mode", ["CORRECTED", "EXCEPTION", "LEGACY"])
def test_rebase_modes_are_those_of_to_avro(spark: SparkSession, mode: str) -> None:
    """``to_avro`` is Spark's ``AvroSerializer``, whose values the test reads before Avro's encoding."""
    names = {"d": "date", "t": "timestamp-micros", "m": "timestamp-millis", "l": "local-timestamp-micros"}
    types = {name: {"type": "int" if name == "d" else "long", "logicalType": kind} for name, kind in names.items()}
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    schema = json.dumps({"type": "record", "name": "topLevelRecord", "fields": fields})
    plain = {**json.loads(schema), "fields": [{"name": name, "type": kind["type"]} for name, kind in types.items()]}
    values = {
        "d": pa.array(DAYS, pa.int32()).cast(pa.date32()),
        **{name: pa.array([day * DAY for day in DAYS]).cast(pa.timestamp("us", "UTC")) for name in "tm"},
        "l": pa.array([day * DAY for day in DAYS]).cast(pa.timestamp("us")),
    }
    rows = pa.StructArray.from_arrays([*values.values()], [*values])
    form = ColumnFormat("value", "avro", schema, settings=SessionSettings(rebase=mode))
    payloads = encoded(format_of("avro").encoder(form, rows.type), rows)
    jvm: Any = spark._jvm
    moment = "timestamp_micros(day * 86400000000L)"
    frame = spark.createDataFrame([(day,) for day in DAYS], "day int").selectExpr(
        f"named_struct('d', date_from_unix_date(day), 't', {moment}, 'm', {moment}, "
        f"'l', cast({moment} as timestamp_ntz)) as value"
    )
    kind = frame._jdf.schema().fields()[0].dataType()
    with session_with(spark, **{REBASE: mode}):
        parsed = jvm.org.apache.avro.Schema.Parser().parse(schema)
        serializer = jvm.org.apache.spark.sql.avro.AvroSerializer(kind, parsed, False)
        rows_of_spark = frame._jdf.queryExecution().executedPlan().executeCollect()
        for number, row in enumerate(rows_of_spark):
            try:
                made = serializer.serialize(row.getStruct(0, len(names)))
                expected = {name: made.get(name) for name in names}
            except Exception as error:
                assert "1582-10-15" in str(error)
                expected = None
            if number in payloads:
                assert fastavro.schemaless_reader(io.BytesIO(payloads[number]), plain, None) == expected
            else:
                assert expected is None or mode == "LEGACY"
    assert (len(payloads) == len(DAYS)) is (mode == "CORRECTED")


def test_a_task_finds_the_settings_that_refuse_rows(spark: SparkSession, cluster: Any) -> None:
    frame = spark.sql("select named_struct('d', date'0000-06-01') as value")
    for form, setting, value in (("avro", REBASE, "EXCEPTION"), ("json", TIME_PARSER, "LEGACY")):
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "unused", "value.format": form}
        with session_with(spark, **{setting: value}), pytest.raises(Exception, match=f"{setting}={value}"):
            kafka_sink.write(frame, options)


@requires_spark("4.2", "to_json of the type TIME")
def test_times_of_day_are_those_of_to_json(spark: SparkSession, cluster: Any) -> None:
    texts = ("12:34:56.123456", "12:34:56", "23:59:59.1", "00:00:00.000001", "00:00:01.01", "01:02:03.120")
    spark.conf.set("spark.sql.timeType.enabled", "true")
    cluster.create_topic("times", partitions=1)
    fields = ", ".join(f"'t{at}', time'{text}'" for at, text in enumerate(texts))
    frame = spark.sql(f"select named_struct({fields}, 'null', cast(null as time)) as value")
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "times", "value.format": "json"}
    kafka_sink.write(frame, options)
    (record,) = read_topic(cluster.bootstrap_servers, "times")
    assert record.value == frame.select(f.to_json("value")).first()[0].encode()  # type: ignore[index]
