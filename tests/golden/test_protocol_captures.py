"""Whole frames that other clients and a real broker exchanged are decoded, and encoded again to the same bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_sink.common.errors import ErrorCode, UnsupportedVersionError
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import (
    decode_request_body,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from kafka_sink.protocol.registry import api
from tests.fakes.protocol_values import GOLDEN
from tests.support.cases import with_each

FRAMES = json.loads((GOLDEN / "captured.json").read_text())["frames"]
KNOWN = [frame for frame in FRAMES if frame["version"] in api(frame["api_key"]).versions]
UNKNOWN = [frame for frame in FRAMES if frame not in KNOWN]


def name(frame: dict[str, Any]) -> str:
    return f"{frame['client']}-{ApiKey(frame['api_key']).name}-{frame['version']}".replace(" ", "-")


@with_each("frame", KNOWN)
def test_request_of_a_foreign_client(frame: dict[str, Any]) -> None:
    raw = bytes.fromhex(frame["request"])
    header, offset = decode_request_header(raw)
    body = decode_request_body(header, raw, offset)

    assert (header.api_key, header.api_version) == (frame["api_key"], frame["version"])
    again = encode_request(header.api_key, header.api_version, header.correlation_id, header.client_id, body)
    assert b"".join(again).hex() == frame["request"]


@with_each("frame", KNOWN)
def test_response_of_a_real_broker(frame: dict[str, Any]) -> None:
    raw = bytes.fromhex(frame["response"])
    correlation_id, body = decode_response(frame["api_key"], frame["version"], raw)

    assert correlation_id == decode_request_header(bytes.fromhex(frame["request"]))[0].correlation_id
    again = encode_response(frame["api_key"], frame["version"], correlation_id, body)
    assert b"".join(again).hex() == frame["response"]


def test_api_versions_of_a_version_the_broker_does_not_know() -> None:
    (frame,) = UNKNOWN
    raw = bytes.fromhex(frame["request"])
    header, offset = decode_request_header(raw)
    assert (header.api_key, header.api_version, header.client_id) == (ApiKey.API_VERSIONS, 99, None)
    with pytest.raises(UnsupportedVersionError):
        decode_request_body(header, raw, offset)

    correlation_id, body = decode_response(header.api_key, 99, bytes.fromhex(frame["response"]))
    assert correlation_id == header.correlation_id
    assert body.error_code == ErrorCode.UNSUPPORTED_VERSION  # type: ignore[attr-defined]
    assert b"".join(encode_response(ApiKey.API_VERSIONS, 0, correlation_id, body)).hex() == frame["response"]
