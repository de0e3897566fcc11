"""Frames of clients and servers: sizes, header versions, invalid bytes."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kafka_async.errors import DecodeError, EncodeError, UnsupportedVersionError
from kafka_async.protocol import api
from kafka_async.protocol.header import (
    RequestHeader,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    request_header_version,
    response_correlation_id,
    response_header_version,
)
from kafka_async.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka_async.protocol.messages.init_producer_id import InitProducerIdRequest
from kafka_async.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kafka_async.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

API_VERSIONS, METADATA, CONTROLLED_SHUTDOWN, SASL_HANDSHAKE = 18, 3, 7, 17


def frame(parts: list[bytes | bytearray | memoryview]) -> bytes:
    """Check the size of a frame, and return the frame without it."""
    whole = b"".join(parts)
    assert struct.unpack_from(">i", whole) == (len(whole) - 4,)
    return whole[4:]


@pytest.mark.parametrize(
    ("key", "version", "request_header", "response_header"),
    [
        (METADATA, 8, 1, 0),
        (METADATA, 9, 2, 1),
        (API_VERSIONS, 2, 1, 0),
        (API_VERSIONS, 3, 2, 0),  # KIP-511
        (API_VERSIONS, 4, 2, 0),
        (CONTROLLED_SHUTDOWN, 0, 0, 0),
        (SASL_HANDSHAKE, 1, 1, 0),
    ],
)
def test_header_versions(key: int, version: int, request_header: int, response_header: int) -> None:
    assert request_header_version(key, version) == request_header
    assert response_header_version(key, version) == response_header


@pytest.mark.parametrize("client_id", [None, "", "me", "\u00fcml\u00e4ut"])
@pytest.mark.parametrize("version", [8, 9, 13])
def test_encodes_and_decodes_request(version: int, client_id: str | None) -> None:
    request = MetadataRequest(topics=None)
    body = frame(encode_request(request, version, 77, client_id))
    assert decode_request(body) == (RequestHeader(METADATA, version, 77, client_id), request)
    assert decode_request(memoryview(bytearray(body)))[1] == request


def test_api_versions_response_has_no_tagged_fields_in_header() -> None:
    body = frame(encode_response(ApiVersionsResponse(error_code=35), 3, 5))
    assert body[:6] == b"\0\0\0\x05\0\x23"
    assert decode_response(body, ApiVersionsResponse, 3)[1].error_code == 35


def test_encodes_and_decodes_frames_of_all_versions() -> None:
    for each in api.APIS:
        for version in range(each.versions.min, each.versions.max + 1):
            request, response = each.request(), each.response()
            header, got = decode_request(frame(encode_request(request, version, 1, "c")))
            assert (header.api_key, header.api_version, got) == (each.key, version, request)
            body = frame(encode_response(response, version, 2))
            assert response_correlation_id(body) == 2
            assert decode_response(body, each.response, version) == (2, response)


@pytest.mark.parametrize("version", [8, 9])
def test_neither_copies_nor_joins_buffers_of_records(version: int) -> None:
    buffers = b"header", b"x" * 10_000, memoryview(bytearray(b"y" * 10_000))

    def parts(records: Any) -> list[bytes | bytearray | memoryview]:
        partition = PartitionProduceData(records=records)
        topic = TopicProduceData(name="t", partition_data=[partition])
        return encode_request(ProduceRequest(topic_data=[topic]), version, 1, "me")

    given = parts(buffers)
    assert b"".join(given) == b"".join(parts(b"".join(buffers)))
    assert given[1] is buffers[1]
    assert memoryview(given[2]).obj is buffers[2].obj


@pytest.mark.parametrize("records", [(b"x", "y"), ("y",), (b"x", None)])
def test_refuses_records_that_are_not_bytes(records: Any) -> None:
    partition = PartitionProduceData(records=records)
    topic = TopicProduceData(name="t", partition_data=[partition])
    with pytest.raises(EncodeError, match=r"partition_data\[0\].records must be bytes"):
        encode_request(ProduceRequest(topic_data=[topic]), 9, 1, "me")


def test_ignores_tagged_fields_of_header() -> None:
    body = MetadataRequest(topics=None).encode(12)
    head = struct.pack(">hhih", METADATA, 12, 9, -1) + b"\x01\x07\x02hi"
    assert decode_request(head + body)[0] == RequestHeader(METADATA, 12, 9, None)
    response = MetadataResponse().encode(12)
    head = struct.pack(">i", 9) + b"\x01\x07\x02hi"
    assert decode_response(head + response, MetadataResponse, 12)[0] == 9


def test_request_header_0_has_no_client_id() -> None:
    assert decode_request_header(struct.pack(">hhi", CONTROLLED_SHUTDOWN, 0, 4)) == (
        RequestHeader(CONTROLLED_SHUTDOWN, 0, 4, None),
        8,
    )


# -- invalid frames -------------------------------------------------------------------------------


def test_decodes_header_of_unknown_version() -> None:
    body = struct.pack(">hhih", API_VERSIONS, 9, 4, 2) + b"me" + b"\0" + b"whatever"
    assert decode_request_header(body)[0] == RequestHeader(API_VERSIONS, 9, 4, "me")
    with pytest.raises(UnsupportedVersionError, match="ApiVersions has no version 9, only 0-5"):
        decode_request(body)


def test_refuses_unknown_or_removed_api() -> None:
    with pytest.raises(UnsupportedVersionError, match="999"):
        decode_request(struct.pack(">hhih", 999, 0, 4, -1))
    with pytest.raises(UnsupportedVersionError, match="ControlledShutdown"):
        decode_request(struct.pack(">hhi", CONTROLLED_SHUTDOWN, 0, 4))


def test_refuses_request_of_unreleased_version() -> None:
    body = frame(encode_request(InitProducerIdRequest(), 6, 1, None))
    with pytest.raises(UnsupportedVersionError, match="InitProducerId has no version 6, only 0-5"):
        decode_request(body)


@pytest.mark.parametrize("version", [8, 13])
def test_refuses_truncated_frames_and_responses_with_extra_bytes(version: int) -> None:
    request = frame(encode_request(MetadataRequest(topics=None), version, 1, "client"))
    response = frame(encode_response(MetadataResponse(cluster_id="c"), version, 1))
    for cut in range(len(request)):
        with pytest.raises(DecodeError):
            decode_request(request[:cut])
    for cut in range(len(response)):
        with pytest.raises(DecodeError):
            decode_response(response[:cut], MetadataResponse, version)
    assert decode_request(request + b"\0") == decode_request(request)  # as Kafka's brokers do
    with pytest.raises(DecodeError, match="1 bytes after"):
        decode_response(response + b"\0", MetadataResponse, version)


def test_refuses_client_id_that_cannot_be_encoded() -> None:
    with pytest.raises(EncodeError, match="client_id has 40000 bytes"):
        encode_request(ApiVersionsRequest(), 0, 1, "x" * 40_000)
    with pytest.raises(EncodeError, match="client_id"):
        encode_request(ApiVersionsRequest(), 0, 1, "\ud800")
