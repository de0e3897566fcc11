"""The compiled codec handles valid messages like plain Python, and falls back on all others."""

from __future__ import annotations

import gc
import importlib
import os
import random
import struct
import sys
import tracemalloc
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.errors import DecodeError, EncodeError, UnsupportedVersionError
from kafka_async.kernel import IMPLEMENTATION
from kafka_async.protocol import compiler
from kafka_async.protocol.layouts import layout_of
from kafka_async.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
)
from kafka_async.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    SnapshotId,
)
from kafka_async.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kafka_async.protocol.messages.list_offsets import ListOffsetsResponse
from kafka_async.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from kafka_async.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kafka_async.protocol.wire import UVARINT
from tests.protocol.samples import all_versions, label, sample

if TYPE_CHECKING:
    from kafka_async.protocol.layouts import Layout
    from kafka_async.protocol.message import Message

ALL_VERSIONS = pytest.mark.parametrize(("message", "version"), all_versions(), ids=label)
MUTATIONS = 6
EDGE_BYTES = (0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF)


@pytest.fixture(scope="module")
def module() -> Any:
    """Import the compiled codec, with either kernel."""
    try:
        return importlib.import_module("kafka_async.kernel._ccodec")
    except ImportError as error:
        if os.environ.get("CI", "").lower() in {"true", "1"}:
            raise
        pytest.skip(f"the compiled codec is not built ({error})")


@pytest.fixture
def layout(module: Any, message: type[Message], version: int) -> Layout:
    return layout_of(module.Layout, message, version)


def whole(parts: list[Any]) -> bytes:
    return b"".join(parts)


def mutant(body: bytes, rng: random.Random) -> bytes:
    """Truncate the bytes, or replace some of them."""
    if rng.random() < 0.2:
        return body[: rng.randrange(len(body) + 1)]
    changed = bytearray(body)
    for _ in range(rng.choice((1, 1, 2, 4)) if body else 0):
        changed[rng.randrange(len(body))] = rng.choice((*EDGE_BYTES, rng.randrange(256)))
    return bytes(changed)


# -- valid messages -------------------------------------------------------------------------------


@ALL_VERSIONS
def test_decodes_like_plain_python(
    layout: Layout, message: type[Message], version: int, seeded: int
) -> None:
    body = sample(message, version, seeded).encode(version)
    plain = compiler.plain_decoder(message, version)
    padded = b"before" + body + b"after"
    for buffer in (padded, bytearray(padded), memoryview(padded)):
        read, end = layout.decode(buffer, 6)
        assert (read, end) == plain(buffer, 6)
        assert repr(read) == repr(plain(buffer, 6)[0])
        assert end == 6 + len(body)


@ALL_VERSIONS
def test_encodes_like_plain_python(
    layout: Layout, message: type[Message], version: int, seeded: int
) -> None:
    sent = sample(message, version, seeded, plausible=True)
    assert whole(layout.encode(sent)) == whole(compiler.plain_encoder(message, version)(sent))
    assert whole(layout.encode(message())) == message().encode(version)


@ALL_VERSIONS
def test_accepts_no_bytes_that_plain_python_refuses(
    module: Any, layout: Layout, message: type[Message], version: int, seeded: int
) -> None:
    body = sample(message, version, seeded).encode(version)
    rng = random.Random(f"{seeded} {message.__name__} {version}")
    for _ in range(MUTATIONS):
        changed = mutant(body, rng)
        try:
            read = layout.decode(changed, 0)
        except ValueError:
            with pytest.raises(DecodeError):
                message.decode(changed, version)
            continue
        assert repr(read) == repr(compiler.plain_decoder(message, version)(changed, 0))


def test_does_not_copy_large_records_and_decodes_views(module: Any) -> None:
    layout = layout_of(module.Layout, FetchResponse, 12)
    small, large = b"s" * 4095, bytearray(b"l" * 4096)
    partitions = [PartitionData(records=small), PartitionData(records=large)]
    sent = FetchResponse(responses=[FetchableTopicResponse(partitions=partitions)])
    parts = layout.encode(sent)
    assert [part is large for part in parts] == [False, True, False]
    frame = memoryview(whole(parts))
    read: Any = layout.decode(frame, 0)[0]
    first, second = (each.records for each in read.responses[0].partitions)
    assert (first, second) == (small, large)
    assert first.obj is frame.obj
    assert second.obj is frame.obj


