"""Each row of docs/errors.md: each way to write raises its error, with the name and the attributes on the page."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

import kafka_sink
from kafka_sink import EmbeddedCluster
from kafka_sink.broker.faults.faults import set_fault
from kafka_sink.common.errors import ApiError, KafkaError, SinkWriteError
from scripts.pages import printed
from tests.support.mistakes import (
    OF_SECURITY,
    RAISED,
    WAYS,
    Way,
    by_format,
    by_stream,
    by_write,
    fits,
    lines_of,
    open_cluster,
    recorded,
    refusing,
    table,
)
from tests.support.mistakes import PAGE as FROM_SPARK
from tests.support.spark_version import VERSION, requires_data_sources

#: Additional lines of a task's error in Spark 4.0 and 4.1, where a stream repeats the stack of its job.
_MORE_OF_TASKS: Final = 30
PAGE: Final = Path(__file__).parents[2] / "docs" / "errors.md"


#: Row → the reason why it is not raised here.
ELSEWHERE: Final[Mapping[str, str]] = {
    "RequirementError": "only another version of a package raises it",
    **dict.fromkeys(
        (
            "RegistryError",
            "IncompatibleSchemaError",
            "RegistryDeniedError",
            "UnusableSchemaError",
            "SchemaNotFoundError",
        ),
        "by tests/spark/test_registry_write.py and tests/unit/registry: each needs a registry",
    ),
    "UnsupportedVersionError": "by test_refused_writes.py: no broker of ours is so old",
    "CancelledWriteError": "by tests/spark/test_stop.py: somebody has to cancel the job",
    "BufferExhaustedError": "the producer's, by tests/unit/producer: a task that waits has a time-out of its own",
    "RecordTooLargeError": "a RowTooLargeError in each write; the producer's own, by tests/unit/producer",
    "OutOfOrderSequenceError": "tried again until the time-out, which is raised and names it",
    "BatchRefusedError": "in a task the error of the record that is to blame stands for it",
    **dict.fromkeys(("DisconnectError", "NotConnectedError"), "the time-out that follows is raised"),
    **dict.fromkeys(
        ("ProtocolError", "CorruptRecordError", "InvalidReceiveError"), "by tests/hostile: no broker of ours answers so"
    ),
    **dict.fromkeys(("KafkaError", "SinkWriteError", "UnwritableRowsError", "RowError"), "the class of others"),
    **dict.fromkeys(
        (
            *("FencedError", "ProducerFencedError", "ProgressError", "UndecidedError", "OutdatedProgressError"),
            *("TornBatchError", "LostEndError", "AttemptError", "ExactlyOnceError"),
        ),
        "by tests/exactly_once: each needs a second driver, or a fault between two steps",
    ),
    **dict.fromkeys(
        ("SerializationError", "PartlyStagedError", "TransactionAbortableError", "TransactionStateError"),
        "the producer's in plain Python",
    ),
}


def test_each_row_is_raised_here_or_says_why_not() -> None:
    anchors = re.findall(r'<a id="(\w+)"></a>', PAGE.read_text())
    assert sorted([*RAISED, *ELSEWHERE, *OF_SECURITY]) == sorted(anchors)


def test_lines_of_the_errors_are_those_of_the_page() -> None:
    assert printed(FROM_SPARK, "mistakes").strip() == table(recorded()).strip()


@pytest.fixture(scope="module")
def brokers() -> Iterator[EmbeddedCluster]:
    with open_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def refused() -> Iterator[Mapping[str, Mapping[str, str]]]:
    with refusing() as options:
        yield options


def raised(
    name: str, way: Way, spark: SparkSession, columns: tuple[str, ...], options: Mapping[str, str], folder: Path
) -> Any:
    """Return kafkalite's error; an error that is raised in the program is that error itself."""
    (folder / "rows").mkdir(exist_ok=True)
    (folder / "rows" / "one.txt").write_text("a row\n")
    with pytest.raises(Exception) as caught:
        way(spark, columns, options, folder)
    cause = kafka_sink.cause_of(caught.value)
    if not isinstance(cause, SinkWriteError):
        # In a driver's error the sentence follows at most one frame of kafkalite, and only the line for programs
        # follows it.
        said = str(caught.value)
        assert said.count("/kafka_sink/") == (way is not by_write)
        last = said.partition("\n SQLSTATE")[0].splitlines()
        assert str(cause) in last[-2 if last[-1].startswith("kafkalite failure: ") else -1]
        trace = "".join(traceback.format_exception(caught.value)).partition("/kafka_sink/")[2]
        ours = trace if way is by_write else said.partition("\n SQLSTATE")[0]
        assert len(ours.splitlines()) <= 6, ours
    assert way is not by_write or caught.value is cause
    figure = recorded()[name][f"kafkalite {next(each for each, known in WAYS.items() if known is way)}"]
    if figure is not None and way is by_stream and VERSION < (4, 2) and isinstance(cause, SinkWriteError):
        figure = figure[0] + _MORE_OF_TASKS, figure[1]
    assert fits(lines_of(caught.value), figure)
    assert "kafkalite failure" not in str(cause)
    return cause


IN_WAYS: Final = pytest.mark.parametrize(
    "way",
    [
        pytest.param(by_format, marks=requires_data_sources),
        by_write,
        pytest.param(by_stream, marks=requires_data_sources),
    ],
)


@pytest.mark.behaviour("Documentation", "Each error of docs/errors.md is raised as the page says, in each way to write")
@IN_WAYS
@pytest.mark.parametrize("name", RAISED)
def test_row_is_raised_as_the_page_says(
    name: str, way: Way, spark: SparkSession, brokers: EmbeddedCluster, tmp_path: Path
) -> None:
    mistake = RAISED[name]
    options = {"kafka.bootstrap.servers": brokers.bootstrap_servers, "topic": "orders", **mistake.options}
    with set_fault(brokers.faults, mistake.fault) if mistake.fault else nullcontext():
        error = raised(name, way, spark, mistake.columns, options, tmp_path)
    assert isinstance(error, KafkaError)
    assert type(error).__name__ == (mistake.in_task or name)
    if isinstance(error, SinkWriteError):
        assert error.cause_class == name
    found = {each: getattr(error, each) for each in mistake.attributes}
    assert {**found, **({"code": found["code"].name} if "code" in found else {})} == mistake.attributes


@IN_WAYS
@pytest.mark.parametrize("name", OF_SECURITY)
def test_refused_client_is_told_so_in_each_way(
    name: str, way: Way, spark: SparkSession, refused: Mapping[str, Mapping[str, str]], tmp_path: Path
) -> None:
    error = raised(name, way, spark, ("value",), {**refused[name], "topic": "orders"}, tmp_path)
    assert type(error).__name__ == name
    assert isinstance(error, ApiError) and error.code == type(error).code
