"""Error codes equal those of Kafka's own table."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_sink.common import errors
from kafka_sink.common.errors import ApiError, ErrorCode, KafkaError, error_for
from tests.support.cases import with_each

GOLDEN = Path(__file__).parents[2] / "golden" / "kafka_error_codes.tsv"


def kafka_codes() -> dict[int, tuple[str, bool, bool]]:
    rows = (line.split("\t") for line in GOLDEN.read_text().splitlines() if not line.startswith("#"))
    return {int(code): (name, retriable == "true", stale == "true") for code, name, retriable, stale in rows}


@with_each("code", ErrorCode)
def test_code_name_and_retriability_are_kafkas(code: ErrorCode) -> None:
    assert (code.name, code.is_retriable, code.is_invalid_metadata) == kafka_codes()[int(code)]


def test_every_invalid_metadata_code_of_kafka_is_known() -> None:
    # An unlisted code would become UNKNOWN_SERVER_ERROR, and metadata would never be refreshed.
    only_answers_to_elect_leaders = {83, 84}
    stale = {code for code, (_, _, invalid_metadata) in kafka_codes().items() if invalid_metadata}
    assert stale - only_answers_to_elect_leaders <= {int(code) for code in ErrorCode}


def test_a_code_of_a_newer_broker_is_an_unknown_server_error() -> None:
    assert ErrorCode.of(32_000) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_error_for_names_an_unlisted_code_by_its_number() -> None:
    error = error_for(32_000, "from the future")
    assert str(error) == "error code 32000: from the future"
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_error_for_gives_the_exception_class_of_the_code() -> None:
    error = error_for(3, "topic t is not there")
    assert type(error) is errors.UnknownTopicOrPartitionError
    assert str(error) == "UNKNOWN_TOPIC_OR_PARTITION: topic t is not there"
    assert error.is_retriable


def test_error_for_falls_back_to_api_error_with_the_code() -> None:
    error = error_for(19)
    assert type(error) is ApiError
    assert error.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert str(error) == "NOT_ENOUGH_REPLICAS"


def test_broker_timeout_code_is_no_local_timeout_error() -> None:
    # REQUEST_TIMED_OUT from a broker does not concern the client's own deadlines.
    assert not isinstance(error_for(7), TimeoutError)
    assert isinstance(errors.KafkaTimeoutError("x"), TimeoutError)


@with_each("kind", [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)])
def test_everything_raised_on_purpose_has_one_base(kind: type[Exception]) -> None:
    assert issubclass(kind, KafkaError)


def test_misuse_is_a_value_error_and_a_peers_fault_is_not() -> None:
    assert issubclass(errors.ConfigError, ValueError)
    assert issubclass(errors.SerializationError, ValueError)
    assert not issubclass(errors.ProtocolError, ValueError)


def test_long_error_text_is_cut_to_fit_into_an_answer() -> None:
    assert str(ApiError("x" * 4000)) == "x" * 4000
    text = str(ApiError("\U0001f600" * 100_000))
    assert text.endswith("… (96000 characters more)") and len(text.encode()) < 32_767


@pytest.mark.behaviour("Faults: hostile servers", "Text of a peer writes no line of its own into logs and errors")
def test_control_characters_of_a_peer_are_escaped() -> None:
    text = str(ApiError("no\nroot: CRITICAL \x1b[31m\x07 \u202e caf\u00e9 \\n"))
    assert text == r"no\nroot: CRITICAL \x1b[31m\x07 \u202e caf\u00e9 \n".replace(r"\u00e9", "\u00e9")
    assert str(ApiError(text)) == text