def test_default_structures_are_not_shared(module: Any) -> None:
    partitions = [PartitionData(), PartitionData()]
    sent = FetchResponse(responses=[FetchableTopicResponse(partitions=partitions)])
    layout = layout_of(module.Layout, FetchResponse, 11)
    read: Any = layout.decode(whole(layout.encode(sent)), 0)[0]
    first, second = read.responses[0].partitions
    assert first.snapshot_id == second.snapshot_id
    assert first.snapshot_id is not second.snapshot_id


def test_leaks_no_memory(module: Any) -> None:
    message = sample(MetadataResponse, 13, "leak")
    layout = layout_of(module.Layout, MetadataResponse, 13)
    body = message.encode(13)
    message = layout.decode(body, 0)[0]

    def use() -> None:
        for _ in range(500):
            layout.decode(body, 0)
            for broken in (body[:-1], body[: len(body) // 2]):
                with pytest.raises(module.FallbackRequired):
                    layout.decode(broken, 0)
            layout_of(module.Layout, MetadataRequest, 12).encode(MetadataRequest(topics=None))
        gc.collect()

    use()
    before = sys.getallocatedblocks()
    use()
    assert sys.getallocatedblocks() - before < 250


# -- fallback to plain Python ---------------------------------------------------------------------

BROKER = MetadataResponseBroker(node_id=1, host="h", port=2)
TOPIC = MetadataResponseTopic(name="t", topic_id=uuid.UUID(int=1))


class Text(str):
    """Subclass of str."""


class WithProperty(MetadataRequest):
    """Request with a property instead of a slot."""

    @property
    def topics(self) -> None:  # type: ignore[override]
        """None, for all topics; setting it has no effect."""

    @topics.setter
    def topics(self, value: object) -> None:
        pass


class WithConstant(MetadataRequest):
    """Request with a constant instead of a slot."""

    include_topic_authorized_operations = True


class WithGetattribute(MetadataRequest):
    """Request that overrides `__getattribute__`."""

    def __getattribute__(self, name: str) -> Any:
        return None if name == "topics" else super().__getattribute__(name)


class Broker(MetadataResponseBroker):
    """Subclass of a structure."""


def fetched(partition: PartitionData) -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])


TAGGED = SnapshotId()
TAGGED.unknown_tagged_fields = ((7, b"seven"),)

