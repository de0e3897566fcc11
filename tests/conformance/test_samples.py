"""Random messages include empty, extreme and large values, and all planes of Unicode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from kafka_async.protocol.messages.describe_client_quotas import DescribeClientQuotasResponse
from kafka_async.protocol.messages.fetch import FetchResponse
from kafka_async.protocol.messages.leave_group import LeaveGroupRequest
from kafka_async.protocol.messages.list_offsets import ListOffsetsRequest
from kafka_async.protocol.messages.metadata import MetadataResponse
from kafka_async.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kafka_async.protocol.messages.produce import ProduceRequest
from kafka_async.protocol.messages.share_fetch import ShareFetchResponse
from kafka_async.protocol.spec import Struct
from kafka_async.protocol.wire import MAX_STRING
from tests.protocol.samples import label
from tools.conformance.samples import all_versions, sample, versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka_async.protocol.message import Message

COUNT = 200
"""Messages per version, as in `make conformance`."""

SEED = 1
"""Fixed, so that the tests are deterministic; nearly all seeds would pass."""


def parts(value: Any) -> Iterator[Any]:
    """Yield a value and the values in it, if it is a structure or an array."""
    yield value
    if isinstance(value, Struct):
        for field in value.SPEC.fields:
            yield from parts(getattr(value, field.name))
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from parts(item)


def values(message: type[Message], version: int, **options: bool) -> list[Any]:
    """Return every value in many random messages."""
    made = [sample(message, version, f"{SEED} {n}", **options) for n in range(COUNT)]
    return [value for each in made for value in parts(each)]


def test_same_seed_makes_same_message(seeded: int) -> None:
    for message, version in all_versions()[::5]:
        assert sample(message, version, seeded) == sample(message, version, seeded)
    assert sample(FetchResponse, 18, 1) != sample(FetchResponse, 18, 2)


def test_numbers_include_limits() -> None:
    found = {value for value in values(ListOffsetsRequest, 11) if type(value) is int}
    assert {-(2**63), 2**63 - 1, -(2**31), 2**31 - 1, -1, 0, 1} <= found


def test_arrays_include_null_empty_and_long_ones() -> None:
    groups = values(OffsetFetchRequest, 8)
    arrays = [each.topics for each in groups if isinstance(each, OffsetFetchRequestGroup)]
    sizes = {len(topics) for topics in arrays if topics is not None}
    assert None in arrays
    assert {0, 1, 2, 3} <= sizes
    assert sizes & {126, 127, 128, 300}


def test_strings_include_all_planes_and_maximum_size() -> None:
    found = [*values(MetadataResponse, 13), *values(LeaveGroupRequest, 5)]
    texts = [value for value in found if isinstance(value, str)]
    points = {ord(char) for text in texts for char in text}
    assert {point >> 16 for point in points} == set(range(17))
    assert not points & set(range(0xD800, 0xE000))
    assert {0, 0x7F, 0x80, 0x7FF, 0x800, 0xFFFF, 0x10000, 0x10FFFF} <= points
    sizes = {len(text.encode()) for text in texts}
    assert max(sizes) == MAX_STRING
    assert sizes & {16_382, 16_383, 16_384}


def test_unknown_tags_include_few_and_many() -> None:
    structs = [value for value in values(MetadataResponse, 13) if isinstance(value, Struct)]
    found = [struct.unknown_tagged_fields for struct in structs]
    counts = {len(tags) for tags in found}
    assert {0, 1, 2, 5} <= counts
    assert max(counts) > 127
    assert {100, 2**31 - 2} <= {tag for tags in found for tag, _ in tags}
    assert max(len(payload) for tags in found for _, payload in tags) > 16_000


@pytest.mark.parametrize("message", [ProduceRequest, FetchResponse, ShareFetchResponse], ids=label)
def test_messages_of_all_versions_have_records(message: type[Message]) -> None:
    for version in versions(message):
        made = [sample(message, version, f"{SEED} {n}") for n in range(40)]
        sizes = [
            sum(len(getattr(value, "records", None) or b"") for value in parts(each))
            for each in made
        ]
        assert sum(1 for size in sizes if size) > 10
        assert max(sizes) > 16_000


def test_plausible_message_has_no_unknown_tags_and_no_unknown_errors() -> None:
    for value in values(FetchResponse, 18, plausible=True):
        if isinstance(value, Struct):
            assert value.unknown_tagged_fields == ()
            assert -1 <= getattr(value, "error_code", 0) < 100


def test_makes_nan_only_on_request() -> None:
    message = DescribeClientQuotasResponse
    assert not [value for value in values(message, 1) if value != value]
    assert [value for value in values(message, 1, nan=True) if value != value]
