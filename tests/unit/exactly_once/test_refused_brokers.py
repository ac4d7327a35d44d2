"""Brokers that do not verify transactions are refused, with the missing feature and the alternatives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_sink.exactly_once.coordinator_client import CoordinatorClient
from kafka_sink.exactly_once.model import ExactlyOnceError


def client(missing: str | None) -> Any:
    return SimpleNamespace(nodes=list, _verification=SimpleNamespace(missing=lambda nodes: missing))


def test_brokers_that_do_not_verify_are_refused_with_advice() -> None:
    text = r"verify transactions \(KIP-890\), .*: broker 2 cannot; upgrade\. Write at least once instead: "
    with pytest.raises(ExactlyOnceError, match=text):
        CoordinatorClient.require_verification(client("broker 2 cannot; upgrade"))
    CoordinatorClient.require_verification(client(None))
