"""Make the golden bytes of every API and version, with encoders of other projects.

    python tests/golden/make_protocol_golden.py values
    python tests/golden/make_protocol_golden.py kafka-python
    python tests/golden/make_protocol_golden.py kafka-clients --jars DIRECTORY

``values`` fills every field of every message declared here, from Apache Kafka's JSON schemas (``kafka_schemas.py``);
``kafka-python`` encodes those of its messages, and ``kafka-clients`` (Apache Kafka's own Java classes, driven through
py4j; DIRECTORY holds the jars of a Kafka distribution) all of them. The output is in ``tests/golden/protocol``. Run all
three again after adding an API.
"""

from __future__ import annotations

import argparse
import base64
import importlib.metadata
import itertools
import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from kafka_sink.protocol.registry import APIS
from tests.golden.kafka_schemas import BEYOND_KAFKA_PYTHON, schema_of

TARGET = Path(__file__).parent / "protocol"
Json = dict[str, Any]


def messages() -> Iterator[tuple[str, range]]:
    """Every declared message: Kafka's name and our versions. No other code of ours takes part in making the bytes."""
    for api in APIS.values():
        for kind in (api.request, api.response):
            yield kind.__name__, range(api.versions.min, api.versions.max + 1)


def snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def covers(versions: str | None, version: int) -> bool:
    if versions is None:
        return False
    low, _, high = versions.removesuffix("+").partition("-")
    return int(low) <= version and (versions.endswith("+") or version <= int(high or low))


# --- values -----------------------------------------------------------------------------------------------------------


def full(field: Json, numbers: Iterator[int]) -> Any:
    """A value other than the default, different for every field."""
    kind = field["type"]
    number = next(numbers)
    if kind.startswith("[]"):
        return [full({**field, "type": kind[2:]}, numbers) for _ in range(2)]
    if "fields" in field:
        return {snake_case(child["name"]): full(child, numbers) for child in field["fields"]}
    if kind == "string":
        # Every seventh is long enough for a compact length of two bytes, every fifth is not ASCII.
        return f"{snake_case(field['name'])}-{number}" + "é" * (number % 5 == 0) + "x" * (150 * (number % 7 == 0))
    if kind in ("records", "bytes"):
        return bytes(range(number % 200)).hex()
    if kind == "uuid":
        return str(uuid.UUID(int=number << 96 | number))
    if kind == "bool":
        return field.get("default") != "true"
    if kind == "float64":
        return number + 0.25
    small = {"int8": 1 + number % 100, "int16": 300 + number, "uint16": 40_000 + number}
    return {**small, "int32": 70_000 + number, "int64": 2**40 + number}[kind]


def sparse(field: Json, numbers: Iterator[int]) -> Any:
    """Null, empty or the smallest number."""
    kind = field["type"]
    if "nullableVersions" in field:
        return None
    if kind.startswith("[]"):
        return [sparse({**field, "type": kind[2:]}, numbers)] if "fields" in field else []
    if "fields" in field:
        return {snake_case(child["name"]): sparse(child, numbers) for child in field["fields"] if "tag" not in child}
    if kind.startswith("int"):
        return -(2 ** (int(kind[3:]) - 1))
    return {"string": "", "bytes": "", "uuid": str(uuid.UUID(int=0)), "bool": False, "uint16": 0, "float64": 0.0}[kind]


def make_values() -> Json:
    made: Json = {}
    for name, _ in messages():
        numbers = itertools.count(1)
        schema = {"type": "", "fields": schema_of(name)["fields"]}
        made[name] = {"full": full(schema, numbers), "sparse": sparse(schema, numbers)}
    return made


def at_version(fields: list[Json], values: Json, version: int) -> Iterator[tuple[Json, Any]]:
    """The values of the fields that *version* has; null becomes empty where the version is not nullable."""
    for field in fields:
        name = snake_case(field["name"])
        if covers(field["versions"], version) and name in values:
            value = values[name]
            if value is None and not covers(field.get("nullableVersions"), version):
                value = [] if field["type"].startswith("[]") else ""
            yield field, value


# --- kafka-python -----------------------------------------------------------------------------------------------------


def encode_with_kafka_python(name: str, version: int, values: Json) -> bytes:
    kind = kafka_python_class(name)
    return bytes(kafka_python_struct(kind, schema_of(name)["fields"], values, version).encode(version=version))