FALLBACK_VALUES: list[tuple[Message, int, type[Exception] | None]] = [
    (MetadataResponse(throttle_time_ms=2**31), 13, EncodeError),
    (MetadataResponse(throttle_time_ms=2**70), 13, EncodeError),
    (MetadataResponse(throttle_time_ms="1"), 13, EncodeError),  # type: ignore[arg-type]
    (MetadataResponse(error_code=-(2**15) - 1), 13, EncodeError),
    (MetadataResponse(cluster_authorized_operations=1), 13, UnsupportedVersionError),
    (MetadataResponse(brokers=None), 13, EncodeError),  # type: ignore[arg-type]
    (MetadataResponse(brokers=[TOPIC]), 13, EncodeError),  # type: ignore[list-item]
    (MetadataResponse(brokers=[Broker()]), 13, None),
    (fetched(PartitionData(snapshot_id=EpochEndOffset())), 12, None),  # type: ignore[arg-type]
    (fetched(PartitionData(snapshot_id=TAGGED)), 12, None),
    (MetadataResponse(brokers={BROKER.node_id: BROKER}), 13, EncodeError),  # type: ignore[arg-type]
    (MetadataResponse(cluster_id="\ud800"), 13, EncodeError),
    (MetadataResponse(cluster_id="x" * 0x8000), 13, EncodeError),
    (MetadataResponse(cluster_id="x" * 0x8000), 8, EncodeError),
    (MetadataResponse(cluster_id=b"x"), 13, EncodeError),  # type: ignore[arg-type]
    (MetadataResponse(cluster_id=Text("x")), 13, None),
    (MetadataRequest(topics=[MetadataRequestTopic(topic_id="1")]), 13, EncodeError),  # type: ignore[arg-type]
    (MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 9, EncodeError),
    (MetadataRequest(allow_auto_topic_creation=2), 13, None),  # type: ignore[arg-type]
    (SaslAuthenticateRequest(auth_bytes="x"), 2, EncodeError),  # type: ignore[arg-type]
    (SaslAuthenticateRequest(auth_bytes=memoryview(b"abcd")[::2]), 2, EncodeError),  # type: ignore[arg-type]
    (SaslAuthenticateRequest(auth_bytes=memoryview(b"abcd").cast("H")), 2, None),  # type: ignore[arg-type]
    (SaslAuthenticateRequest(auth_bytes=memoryview(b"abcd").cast("B", (2, 2))), 2, None),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(
    ("value", "version", "refused"), FALLBACK_VALUES, ids=lambda each: repr(each)[:60]
)
def test_falls_back_on_unusual_value(
    module: Any, value: Message, version: int, refused: type[Exception] | None
) -> None:
    layout = layout_of(module.Layout, type(value), version)
    with pytest.raises((ValueError, BufferError)):
        layout.encode(value)
    if refused is None:
        plain = compiler.plain_encoder(type(value), version)
        assert value.encode(version) == whole(plain(value))
    else:
        with pytest.raises(refused):
            value.encode(version)


def test_falls_back_on_unknown_tagged_fields(module: Any) -> None:
    value = MetadataRequest(topics=None)
    value.unknown_tagged_fields = ((5, b"five"),)
    with pytest.raises(module.FallbackRequired):
        layout_of(module.Layout, MetadataRequest, 12).encode(value)
    assert MetadataRequest.decode(value.encode(12), 12) == value


def test_falls_back_on_deleted_attribute(module: Any) -> None:
    value = MetadataRequest(topics=None)
    del value.topics
    with pytest.raises(module.FallbackRequired):
        layout_of(module.Layout, MetadataRequest, 12).encode(value)
    with pytest.raises(AttributeError):
        value.encode(12)


@pytest.mark.parametrize("derived", [WithProperty, WithGetattribute])
def test_falls_back_on_class_with_other_attribute_access(
    derived: type[MetadataRequest],
) -> None:
    sent = derived(topics=[MetadataRequestTopic(name="t")])
    assert sent.encode(12) == MetadataRequest(topics=None).encode(12)
    assert derived.decode(sent.encode(12), 12).topics is None
    assert compiler.encoder(derived, 12) is compiler.plain_encoder(derived, 12)
    assert compiler.decoder(derived, 12) is compiler.plain_decoder(derived, 12)


def test_falls_back_on_class_with_constant_instead_of_slot() -> None:
    sent = object.__new__(WithConstant)
    sent.topics, sent.allow_auto_topic_creation = None, True
    sent.include_cluster_authorized_operations, sent.unknown_tagged_fields = False, ()
    same = MetadataRequest(topics=None, include_topic_authorized_operations=True)
    assert sent.encode(12) == same.encode(12)


FLEXIBLE = SaslAuthenticateRequest, 2
OFFSETS = ListOffsetsResponse, 4

CLUSTER = FetchRequest(cluster_id="ab").encode(12)
assert CLUSTER.endswith(b"\x01\0\x03\x03ab")
ASSIGNMENT = ConsumerGroupHeartbeatResponse(assignment=Assignment()).encode(0)
assert ASSIGNMENT.endswith(b"\x01\x01\0\0")

INVALID_FRAMES: dict[str, tuple[tuple[type[Message], int], bytes]] = {
    "nothing": (FLEXIBLE, b""),
    "bytes longer than the rest": (FLEXIBLE, b"\x05abc\0"),
    "null that is not allowed": (FLEXIBLE, b"\0\0"),
    "a varint of six bytes": (FLEXIBLE, b"\x80\x80\x80\x80\x80\0\0"),
    "a varint beyond 32 bits": (FLEXIBLE, b"\x81\x80\x80\x80\x10\0"),
    "more tagged fields than bytes": (FLEXIBLE, b"\x01\x02\x01\0"),
    "10,001 tagged fields": (
        FLEXIBLE,
        b"\x01" + UVARINT[10_001] + b"".join(UVARINT[tag] + b"\0" for tag in range(10_001)),
    ),
    "tags that do not ascend": (FLEXIBLE, b"\x01\x02\x05\0\x05\0"),
    "a tag of 32 bits": (FLEXIBLE, b"\x01\x01\x80\x80\x80\x80\x08\0"),
    "a tagged field longer than the rest": (FLEXIBLE, b"\x01\x01\x05\x02a"),
    "a tagged field of the wrong size": ((FetchRequest, 12), CLUSTER[:-6] + b"\x01\0\x04\x03abc"),
    "an invalid marker of a structure": (
        (ConsumerGroupHeartbeatResponse, 0),
        ASSIGNMENT[:-4] + b"\x02\x01\0\0",
    ),
    "an array longer than the rest": (OFFSETS, bytes(4) + b"\0\0\0\x02" + bytes(6)),
    "a null array that is not allowed": (OFFSETS, bytes(4) + b"\xff\xff\xff\xff"),
    "an array of -2": (OFFSETS, bytes(4) + b"\xff\xff\xff\xfe"),
    "an array of 1,000,001": (
        (MetadataResponse, 0),
        struct.pack(">i", 1_000_001) + bytes(10 * 1_000_001 + 4),
    ),
    "a string that is not UTF-8": (OFFSETS, bytes(4) + b"\0\0\0\x01\0\x01\xff\0\0\0\0"),
    "a compact string of 32,768": (
        (JoinGroupResponse, 9),
        bytes(12) + UVARINT[0x8001] + b"x" * 0x8000 + b"\0\x01\x01\0",
    ),
}


def test_allocates_nothing_for_missing_elements(module: Any) -> None:
    layout = layout_of(module.Layout, ListOffsetsResponse, 4)
    frame = bytes(4) + struct.pack(">i", 1_000_000) + bytes(1000)
    tracemalloc.start()
    try:
        with pytest.raises(module.FallbackRequired):
            layout.decode(frame, 0)
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", INVALID_FRAMES)
def test_falls_back_on_invalid_bytes(module: Any, name: str) -> None:
    (message, version), frame = INVALID_FRAMES[name]
    layout = layout_of(module.Layout, message, version)
    with pytest.raises(ValueError):  # noqa: PT011
        layout.decode(frame, 0)
    with pytest.raises(DecodeError):
        message.decode(frame, version)


REQUEST = memoryview(bytes(6) + b"\x01\0\0\0" * 2)[3:-3]
"""Valid at each position: a message, or a varint, begins there, and before and after it too."""


@pytest.mark.parametrize("position", [-3, -1, len(REQUEST) + 1])
def test_falls_back_on_position_outside_of_buffer(module: Any, position: int) -> None:
    with pytest.raises(module.FallbackRequired):
        layout_of(module.Layout, MetadataRequest, 12).decode(REQUEST, position)


@pytest.mark.parametrize("position", [2**63, -(2**63) - 1])
def test_refuses_position_beyond_64_bits(position: int) -> None:
    with pytest.raises(DecodeError):
        MetadataRequest.decode_from(REQUEST, position, 12)


def test_decodes_valid_frame_of_each_invalid_one(module: Any) -> None:
    for value, version in (
        (SaslAuthenticateRequest(auth_bytes=b"abc"), 2),
        (ListOffsetsResponse(), 4),
        (JoinGroupResponse(members=[JoinGroupResponseMember(member_id="x" * 0x7FFF)]), 9),
        (MetadataResponse(brokers=[BROKER], topics=[TOPIC]), 13),
    ):
        layout = layout_of(module.Layout, type(value), version)
        assert layout.decode(whole(layout.encode(value)), 0)[0] == value


def test_messages_use_compiled_codec_with_compiled_kernel() -> None:
    plain = compiler.decoder(MetadataRequest, 12) is compiler.plain_decoder(MetadataRequest, 12)
    assert plain == (IMPLEMENTATION == "python")
