"""The ACLs that commands of kafka-acls add."""

from __future__ import annotations

import argparse
import shlex

from kafka_sink.common.acl import AclBinding, AclOperation, PatternType, ResourceType


def acls_of(printed: str) -> list[AclBinding]:
    """Of each line of *printed* the ACLs, in the order of its operations."""
    return [acl for line in printed.splitlines() for acl in _of_command(shlex.split(line))]


def _of_command(words: list[str]) -> list[AclBinding]:
    parser = argparse.ArgumentParser(words[0])
    for name in ("bootstrap-server", "allow-principal"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--add", action="store_true", required=True)
    parser.add_argument("--operation", action="append")
    parser.add_argument("--resource-pattern-type", default="literal")
    resources = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}
    resources["transactional_id"] = ResourceType.TRANSACTIONAL_ID
    for name in resources:
        parser.add_argument(f"--{name.replace('_', '-')}")
    given = parser.parse_args(words[1:])
    assert words[0] == "kafka-acls"
    ((kind, name),) = [(kind, getattr(given, name)) for name, kind in resources.items() if getattr(given, name)]
    return [
        AclBinding(
            principal=given.allow_principal,
            operation=AclOperation[operation.upper()],
            resource_type=kind,
            resource_name=name,
            pattern_type=PatternType[given.resource_pattern_type.upper()],
        )
        for operation in given.operation
    ]
