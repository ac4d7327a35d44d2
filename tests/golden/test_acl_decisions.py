"""The authorizer makes the same decisions as Kafka's StandardAuthorizer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafka_sink.broker.authorizer import AclCache, Authorizer
from kafka_sink.broker.config import AUTHORIZER, BrokerConfig
from kafka_sink.common.acl import AclOperation, ResourceType
from tests.conftest import Figure

_DECISIONS = json.loads((Path(__file__).parent / "acl_decisions.json").read_text())


@pytest.mark.behaviour("ACLs", "Every decision is that of Kafka's StandardAuthorizer")
def test_decisions_are_those_of_kafkas_authorizer(figure: Figure) -> None:
    decided: dict[bool, int] = {True: 0, False: 0}
    for number, entry in enumerate(_DECISIONS["sets"]):
        config = BrokerConfig(
            authorizer_class_name=AUTHORIZER,
            super_users=_DECISIONS["super_user"],
            allow_everyone_if_no_acl_found=entry["allow_everyone"],
        )
        cache = AclCache.decode(entry["acls"])
        authorizer = Authorizer(config, lambda cache=cache: cache)  # type: ignore[misc]
        for principal, host, operation, resource_type, name, allowed in entry["questions"]:
            asked = principal, host, AclOperation(operation), ResourceType(resource_type)
            ours = authorizer.allows_any(*asked) if name is None else authorizer.allows(*asked, name)
            assert ours == allowed, f"set {number}: {asked} {name}, Kafka says {allowed}: {entry['acls']}"
            decided[allowed] += 1
    assert min(decided.values()) > 500
    figure("decisions about random ACLs, allowed and denied", f"{decided[True]}, {decided[False]}")
