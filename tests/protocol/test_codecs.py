"""Encoding and decoding of every message in every version; refusal of invalid bytes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from fuzz import responses
from kafka_async.errors import DecodeError
from kafka_async.protocol.header import encode_response
from kafka_async.protocol.message import coalesce
from kafka_async.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest
from tests.protocol.samples import (
    MUTATIONS,
    all_classes,
    all_versions,
    label,
    mutant,
    sample,
    versions,
)

if TYPE_CHECKING:
    from kafka_async.protocol.message import Message

ALL_VERSIONS = pytest.mark.parametrize(("message", "version"), all_versions(), ids=label)
ALL_CLASSES = pytest.mark.parametrize("message", all_classes(), ids=label)


@ALL_VERSIONS
def test_decodes_encoded_message(message: type[Message], version: int, seeded: int) -> None:
    for seed in (seeded, seeded + 1):
        sent = sample(message, version, seed)
        body = sent.encode(version)
        assert message.decode(body, version) == sent
        assert message.decode(memoryview(bytearray(body)), version) == sent
        assert b"".join(sent.encode_parts(version)) == body


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


@ALL_VERSIONS
def test_corrupt_message_is_refused_or_round_trips(
    message: type[Message], version: int, seeded: int
) -> None:
    body = sample(message, version, seeded).encode(version)
    rng = random.Random(f"{seeded} {message.__name__} {version}")
    for _ in range(MUTATIONS):
        responses.check(message, version, mutant(body, rng))


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
