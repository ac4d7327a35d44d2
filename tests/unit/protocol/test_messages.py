"""Every declaration against Apache Kafka's own schemas, field by field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID as Uuid

import pytest

from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.registry import APIS
from kafka_sink.protocol.schema import NO_VERSIONS, Array, Primitive, Struct, StructField, VersionRange
from tests.fakes.protocol_values import message_kinds
from tests.golden.kafka_schemas import schema_of
from tests.support.cases import with_each

Json = dict[str, Any]
# kafka-python reads its schemas with a function that Python 3.11 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
by_name = with_each("kind", message_kinds())


def snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def stable_versions(name: str) -> VersionRange:
    """The versions without the latest one if Kafka marks it as unstable, which only the request's schema states."""
    versions = VersionRange.parse(schema_of(name)["validVersions"])
    unstable = schema_of(name.replace("Response", "Request")).get("latestVersionUnstable", False)
    return VersionRange(versions.min, versions.max - unstable)


class Pair(NamedTuple):
    """A field of ours with Kafka's, and the versions in which the struct around them is sent."""

    where: str
    ours: StructField
    theirs: Json
    versions: VersionRange

    def of_versions(self, versions: VersionRange) -> VersionRange:
        """*versions*, without those in which the field is not sent in any case."""
        both = common_versions(versions, self.versions)
        return both if both.min <= both.max else NO_VERSIONS


def common_versions(one: VersionRange, other: VersionRange) -> VersionRange:
    return VersionRange(max(one.min, other.min), min(one.max, other.max))


def pairs(declared: type[Struct], theirs: list[Json], versions: VersionRange) -> Iterator[Pair]:
    """Our fields with Kafka's, in the order of the wire, nested ones too; fields of versions we lack are omitted."""
    wanted = [(field, common_versions(versions, VersionRange.parse(field["versions"]))) for field in theirs]
    wanted = [(field, both) for field, both in wanted if both.min <= both.max]
    fields = [
        field
        for field in declared.SCHEMA.fields
        if field.versions.min <= versions.max and field.versions.max >= versions.min
    ]
    assert [field.name for field in fields] == [snake_case(field["name"]) for field, _ in wanted]
    for ours, (other, both) in zip(fields, wanted, strict=True):
        yield Pair(f"{declared.__name__}.{ours.name}", ours, other, versions)
        nested = ours.type.element if isinstance(ours.type, Array) else ours.type
        if not isinstance(nested, Primitive):
            yield from pairs(nested, other["fields"], both)


def all_pairs(kind: type[Struct]) -> list[Pair]:
    versions = kind.SCHEMA.versions
    assert versions is not None
    return list(pairs(kind, schema_of(kind.__name__)["fields"], versions))


#: One struct for several structs of Kafka's that have the same fields in the versions in which they are sent.
SHARED = (
    "PartitionOutcome", "TopicOutcome", "TopicPartitions", "OffsetFetchRequestTopic", "OffsetFetchResponseTopic",
    "OffsetFetchResponsePartition",
)  # fmt: skip
#: Kafka gives the same name to structs of a request and of its response, and of similar requests.
RENAMED = {
    "TopicQuorum": "TopicData",
    "PartitionQuorum": "PartitionData",
    "AlteredEntry": "EntryData",
    "DescribedEntry": "EntryData",
    "IncrementalAlterConfigsResource": "AlterConfigsResource",
    "IncrementalAlterableConfig": "AlterableConfig",
    "ListedTransaction": "TransactionState",
    "DescribedConsumerGroup": "DescribedGroup",
}


def type_name(field: StructField) -> str:
    element = field.type.element if isinstance(field.type, Array) else field.type
    name = element.name if isinstance(element, Primitive) else element.__name__
    name = RENAMED.get(name, name)
    return f"[]{name}" if isinstance(field.type, Array) else name


def kafka_default(field: Json, make_struct: Any) -> Any:
    """Kafka's rules: the given default, else zero, empty, null (records only) or a struct of defaults."""
    kind, stated = field["type"], field.get("default")
    if stated == "null" or kind == "records":
        return None
    if kind.startswith("[]"):
        return []
    if kind == "string":
        return stated or ""
    if kind == "bool":
        return stated == "true"
    if kind == "uuid":
        return Uuid(int=0)
    if kind == "bytes":
        return b""
    if kind == "float64":
        return 0.0
    return int(str(stated or 0), 0) if kind.startswith(("int", "uint")) else make_struct()


#: One version is required that brokers offer only with unstable.api.versions.enable: two-phase commit (KIP-939).
WITH_UNSTABLE_VERSION = ("InitProducerIdRequest", "InitProducerIdResponse")


@by_name
def test_versions_are_kafkas_stable_ones(kind: type[Struct]) -> None:
    stable = stable_versions(kind.__name__)
    if kind.__name__ in WITH_UNSTABLE_VERSION:
        stable = VersionRange(stable.min, stable.max + 1)
    assert kind.SCHEMA.versions == stable
    assert kind.SCHEMA.flexible == VersionRange.parse(schema_of(kind.__name__)["flexibleVersions"])


@by_name
def test_fields_are_kafkas(kind: type[Struct]) -> None:
    for pair in all_pairs(kind):
        where, ours, theirs, _ = pair
        assert type_name(ours).removeprefix("[]") in SHARED or type_name(ours) == theirs["type"], where
        assert type_name(ours).startswith("[]") == theirs["type"].startswith("[]"), where
        assert pair.of_versions(ours.versions) == pair.of_versions(VersionRange.parse(theirs["versions"])), where
        nullable = VersionRange.parse(theirs.get("nullableVersions", "none"))
        assert pair.of_versions(ours.nullable) == pair.of_versions(nullable), where
        assert ours.tag == theirs.get("tag"), where
        # A field with a tag is tagged in all its versions, as field(tag=...) requires.
        assert theirs.get("taggedVersions", theirs["versions"]) == theirs["versions"], where
        assert ours.make_default() == kafka_default(theirs, ours.type), where
        # The ignorable flag matters in versions without the field.
        if pair.of_versions(ours.versions) != pair.versions:
            assert ours.ignorable == theirs.get("ignorable", False), where


@with_each("key", APIS)
def test_keys_are_kafkas(key: ApiKey) -> None:
    api = APIS[key]
    assert schema_of(api.request.__name__)["apiKey"] == api.key
    assert schema_of(api.response.__name__)["apiKey"] == api.key
