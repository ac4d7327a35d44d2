from __future__ import annotations

import subprocess
import sys
from typing import ForwardRef, get_args, get_origin

import pytest

from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.registry import APIS, api
from kafka_sink.protocol.schema import RequestBody


def test_apis_are_looked_up_by_number_or_key() -> None:
    produce = api(0)
    assert produce is api(ApiKey.PRODUCE) is APIS[ApiKey.PRODUCE]
    assert (produce.key, produce.request.__name__, produce.response.__name__) == (
        ApiKey.PRODUCE,
        "ProduceRequest",
        "ProduceResponse",
    )
    assert (produce.versions.min, produce.versions.max, produce.flexible_from) == (3, 13, 9)


def test_the_mapping_is_consistent() -> None:
    assert len(APIS) == len(list(APIS)) == len(APIS.items())
    assert all(entry.key == key for key, entry in APIS.items())
    assert ApiKey.PRODUCE in APIS
    assert 999 not in APIS


def test_every_request_names_the_class_of_its_response() -> None:
    for entry in APIS.values():
        base = vars(entry.request)["__orig_bases__"][-1]
        assert get_origin(base) is RequestBody
        assert get_args(base) == (ForwardRef(entry.response.__name__),)


@pytest.mark.parametrize("key", [4, 999, -1])
def test_an_api_without_messages(key: int) -> None:
    with pytest.raises(ValueError, match=f"API key {int(key)} has no messages here"):
        api(key)


def test_messages_are_imported_when_they_are_asked_for() -> None:
    program = (
        "import sys; from kafka_sink.protocol.registry import api; before = set(sys.modules); api(3);"
        "print(*sorted(name for name in set(sys.modules) - before if 'messages.' in name))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["kafka_sink.protocol.messages.metadata"]
