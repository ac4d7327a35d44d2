"""The line that names the failure for programs, in the error of a task or of the driver, and its parsing."""

from __future__ import annotations

import traceback

import pytest
from pyspark.errors import PySparkException

from kafka_sink.common.errors import (
    AuthenticationError,
    ConfigError,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    RegistryError,
    RowSerializationError,
    SinkWriteError,
    TooManyBadRowsError,
    UnresolvedReferenceError,
    UnwritableRowsError,
    error_for,
)
from kafka_sink.exactly_once.model import ExactlyOnceError, TornBatchError
from kafka_sink.exactly_once.transactions import Transaction
from kafka_sink.spark.errors import attributes_of, cause_of, in_text, of_task
from tests.support.cases import with_each

pytestmark = pytest.mark.behaviour("Tasks", "The error of a task tells programs what failed, and nobody else can")

#: Spark's text before and after the trace of a task.
BEFORE = "An error occurred while calling o63.save.\n: org.apache.spark.SparkException: Job aborted: Task 1 failed: "
BEHIND = "\n\n\tat org.apache.spark.api.python.PythonException.of\nDriver stacktrace:\n\tat org.Dag\nCaused by: "


def trace_of(error: BaseException, cause: BaseException) -> str:
    try:
        raise error from cause
    except BaseException:
        return f"org.apache.spark.api.python.PythonException: {traceback.format_exc()}"


def as_spark(error: BaseException, cause: BaseException) -> PySparkException:
    trace = trace_of(error, cause)
    return PySparkException(f"{BEFORE}{trace}{BEHIND}{trace}{BEHIND}")


def caused(error: KafkaError, cause: KafkaError) -> KafkaError:
    error.__cause__ = cause
    return error


def of_column(error: KafkaError, path: str) -> KafkaError:
    error.column = path
    return error


def in_topic(error: KafkaError, topic: str) -> KafkaError:
    error.topic = topic
    return error


@with_each(
    ("cause", "kind", "attributes"),
    [
        (
            KafkaTimeoutError("no answer"),
            SinkWriteError,
            {"cause_class": "KafkaTimeoutError", "code": ErrorCode.REQUEST_TIMED_OUT, "is_permanent": False},
        ),
        (
            error_for(ErrorCode.POLICY_VIOLATION),
            SinkWriteError,
            {"cause_class": "ApiError", "code": ErrorCode.POLICY_VIOLATION, "is_permanent": True},
        ),
        (
            caused(ExactlyOnceError("grant WRITE"), error_for(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)),
            SinkWriteError,
            {"cause_class": "ExactlyOnceError", "is_permanent": True},
        ),
        (
            RowSerializationError(7, "has 'GREEN'", "value.colour"),
            UnwritableRowsError,
            {"cause_class": "RowSerializationError", "column": "value.colour", "is_permanent": True, "code": None},
        ),
        (
            TooManyBadRowsError("3 rows", option="maxBadRows", is_permanent=True),
            TooManyBadRowsError,
            {"cause_class": "TooManyBadRowsError", "option": "maxBadRows", "is_permanent": True},
        ),
        (
            caused(ConfigError("no producer"), UnresolvedReferenceError("no file")),
            SinkWriteError,
            {"cause_class": "UnresolvedReferenceError", "is_permanent": True},
        ),
        (MemoryError(), SinkWriteError, {"cause_class": "MemoryError", "is_permanent": False}),
        (in_topic(KafkaTimeoutError("late"), "rejected"), SinkWriteError, {"topic": "rejected", "partition": 3}),
    ],
)
def test_attributes_arrive_through_the_text_of_spark(
    cause: Exception, kind: type[SinkWriteError], attributes: dict[str, object]
) -> None:
    found = cause_of(as_spark(of_task(cause, f"{cause}: 5 rows stay", "orders", 3), cause))
    assert type(found) is kind
    assert str(found) == f"{cause}: 5 rows stay"
    assert {name: getattr(found, name) for name in attributes} == attributes
    assert (found.topic, found.partition) == (attributes.get("topic", "orders"), 3)


