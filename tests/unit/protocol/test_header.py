from __future__ import annotations

import pytest

from kafka_sink.common.errors import ErrorCode, ProtocolError, UnsupportedVersionError
from kafka_sink.protocol.api_key import ApiKey
from kafka_sink.protocol.header import (
    RequestHeader,
    decode_request_body,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from kafka_sink.protocol.messages.connection import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kafka_sink.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafka_sink.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.cases import with_each

TOPICS = [TopicProduceData("t", partition_data=[PartitionProduceData(0, b"records")])]

# Kafka protocol guide: key, version, correlation id, client id (always classic), tags from version 2 on.
HEADERS = {
    (8, "me"): "0003 0008 00000007 0002 6d65",
    (8, None): "0003 0008 00000007 ffff",
    (9, "me"): "0003 0009 00000007 0002 6d65 00",
    (9, None): "0003 0009 00000007 ffff 00",
}


@pytest.mark.behaviour("Protocol", "Requests have the header of their version")
@with_each(("version", "client_id"), HEADERS)
def test_request_headers(version: int, client_id: str | None) -> None:
    expected = bytes.fromhex(HEADERS[version, client_id])
    frame = b"".join(encode_request(ApiKey.METADATA, version, 7, client_id, MetadataRequest(topics=[])))
    assert frame.startswith(expected)
    header, offset = decode_request_header(frame)
    assert header == RequestHeader(ApiKey.METADATA, version, 7, client_id)
    assert offset == len(expected)
    assert decode_request_body(header, frame, offset) == MetadataRequest(topics=[])


def test_a_request_keeps_its_records_apart() -> None:
    records = bytearray(b"records")
    body = ProduceRequest(topic_data=[TopicProduceData("t", partition_data=[PartitionProduceData(0, records)])])
    segments = encode_request(ApiKey.PRODUCE, 9, 1, "me", body)
    assert len(segments) == 3
    assert segments[1] is records


def test_unknown_tags_of_a_header_are_skipped() -> None:
    frame = bytes.fromhex("0003 0009 00000007 ffff 01 05 02 aabb 01 01 00 00 00")
    header, offset = decode_request_header(frame)
    assert decode_request_body(header, frame, offset) == MetadataRequest(topics=[])


@with_each(
    "frame",
    [
        "",
        "0003",
        "0003 0009 00000007 0005 6d65",
        "0003 0009 00000007 ffff",
        "0003 0008 00000007 0005 6d65",
        "0003 0008 00000007 fffe",
    ],
)
def test_request_headers_cut_short_or_wrong(frame: str) -> None:
    with pytest.raises(ProtocolError, match=r"request header|exceeds the|negative"):
        decode_request_header(bytes.fromhex(frame))


def test_a_client_id_that_is_not_utf8() -> None:
    with pytest.raises(ProtocolError, match="utf-8"):
        decode_request_header(bytes.fromhex("0003 0008 00000007 0001 ff"))


@pytest.mark.parametrize("key", [-1, 4, 999])
def test_an_api_that_is_not_known(key: int) -> None:
    with pytest.raises(ProtocolError, match=f"unknown API key {key}"):
        decode_request_header(key.to_bytes(2, "big", signed=True) + bytes.fromhex("0000 00000007 ffff"))


def test_a_client_id_too_long() -> None:
    with pytest.raises(ValueError, match="client id of 32768 bytes"):
        encode_request(ApiKey.METADATA, 9, 1, "x" * 32_768, MetadataRequest())


def test_a_version_that_is_not_known_is_found_at_the_body() -> None:
    header, offset = decode_request_header(bytes.fromhex("0003 0063 00000007 ffff 00"))
    assert header.api_version == 99
    with pytest.raises(UnsupportedVersionError):
        decode_request_body(header, b"", offset)


@pytest.mark.parametrize(("version", "head"), [(8, "00000009"), (9, "00000009 00")])
def test_response_headers(version: int, head: str) -> None:
    frame = b"".join(encode_response(ApiKey.METADATA, version, 9, MetadataResponse(cluster_id="c")))
    assert frame.startswith(bytes.fromhex(head))
    assert decode_response(ApiKey.METADATA, version, frame) == (9, MetadataResponse(cluster_id="c"))


def test_tags_of_a_response_header_are_skipped() -> None:
    frame = (
        bytes.fromhex("00000009 01 05 02 aabb")
        + b"".join(encode_response(ApiKey.METADATA, 9, 9, MetadataResponse()))[5:]
    )
    assert decode_response(ApiKey.METADATA, 9, frame) == (9, MetadataResponse())


@pytest.mark.parametrize("frame", ["", "000000", "00000009"])
def test_response_headers_cut_short(frame: str) -> None:
    with pytest.raises(ProtocolError, match="response header of METADATA"):
        decode_response(ApiKey.METADATA, 9, bytes.fromhex(frame))


class TestApiVersions:
    """KIP-511: a client that knows no version yet can read the response."""

    def test_the_response_header_never_has_tags(self) -> None:
        frame = b"".join(encode_response(ApiKey.API_VERSIONS, 4, 9, ApiVersionsResponse()))
        assert frame.hex() == "000000090000010000000000"
        assert decode_response(ApiKey.API_VERSIONS, 4, frame) == (9, ApiVersionsResponse())

    def test_the_request_header_has_them(self) -> None:
        assert encode_request(ApiKey.API_VERSIONS, 3, 9, None, ApiVersionsRequest("a", "b")) == [
            bytes.fromhex("0012 0003 00000009 ffff 00 0261 0262 00")
        ]

    def test_an_unsupported_version_is_answered_in_version_0(self) -> None:
        refusal = ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, [ApiVersion(18, 0, 3)])
        frame = b"".join(encode_response(ApiKey.API_VERSIONS, 0, 9, refusal))
        assert decode_response(ApiKey.API_VERSIONS, 4, frame) == (9, refusal)

    def test_other_errors_come_in_the_version_asked_for(self) -> None:
        refusal = ApiVersionsResponse(ErrorCode.INVALID_REQUEST, throttle_time_ms=5)
        frame = b"".join(encode_response(ApiKey.API_VERSIONS, 4, 9, refusal))
        assert decode_response(ApiKey.API_VERSIONS, 4, frame) == (9, refusal)


@pytest.mark.behaviour("ApiVersions", "A broker's refusal of the version is understood in every form")
def test_version_refusal_not_in_version_0_is_understood() -> None:
    """The response of librdkafka's mock broker (2.16) to ApiVersions version 4."""
    frame = bytes.fromhex("0000000700230100120000000200000000")
    correlation_id, body = decode_response(ApiKey.API_VERSIONS, 4, frame)
    assert isinstance(body, ApiVersionsResponse)
    assert (correlation_id, body.error_code, body.api_keys) == (7, 35, [])
