"""``kafkalite acls`` against a stand-in for the admin client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kafka_sink.cli.commands import acls
from kafka_sink.cli.main import run
from kafka_sink.cli.output import EXIT_FAILURE
from kafka_sink.common.acl import AclBinding, AclBindingFilter, AclOperation, ResourceType


class FakeAdmin:
    """A cluster with an ACL whose operation only newer clients know."""

    def __init__(self, bootstrap_servers: str, properties: Mapping[str, Any]) -> None:
        """Nothing."""

    def __enter__(self) -> FakeAdmin:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing."""

    def describe_acls(self, wanted: AclBindingFilter) -> list[AclBinding]:
        return [
            AclBinding(
                principal="User:a", operation=AclOperation.UNKNOWN, resource_type=ResourceType.TOPIC, resource_name="t"
            )
        ]

    def delete_acls(self, found: Sequence[AclBinding]) -> list[AclBinding]:
        raise AssertionError("Kafka closes the connection of who names UNKNOWN")


def test_acls_of_newer_versions_are_shown_and_not_removed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(acls, "AdminClient", FakeAdmin)
    assert run(["acls", "remove", "--topic", "t", "--yes"]) == EXIT_FAILURE
    printed = capsys.readouterr()
    assert "UNKNOWN" in printed.out
    assert "unknown to this version of kafkalite" in printed.err and "remove them with kafka-acls" in printed.err
