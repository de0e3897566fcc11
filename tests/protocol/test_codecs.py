"""Encoding and decoding of every message in every version; refusal of invalid bytes."""

from __future__ import annotations

import random
import struct
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_async.errors import DecodeError
from kafka_async.protocol.header import encode_response
from kafka_async.protocol.message import coalesce
from kafka_async.protocol.messages.api_versions import ApiVersionsResponse
from kafka_async.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from kafka_async.protocol.messages.end_txn_marker import EndTxnMarker
from kafka_async.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kafka_async.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest
from kafka_async.protocol.messages.metadata import MetadataRequest
from kafka_async.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from tests.protocol.samples import all_classes, all_versions, class_of, label, sample, versions

if TYPE_CHECKING:
    from kafka_async.protocol.message import Message

ALL_VERSIONS = pytest.mark.parametrize(("message", "version"), all_versions(), ids=label)
ALL_CLASSES = pytest.mark.parametrize("message", all_classes(), ids=label)

TRUNCATED_EVERYWHERE = [
    (class_of(name + kind), version)
    for name, versions in {
        "AddPartitionsToTxn": (3, 5),
        "ApiVersions": (0, 3, 4),
        "ConsumerGroupHeartbeat": (0, 1),
        "Fetch": (4, 11, 12, 18),
        "FindCoordinator": (0, 6),
        "JoinGroup": (0, 5, 9),
        "ListOffsets": (1, 11),
        "Metadata": (0, 8, 9, 13),
        "OffsetCommit": (2, 10),
        "OffsetFetch": (1, 10),
        "Produce": (3, 8, 9, 13),
        "SyncGroup": (0, 5),
    }.items()
    for version in versions
    for kind in ("Request", "Response")
]


@ALL_VERSIONS
def test_decodes_encoded_message(message: type[Message], version: int, seeded: int) -> None:
    for seed in (seeded, seeded + 1):
        sent = sample(message, version, seed)
        body = sent.encode(version)
        assert message.decode(body, version) == sent
        assert message.decode(memoryview(bytearray(body)), version) == sent
        assert b"".join(sent.encode_parts(version)) == body


@ALL_CLASSES
def test_decodes_message_in_middle_of_buffer(message: type[Message], seeded: int) -> None:
    for version in versions(message):
        sent = sample(message, version, seeded)
        body = sent.encode(version)
        padded = b"before" + body + b"after"
        assert message.decode_from(padded, 6, version) == (sent, 6 + len(body))


@ALL_CLASSES
def test_decodes_unset_fields_as_defaults(message: type[Message]) -> None:
    for version in versions(message):
        assert message.decode(message().encode(version), version) == message()


@ALL_CLASSES
def test_converts_to_dictionary_and_back(message: type[Message], seeded: int) -> None:
    for version in versions(message):
        sent = sample(message, version, seeded)
        assert message.from_dict(sent.to_dict()) == sent


@ALL_VERSIONS
def test_refuses_truncated_message_and_extra_bytes(
    message: type[Message], version: int, seeded: int
) -> None:
    body = sample(message, version, seeded).encode(version)
    cuts = random.Random(seeded).sample(range(len(body)), min(8, len(body)))
    for cut in cuts:
        with pytest.raises(DecodeError, match=message.__name__):
            message.decode(body[:cut], version)
    with pytest.raises(DecodeError, match="after the message"):
        message.decode(body + b"\0", version)


@pytest.mark.parametrize(("message", "version"), TRUNCATED_EVERYWHERE, ids=label)
def test_refuses_message_truncated_at_any_byte(message: type[Message], version: int) -> None:
    body = sample(message, version, "cut").encode(version)
    inside_records = range(2_000, len(body) - 500)
    for cut in range(len(body)):
        if cut not in inside_records:
            with pytest.raises(DecodeError):
                message.decode(body[:cut], version)


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(all_versions()), st.binary(max_size=120))
def test_random_bytes_are_message_or_decode_error(
    which: tuple[type[Message], int], junk: bytes
) -> None:
    message, version = which
    try:
        read = message.decode(junk, version)
    except DecodeError:
        return
    # Booleans and varints have several encodings, so the bytes may differ, but not the values.
    assert message.decode(read.encode(version), version) == read or has_nan(read)


def has_nan(message: Message) -> bool:
    return "nan" in repr(message)


@ALL_CLASSES
def test_corrupt_bytes_are_message_or_decode_error(message: type[Message], seeded: int) -> None:
    for version in versions(message):
        corrupt(message, version, seeded)