def kafka_python_class(name: str) -> Any:
    from kafka.protocol import admin, consumer, metadata, producer, sasl

    return next(
        getattr(module, name) for module in (admin, consumer, metadata, producer, sasl) if hasattr(module, name)
    )


def kafka_python_struct(kind: Any, fields: list[Json], values: Json, version: int) -> Any:
    def convert(field: Json, value: Any) -> Any:
        if isinstance(value, list):
            return [convert(field, item) for item in value]
        if isinstance(value, dict):
            return kafka_python_struct(getattr(kind, field["type"].removeprefix("[]")), field["fields"], value, version)
        if field["type"] in ("records", "bytes") and value is not None:
            return bytes.fromhex(value)
        return uuid.UUID(value) if field["type"] == "uuid" else value

    # kafka-python gives the authorized operations a name and a type of its own, at the same position.
    names = dict(zip((field["name"] for field in fields), kind.fields, strict=True))
    found = {}
    for field, value in at_version(fields, values, version):
        name = names[field["name"]]
        found[name] = bits(value) if name == "authorized_operations" else convert(field, value)
    return kind(version=version, **found)


def bits(value: int) -> set[int] | None:
    return None if value < 0 else {bit for bit in range(32) if value >> bit & 1}


# --- Apache Kafka's Java classes --------------------------------------------------------------------------------------


def java_encoder(jars: Path) -> Callable[[str, int, Json], bytes]:
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    classpath = ":".join(str(jar) for jar in sorted(jars.glob("*.jar")))
    port = launch_gateway(classpath=classpath, die_on_exit=True)
    jvm = JavaGateway(gateway_parameters=GatewayParameters(port=port)).jvm
    mapper = jvm.com.fasterxml.jackson.databind.ObjectMapper()

    def encode(name: str, version: int, values: Json) -> bytes:
        converter = getattr(jvm.org.apache.kafka.common.message, f"{name}DataJsonConverter")
        text = json.dumps(java_json(schema_of(name)["fields"], values, version))
        message = converter.read(mapper.readTree(text), version)
        accessor = jvm.org.apache.kafka.common.protocol.MessageUtil.toByteBufferAccessor(message, version)
        return bytes(accessor.buffer().array())

    return encode


def java_json(fields: list[Json], values: Json, version: int) -> Json:
    def convert(field: Json, value: Any) -> Any:
        if isinstance(value, list):
            return [convert(field, item) for item in value]
        if isinstance(value, dict):
            return java_json(field["fields"], value, version)
        if field["type"] in ("records", "bytes") and value is not None:
            return base64.b64encode(bytes.fromhex(value)).decode()
        if field["type"] == "uuid":
            return base64.urlsafe_b64encode(uuid.UUID(value).bytes).decode().rstrip("=")
        return value

    return {
        field["name"][0].lower() + field["name"][1:]: convert(field, value)
        for field, value in at_version(fields, values, version)
    }


# --- files ------------------------------------------------------------------------------------------------------------


def make_bytes(encode: Callable[[str, int, Json], bytes], wanted: Iterable[tuple[str, range]]) -> Json:
    values = json.loads((TARGET / "values.json").read_text())["messages"]
    return {
        name: {
            str(version): {variant: encode(name, version, values[name][variant]).hex() for variant in values[name]}
            for version in versions
        }
        for name, versions in wanted
    }


def write(file_name: str, made_by: str, command: str, made: Json) -> None:
    content = {"made_by": made_by, "command": f"python tests/golden/{Path(__file__).name} {command}", "messages": made}
    (TARGET / file_name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("maker", choices=("values", "kafka-python", "kafka-clients"))
    parser.add_argument("--jars", type=Path, help="the directory with the jars of Apache Kafka")
    arguments = parser.parse_args()
    kafka_python = f"kafka-python {importlib.metadata.version('kafka-python')}"
    if arguments.maker == "values":
        write("values.json", f"the message schemas in {kafka_python}", "values", make_values())
    elif arguments.maker == "kafka-python":
        known = ((name, versions) for name, versions in messages() if name not in BEYOND_KAFKA_PYTHON)
        write("kafka_python.json", kafka_python, "kafka-python", make_bytes(encode_with_kafka_python, known))
    else:
        jar = next(arguments.jars.glob("kafka-clients-*.jar"))
        made = make_bytes(java_encoder(arguments.jars), messages())
        write("kafka_clients.json", f"Apache Kafka, {jar.name}", "kafka-clients --jars DIRECTORY", made)


if __name__ == "__main__":
    main()
