"""Texts of others that a reader takes in one pass. A pattern that begins again at each character, or a walk for each
reference, would take hours for these; so would a chain of causes that never ends."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from kafka_sink.client.options.config import ClientConfig
from kafka_sink.common.clock import SYSTEM_CLOCK
from kafka_sink.common.config import parse
from kafka_sink.common.errors import AuthenticationError, ConfigError
from kafka_sink.formats.json.parsing import parse_schema
from kafka_sink.formats.schema_text import SchemaText, is_too_deep, without_comments
from kafka_sink.network.sasl.bearer_token import OAuthBearerServer
from kafka_sink.spark.errors import of_task
from kafka_sink.trust.key_stores import KeyStoreError
from tests.hostile import identities

MANY = 500_000
#: PBES2 with scrypt, whose work PKCS12 does not limit.
SCRYPT = bytes.fromhex("302006092a864886f70d01050d301306092b06010401da47040b3006040101020102")


LONG_POINTERS = json.dumps(
    {
        "properties": {f"p{number}": {"$ref": "#/definitions/x"} for number in range(10_000)},
        "definitions": {"x": {"$ref": "#/" + "a/" * 200_000}},
    }
)


def chain_without_end(length: int) -> None:
    errors = [ValueError(str(number)) for number in range(length)]
    for error, cause in zip(errors, [*errors[1:], errors[0]], strict=True):
        error.__cause__ = cause
    of_task(errors[0], "a row")


CASES: dict[str, tuple[Callable[[], object], type[Exception] | None]] = {
    "a JSON text that never ends": (lambda: is_too_deep('"' + '\\"' * MANY), None),
    "a schema that ends within a text": (lambda: without_comments('//"\n"' + '\\"' * MANY + "\\"), None),
    "pairs of a token": (
        lambda: OAuthBearerServer(SYSTEM_CLOCK).evaluate(b"n,,\1" + b"auth=Bearer x\1" * (MANY // 10) + b"!"),
        AuthenticationError,
    ),
    "digits of an option": (
        lambda: parse(ClientConfig, {"sasl.login.refresh.window.factor": "1" * MANY + "x"}),
        ConfigError,
    ),
    "references by long pointers": (lambda: parse_schema(SchemaText(LONG_POINTERS)), None),
    "an error that is its own cause": (lambda: chain_without_end(1), None),
    "two errors that cause each other": (lambda: chain_without_end(2), None),
}


@pytest.mark.timeout(60)
@pytest.mark.behaviour("Readers", "A reader takes the time of one pass over a text")
@pytest.mark.parametrize("name", CASES)
def test_a_text_is_read_in_one_pass(name: str) -> None:
    read, refusal = CASES[name]
    if refusal is None:
        read()
        return
    with pytest.raises(refusal):
        read()


def test_a_store_whose_password_is_hashed_by_scrypt_is_refused() -> None:
    with pytest.raises(KeyStoreError, match="hashed more than"):
        identities.key_store(SCRYPT)