def corrupt(message: type[Message], version: int, seeded: int) -> None:
    rng = random.Random(seeded)
    body = sample(message, version, seeded).encode(version)
    for _ in range(8):
        corrupted = bytearray(body or b"\0")
        for _ in range(rng.randrange(1, 4)):
            corrupted[rng.randrange(len(corrupted))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        try:
            message.decode(bytes(corrupted), version)
        except DecodeError:
            continue


# -- invalid messages -----------------------------------------------------------------------------


def refuse(message: type[Message], version: int, text: str, *parts: bytes) -> None:
    with pytest.raises(DecodeError, match=text) as caught:
        message.decode(b"".join(parts), version)
    assert f"{message.__name__} version {version}" in str(caught.value)


def test_refuses_null_in_version_without_null() -> None:
    refuse(FindCoordinatorRequest, 0, "key is null", b"\xff\xff")
    refuse(FindCoordinatorRequest, 3, "key is null", b"\0\0\0")
    refuse(MetadataRequest, 0, "topics is null", b"\xff\xff\xff\xff")


def test_refuses_negative_length_other_than_null() -> None:
    refuse(MetadataRequest, 1, "topics claims -2", b"\xff\xff\xff\xfe")
    refuse(FindCoordinatorRequest, 0, "key claims -3", b"\xff\xfd")


def test_refuses_string_longer_than_kafka_allows() -> None:
    refuse(FindCoordinatorRequest, 3, "key claims 32768", b"\x81\x80\x02" + b"x" * 32768 + b"\0\0")


def test_refuses_string_that_is_not_utf8() -> None:
    refuse(FindCoordinatorRequest, 0, "utf-8", b"\0\x01\xff")


def test_refuses_varint_of_more_than_32_bits() -> None:
    refuse(FindCoordinatorRequest, 3, "32 bits", b"\xff\xff\xff\xff\x7f")
    refuse(FindCoordinatorRequest, 3, "32 bits", b"\x80\x80\x80\x80\x80\x00")


def test_refuses_invalid_marker_of_nullable_structure() -> None:
    response = ConsumerGroupHeartbeatResponse(member_id="m")
    body = bytearray(response.encode(0))
    assert body[-2] == 0xFF
    body[-2] = 5
    refuse(ConsumerGroupHeartbeatResponse, 0, "assignment begins with 5", bytes(body))


def test_refuses_tagged_fields_that_do_not_ascend() -> None:
    response = ApiVersionsResponse(finalized_features_epoch=7, zk_migration_ready=True)
    epoch, ready = b"\x01\x08" + struct.pack(">q", 7), b"\x03\x01\x01"
    body = response.encode(3)
    assert body.endswith(b"\x02" + epoch + ready)
    head = body.removesuffix(epoch + ready)
    refuse(ApiVersionsResponse, 3, "tag 1 comes after tag 3", head, ready, epoch)
    refuse(ApiVersionsResponse, 3, "tag 1 comes after tag 1", head, epoch, epoch)


def test_refuses_tagged_field_of_wrong_size() -> None:
    body = ApiVersionsResponse(finalized_features_epoch=7).encode(3)
    assert body.endswith(b"\x01\x01\x08" + struct.pack(">q", 7))
    refuse(ApiVersionsResponse, 3, "tag 1", body.replace(b"\x01\x01\x08", b"\x01\x01\x07"))
    refuse(ApiVersionsResponse, 3, "tag 1", body.replace(b"\x01\x01\x08", b"\x01\x01\x09") + b"\0")


# -- limits of memory -----------------------------------------------------------------------------


def test_refuses_array_longer_than_frame() -> None:
    refuse(MetadataRequest, 1, "topics claims 1000000 ", struct.pack(">i", 1_000_000) + b"\0" * 100)


def test_refuses_array_of_more_than_a_million_elements() -> None:
    def request(count: int) -> bytes:
        batch = AcknowledgementBatch(acknowledge_types=[1] * count)
        partition = AcknowledgePartition(acknowledgement_batches=[batch])
        topic = AcknowledgeTopic(partitions=[partition])
        return ShareAcknowledgeRequest(topics=[topic]).encode(1)

    assert ShareAcknowledgeRequest.decode(request(1_000_000), 1)
    refuse(ShareAcknowledgeRequest, 1, "acknowledge_types claims 1000001", request(1_000_001))


def test_refuses_more_than_ten_thousand_tagged_fields() -> None:
    def request(count: int) -> bytes:
        made = HeartbeatRequest()
        made.unknown_tagged_fields = tuple((tag, b"four") for tag in range(count))
        return made.encode(4)

    assert len(HeartbeatRequest.decode(request(10_000), 4).unknown_tagged_fields) == 10_000
    refuse(HeartbeatRequest, 4, "10001 tagged fields", request(10_001))


@pytest.mark.parametrize("version", [4, 12])
def test_huge_counts_allocate_no_memory(version: int) -> None:
    malicious = b"\0" * 10 + b"\x7f\xff\xff\xff" * 8
    FetchResponse().encode(version)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            FetchResponse.decode(malicious, version)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


# -- copies ---------------------------------------------------------------------------------------


def fetch_response(records: bytes) -> FetchResponse:
    partition = PartitionData(partition_index=1, records=records)
    return FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])


def test_encodes_records_without_copy_and_decodes_them_as_view() -> None:
    records = random.Random(1).randbytes(100_000)
    response = fetch_response(records)
    parts = coalesce(response.encode_parts(16))
    assert len(parts) == 3
    assert parts[1] is records

    frame = b"".join(parts)
    view = FetchResponse.decode(frame, 16).responses[0].partitions[0].records
    assert isinstance(view, memoryview)
    assert view.obj is frame
    assert view == records


def test_joins_small_records_with_adjacent_buffers() -> None:
    assert len(encode_response(fetch_response(b"tiny"), 16, 1)) == 1


def test_encodes_unknown_tagged_fields_again() -> None:
    made = HeartbeatRequest(group_id="g")
    made.unknown_tagged_fields = ((900, b"later"), (5, b""))
    body = made.encode(4)
    read = HeartbeatRequest.decode(body, 4)
    assert read.unknown_tagged_fields == ((5, b""), (900, b"later"))
    assert read.encode(4) == body


def test_encodes_and_decodes_empty_message() -> None:
    class_of_nothing = class_of("ApiVersionsRequest")
    assert class_of_nothing().encode(0) == b""
    assert class_of_nothing.decode(b"", 0) == class_of_nothing()


def test_encodes_message_of_one_field() -> None:
    assert EndTxnMarker(coordinator_epoch=7).encode(0) == b"\0\0\0\x07"
