"""A stream passes its options in every micro-batch, in two processes: they are parsed and warned of once."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import StructType

from kafka_sink.common.errors import ConfigError
from kafka_sink.producer.config import ProducerConfig
from kafka_sink.spark import data_source
from kafka_sink.spark.data_source import KafkaliteDataSource
from kafka_sink.spark.dataframe_writer import foreach_batch
from kafka_sink.spark.driver import before_write
from kafka_sink.spark.driver.write_report import note_call

ROWS = StructType().add("value", "string")
NO_EFFECT = f"kafka.{next(iter(ProducerConfig.NO_EFFECT))}"
OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "t", NO_EFFECT: "true"}


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The topics whose configuration was requested."""
    found: list[object] = []

    def limits_of(_: object, topic: object, *__: object, **___: Any) -> dict[str, object]:
        found.append(topic)
        return {}

    monkeypatch.setattr(before_write, "limits_of", limits_of)
    return found


def warnings(caplog: pytest.LogCaptureFixture) -> int:
    return sum("options without effect" in message for message in caplog.messages)


@pytest.mark.behaviour("Streams and foreachBatch", "A warning about options is said once per query, not per batch")
def test_a_stream_is_warned_once(caplog: pytest.LogCaptureFixture, asked: list[object]) -> None:
    for _ in range(3):
        planned = KafkaliteDataSource(dict(OPTIONS))
        planned.streamWriter(ROWS, overwrite=False)
        passed_on = pickle.loads(pickle.dumps(planned))
        passed_on.streamWriter(ROWS, overwrite=False)
    assert warnings(caplog) == 1
    assert asked == ["t"] * 3, "only the process that plans asks"
    KafkaliteDataSource({**OPTIONS, "topic": "another"}).streamWriter(ROWS, overwrite=False)
    assert warnings(caplog) == 2


@pytest.mark.behaviour("Spark Connect", "The function for foreachBatch can be pickled, as a Spark Connect client does")
def test_the_function_for_foreach_batch_can_be_pickled() -> None:
    write_batch = foreach_batch(OPTIONS, app_id="orders")
    pickled = CloudPickleSerializer().dumps(write_batch)  # type: ignore[no-untyped-call]
    assert pickle.loads(pickled).__name__ == write_batch.__name__


def test_a_stream_parses_again_when_a_file_has_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parsed: list[object] = []
    parse = vars(data_source)["parse_options"]
    monkeypatch.setattr(
        data_source, "parse_options", lambda *each, **more: (parsed.append(each), parse(*each, **more))[1]
    )
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("login=one")
    options = {**OPTIONS, "kafka.client.id": f"${{file:{secrets}:login}}"}
    for _ in range(3):
        KafkaliteDataSource(dict(options)).streamWriter(ROWS, overwrite=False)
    assert len(parsed) == 1
    secrets.write_text("login=another")
    for _ in range(3):
        KafkaliteDataSource(dict(options)).streamWriter(ROWS, overwrite=False)
    assert len(parsed) == 2


def test_each_batch_write_is_warned(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        KafkaliteDataSource(copy.copy(OPTIONS)).writer(ROWS, overwrite=False)
    assert warnings(caplog) == 2


def test_the_warnings_of_the_latest_queries_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    for query in (*range(51), 50, 1, 0):
        KafkaliteDataSource({**OPTIONS, "topic": f"latest-{query}"}).streamWriter(ROWS, overwrite=False)
    assert warnings(caplog) == 51 + 1, "of the first query again"


SPEC: Any = SimpleNamespace(producer=SimpleNamespace(bootstrap_servers=("broker:9092",)), topic="t", formats=())


class Rows:
    """A DataFrame that equals no other."""

    def sameSemantics(self, other: object) -> bool:
        return self is other


def sink(number: int) -> Any:
    return SimpleNamespace(name=f"sink-{number}", progress_topic="t")


def test_other_rows_in_a_batch_are_refused_for_the_latest_sinks() -> None:
    written: Any = [Rows() for _ in range(60)]
    other: Any = Rows()
    for number, rows in enumerate(written):
        note_call(rows, SPEC, sink(number), "run", 3)
    for number in range(10, 60):
        note_call(written[number], SPEC, sink(number), "run", 3)
        with pytest.raises(ConfigError, match=f"app_id 'sink-{number}' was used twice in batch 3"):
            note_call(other, SPEC, sink(number), "run", 3)
    # The rows of the first ten calls are not remembered any more.
    note_call(other, SPEC, sink(9), "run", 3)
    # The query is restarted: both calls are skipped, and the second one still has other rows.
    note_call(written[59], SPEC, sink(59), "another run", 3)
    with pytest.raises(ConfigError, match="app_id 'sink-59' was used twice in batch 3"):
        note_call(other, SPEC, sink(59), "another run", 3)
    note_call(other, SPEC, sink(59), "another run", 4)
