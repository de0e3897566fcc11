"""Tests that no response takes more than 64 times its bytes, with the worst for each decoder.

A message takes most memory per byte if its elements are smallest. So each array of each message is
filled with elements that are empty or have only unknown tagged fields. Fuzzing is unlikely to find
these messages.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest

from benchmarks.wire.messages import metadata
from fuzz.codecs import DECODERS
from fuzz.measure import memory_peak
from fuzz.oracle import MEMORY_LIMIT, MESSAGE_FACTOR, allowed_memory
from fuzz.responses import TARGET
from kafka_async.errors import DecodeError
from kafka_async.protocol.messages.list_config_resources import ListConfigResourcesResponse
from kafka_async.protocol.messages.metadata import MetadataResponse
from kafka_async.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from kafka_async.protocol.spec import STRING, Array, Field, FieldType, Fixed, Sized, Struct
from kafka_async.protocol.wire import UVARINT
from tests.rows import row

if TYPE_CHECKING:
    from kafka_async.protocol.message import Message

pytestmark = pytest.mark.one_kernel  # both kernels make the same objects

NEWEST = list(dict(DECODERS).items())

MANY = 200
MOST_ARRAYS = 30
OVERHEAD = TARGET.overhead
"""Bytes of memory that any message may take."""

UNKNOWN = tuple((tag, b"") for tag in range(100, 130))
"""Tagged fields of three bytes that no schema knows."""


def filled(kind: type[Struct], version: int, text: str = "") -> Any:
    """Return a structure with the text in each string and one element in each array.

    Without a text it has the shortest encoding: arrays are empty, and fields null where they can.
    """
    made = kind()
    for field in fields(kind, version):
        null = not text and field.nullable.contains(version)
        setattr(made, field.name, None if null else filled_value(field.type, version, text))
    return made


def filled_value(kind: FieldType, version: int, text: str = "") -> object:
    if isinstance(kind, Fixed):
        return kind.zero
    if isinstance(kind, Sized):
        return text if kind is STRING else text.encode()
    if isinstance(kind, Array):
        return [filled_value(kind.element, version, text)] if text else []
    return filled(kind, version, text)


def fields(kind: type[Struct], version: int) -> Iterator[Field]:
    return (each for each in kind.SPEC.fields if each.versions.contains(version))


def greedy(kind: type[Struct], version: int, many: int) -> Iterator[tuple[str, Any]]:
    """Yield the structure with many elements in one of its arrays or nested arrays, by path."""
    for field in fields(kind, version):
        for path, value in greedy_values(field.type, version, many):
            made = filled(kind, version)
            setattr(made, field.name, value)
            yield f"{field.name}{path}", made


def greedy_values(kind: FieldType, version: int, many: int) -> Iterator[tuple[str, Any]]:
    if isinstance(kind, Fixed | Sized):
        return
    if not isinstance(kind, Array):
        yield from ((f".{path}", value) for path, value in greedy(kind, version, many))
        return
    element = kind.element
    yield f"[{many}]", [filled_value(element, version)] * many
    if not isinstance(element, Fixed | Sized):
        for path, value in greedy(element, version, many):
            yield f"[1].{path}", [value]
        for path, value in greedy(element, version, 1):
            yield f"[{many}].{path}", [value] * many


def flexible(message: type[Message], version: int) -> bool:
    return message.FLEXIBLE_FROM is not None and version >= message.FLEXIBLE_FROM


def with_tags(value: Any, version: int, tags: int) -> Any:
    """Set unknown tagged fields in every structure in the arrays of a structure; return it."""
    for field in fields(cast("type[Struct]", type(value)), version):
        held = getattr(value, field.name)
        for item in cast("list[object]", held if isinstance(held, list) else [held]):
            if isinstance(item, Struct):
                item.unknown_tagged_fields = UNKNOWN[:tags]
                with_tags(item, version, tags)
    return value


def peak_of(message: type[Message], version: int, raw: bytes) -> int:
    """Return the peak bytes of memory of decoding a message, also if it is rejected."""

    def decode() -> object:
        try:
            return message.decode(raw, version)
        except DecodeError:
            return None

    decode()  # the first use compiles the decoder
    tracemalloc.start()
    try:
        return memory_peak(decode)
    finally:
        tracemalloc.stop()


def greedy_cases(message: type[Message], newest: int) -> Iterator[tuple[int, int, int]]:
    """Yield versions of a message, sizes of its arrays, and numbers of tagged fields in them."""
    yield newest, MANY, 0
    if flexible(message, newest):
        first = cast("int", message.FLEXIBLE_FROM)
        if first != newest and (message, first) in DECODERS:
            yield first, MANY, 0
        yield newest, MANY // 4, 1
        yield newest, MANY // 8, 30


def with_few_arrays_first() -> Iterator[Any]:
    """Yield every message; those with the most arrays take seconds and are slow tests."""
    for message, newest in NEWEST:
        large = len(list(greedy(message, newest, 1))) > MOST_ARRAYS
        marks = pytest.mark.slow if large else ()
        yield pytest.param(message, newest, marks=marks, id=message.__name__)


@pytest.mark.parametrize(("message", "newest"), list(with_few_arrays_first()))
def test_worst_messages_stay_within_the_memory_factor(message: type[Message], newest: int) -> None:
    for version, many, tags in greedy_cases(message, newest):
        with row(version, many, tags):
            check_factor(message, version, many, tags)


def check_factor(message: type[Message], version: int, many: int, tags: int) -> None:
    written = {
        path: with_tags(made, version, tags).encode(version)
        for path, made in greedy(message, version, many)
    }
    peaks = {path: peak_of(message, version, raw) for path, raw in written.items()}
    costs = {path: (peaks[path] - OVERHEAD) / len(raw) for path, raw in written.items()}
    assert {path: cost for path, cost in costs.items() if cost > MESSAGE_FACTOR} == {}
    arrays = [each for each in fields(message, version) if isinstance(each.type, Array)]
    assert len(costs) >= len(arrays)


RESOURCES = ListConfigResourcesResponse


def resources(count: int, element: bytes) -> bytes:
    """Encode a response of version 0 with `count` resources."""
    return bytes(6) + UVARINT[count + 1] + element * count + b"\0"


@pytest.mark.parametrize(
    ("count", "element"),
    [
        (30_000, b"\x01\x01\x05\0"),
        (1000, b"\x03\xd0\xb0\0"),
        (60_000, b"\x03\xd0\xb0\0"),
        pytest.param(
            250_000,
            b"\x01\x1e" + b"".join(bytes([tag, 0]) for tag in range(30)),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["a tag each", "1,000 short names", "60,000 short names", "14 MiB of tags"],
)
def test_hostile_message_stays_within_the_memory_limit(count: int, element: bytes) -> None:
    raw = resources(count, element)
    assert peak_of(RESOURCES, 0, raw) <= allowed_memory(len(raw), OVERHEAD, MESSAGE_FACTOR)


@pytest.mark.slow
def test_no_message_takes_more_than_256_mib() -> None:
    tags = b"".join(UVARINT[200 + tag] + b"\x03tag" for tag in range(7))
    raw = resources(200_000, b"\x0dclient-names\x07" + tags)
    assert len(raw) * MESSAGE_FACTOR > MEMORY_LIMIT
    with pytest.raises(DecodeError, match="more memory than a message of that size may"):
        RESOURCES.decode(raw, 0)
    assert peak_of(RESOURCES, 0, raw) <= MEMORY_LIMIT


def test_too_large_message_is_rejected_before_it_allocates() -> None:
    raw = resources(200_000, b"\x01\0")
    with pytest.raises(DecodeError, match="more memory than a message of that size may"):
        RESOURCES.decode(raw, 0)
    assert peak_of(RESOURCES, 0, raw) < len(raw)


# -- valid messages -------------------------------------------------------------------------------


def test_accepts_messages_with_short_names() -> None:
    """A name of one byte takes the most memory per byte."""
    for message, version in NEWEST:
        sent = filled(message, version, "n")
        for field in fields(message, version):
            if isinstance(field.type, Array):
                elements = [filled_value(field.type.element, version, "n")] * 2000
                setattr(sent, field.name, elements)
        with row(message, version):
            assert message.decode(sent.encode(version), version)


@pytest.mark.parametrize("element", [b"\x03ab\0", b"\x02a\0"])
def test_accepts_100000_very_short_names(element: bytes) -> None:
    read = RESOURCES.decode(resources(100_000, element), 0)
    assert len(read.config_resources) == 100_000


def test_a_million_small_numbers_are_shared() -> None:
    batch = AcknowledgementBatch(acknowledge_types=[-100] * 1_000_000)
    topic = AcknowledgeTopic(partitions=[AcknowledgePartition(acknowledgement_batches=[batch])])
    raw = ShareAcknowledgeRequest(topics=[topic]).encode(1)
    assert ShareAcknowledgeRequest.decode(raw, 1).topics == [topic]
    assert peak_of(ShareAcknowledgeRequest, 1, raw) < 20 * len(raw)


def test_accepts_a_large_valid_message() -> None:
    sent = metadata(3000)
    assert MetadataResponse.decode(sent.encode(13), 13) == sent
