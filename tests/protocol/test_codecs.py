"""Encoding and decoding of every message in every version; refusal of invalid bytes."""

from __future__ import annotations

import random
from itertools import product
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
from tests.rows import row

if TYPE_CHECKING:
    from kafka_async.protocol.message import Message

ALL_CLASSES = pytest.mark.parametrize("message", all_classes(), ids=label)


@ALL_CLASSES
def test_decodes_encoded_message(message: type[Message], seeded: int) -> None:
    for version, seed in product(versions(message), (seeded, seeded + 1)):
        with row(version):
            sent = sample(message, version, seed)
            body = sent.encode(version)
            assert message.decode(body, version) == sent
            assert message.decode(memoryview(bytearray(body)), version) == sent
            assert b"".join(sent.encode_parts(version)) == body


def test_decodes_unset_fields_as_defaults() -> None:
    for message, version in all_versions():
        with row(message, version):
            assert message.decode(message().encode(version), version) == message()


def test_converts_to_dictionary_and_back(seeded: int) -> None:
    for message, version in all_versions():
        with row(message, version):
            sent = sample(message, version, seeded)
            assert message.from_dict(sent.to_dict()) == sent


@ALL_CLASSES
def test_refuses_corrupt_message_or_reads_one_that_round_trips(
    message: type[Message], seeded: int
) -> None:
    for version in versions(message):
        body = sample(message, version, seeded).encode(version)
        rng = random.Random(f"{seeded} {message.__name__} {version}")
        for cut in rng.sample(range(len(body)), min(8, len(body))):
            with row(version, cut), pytest.raises(DecodeError, match=message.__name__):
                message.decode(body[:cut], version)
        with row(version), pytest.raises(DecodeError, match="after the message"):
            message.decode(body + b"\0", version)
        for _ in range(MUTATIONS):
            corrupt = mutant(body, rng)
            with row(version, corrupt):
                responses.check(message, version, corrupt)


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
