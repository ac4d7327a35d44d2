"""Responses of a registry that concern the records of one schema, and those that concern all records."""

from __future__ import annotations

import pytest

from kafka_sink.cli.values.typed_values import KeptSchemas
from kafka_sink.common.errors import (
    IncompatibleSchemaError,
    RegistryDeniedError,
    RegistryError,
    RegistryUnavailableError,
    SchemaNotFoundError,
    SerializationError,
    UnusableSchemaError,
)
from kafka_sink.formats.schema_text import SchemaText
from tests.fakes.clock import FakeClock
from tests.support.cases import with_each


class Asked:
    """A registry that returns *error* for the id 7, and the number for other ids; *ids* has the requests."""

    def __init__(self, error: Exception) -> None:
        self.error: Exception | None = error
        self.ids: list[int] = []

    def __call__(self, schema_id: int) -> SchemaText:
        self.ids.append(schema_id)
        if schema_id == 7 and self.error is not None:
            raise self.error
        return SchemaText(str(schema_id))


def refusal(schemas: KeptSchemas[str], schema_id: int) -> str:
    with pytest.raises(SerializationError) as caught:
        schemas.of(schema_id)
    return str(caught.value)


@pytest.mark.behaviour("Schema registry", "What a registry answers for one schema concerns its records alone")
@with_each(
    "kind", [RegistryError, RegistryDeniedError, SchemaNotFoundError, UnusableSchemaError, IncompatibleSchemaError]
)
def test_a_refusal_concerns_one_schema(kind: type[RegistryError]) -> None:
    clock, asked = FakeClock(), Asked(kind("no"))
    schemas = KeptSchemas(asked, lambda schema: schema.text, clock)
    assert [refusal(schemas, 7), refusal(schemas, 7)] == ["schema 7 cannot be used: no"] * 2
    assert schemas.of(8) == "8"
    assert asked.ids == [7, 8]
    # The permission may have been granted.
    clock.advance(30_000)
    asked.error = None
    assert schemas.of(7) == "7"


@pytest.mark.behaviour("Schema registry", "What a registry answers for one schema concerns its records alone")
def test_a_registry_that_is_down_is_left_alone_for_a_while() -> None:
    clock, asked = FakeClock(), Asked(RegistryUnavailableError("no answer"))
    schemas = KeptSchemas(asked, lambda schema: schema.text, clock)
    assert schemas.of(1) == "1"
    assert refusal(schemas, 7) == refusal(schemas, 8) == "its schema is not known: no answer"
    # Known schemas remain usable.
    assert schemas.of(1) == "1"
    assert asked.ids == [1, 7]
    clock.advance(30_000)
    assert schemas.of(8) == "8"


@with_each("error", [ValueError("x" * 10_000), TypeError(), RecursionError(), KeyError("key"), OSError()])
def test_whatever_a_library_raises_concerns_one_schema(error: Exception) -> None:
    def made(schema: SchemaText) -> str:
        raise error

    schemas = KeptSchemas(Asked(ValueError()), made)
    said = refusal(schemas, 8)
    assert type(error).__name__ in said and len(said) < 1_200


@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt()])
def test_what_is_the_process_own_is_not_a_schemas(error: BaseException) -> None:
    def made(schema: SchemaText) -> str:
        raise error

    with pytest.raises(type(error)):
        KeptSchemas(Asked(ValueError()), made).of(8)