FORGED = (
    "x\nkafka_sink.errors.UnwritableRowsError: row 1 is wrong\n"
    'kafkalite failure: {"kind": "UnwritableRowsError", "cause_class": "RowError", "code": null, "topic": null, '
    '"partition": null, "option": null, "column": null, "is_permanent": true}\n'
)


@with_each(
    ("cause", "topic"),
    [
        (KafkaTimeoutError(FORGED), "orders"),
        (KafkaError(FORGED), "orders"),
        (RuntimeError(FORGED), "orders"),
        (KafkaTimeoutError("no answer"), FORGED),
    ],
)
def test_text_of_others_is_not_taken_for_the_line(cause: Exception, topic: str) -> None:
    found = cause_of(as_spark(of_task(cause, f"topic {topic}: {cause}", topic), cause))
    assert type(found) is SinkWriteError
    assert (found.cause_class, found.is_permanent, found.column) == (type(cause).__name__, False, None)
    assert "\n" not in str(found) and "row 1 is wrong" in str(found)


@with_each(
    "damaged",
    ['{"kind": "KafkaError"}', "{}", "null", "[", '{"kind": "SinkWriteError", "cause_class": 1, "code": "X"}'],
)
def test_damaged_line_leaves_class_and_text(damaged: str) -> None:
    found = cause_of(
        PySparkException(f"{BEFORE}\nkafka_sink.errors.SinkWriteError: late\nkafkalite failure: {damaged}")
    )
    assert type(found) is SinkWriteError and str(found) == "late"
    assert (found.cause_class, found.is_permanent) == ("SinkWriteError", False)


TORN = TornBatchError(3, [Transaction("sink/t.9.1", 7, 0)])


def of_data_source(error: KafkaError) -> PySparkException:
    """The exception that Spark raises for *error* of the data source."""

    @in_text
    def writer() -> None:
        raise error

    try:
        writer()
    except KafkaError:
        return PySparkException(f"[PYTHON_DATA_SOURCE_ERROR] failed: {traceback.format_exc()} SQLSTATE: 38000")
    raise AssertionError


@with_each(
    ("error", "attributes"),
    [
        (AuthenticationError("wrong"), {"code": ErrorCode.SASL_AUTHENTICATION_FAILED}),
        (of_column(RegistryError("gone"), "value"), {"column": "value"}),
        (in_topic(error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED), "orders"), {"topic": "orders"}),
        (ConfigError.of("kafka.acks", ": '7'"), {"option": "kafka.acks"}),
        (TooManyBadRowsError("3 rows", option="maxBadRows", is_permanent=True), {"is_permanent": True}),
        (KafkaError("without attributes"), {"option": None}),
        (KafkaError(FORGED), {"column": None}),
        (KafkaError('kafkalite failure: {"option": "forged"}'), {"option": None}),
        (TORN, {"topic": None}),
    ],
)
def test_errors_of_the_driver_have_class_text_and_attributes(error: KafkaError, attributes: dict[str, object]) -> None:
    sentence = " ".join(str(error).split("\n"))
    of_spark = of_data_source(error)
    found = cause_of(of_spark)
    assert type(found) is type(error) and str(found) == sentence
    assert {name: getattr(found, name) for name in attributes} == attributes
    said = str(of_spark).removesuffix("\n SQLSTATE: 38000").splitlines()
    has_line = bool(attributes_of(error))
    assert said[-1].startswith("kafkalite failure: {") if has_line else said[-1].endswith(f"Error: {sentence}")
    assert said[-1 - has_line].endswith(f"Error: {sentence}")
    assert cause_of(error) is error


def test_other_errors_have_no_cause() -> None:
    assert cause_of(as_spark(ValueError("x"), ValueError("y"))) is None
    assert cause_of(KeyboardInterrupt()) is None
