"""The compiled codec decides on all that is sound, as plain Python does, and on nothing else."""

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

EVERY = pytest.mark.parametrize(("message", "version"), all_versions(), ids=label)
MUTATIONS = 6
ODD_BYTES = (0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF)


@pytest.fixture(scope="module")
def module() -> Any:
    """The compiled codec, whichever kernel the run has."""
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
    """The bytes cut somewhere, or with some of them replaced by others."""
    if rng.random() < 0.2:
        return body[: rng.randrange(len(body) + 1)]
    changed = bytearray(body)
    for _ in range(rng.choice((1, 1, 2, 4)) if body else 0):
        changed[rng.randrange(len(body))] = rng.choice((*ODD_BYTES, rng.randrange(256)))
    return bytes(changed)


# -- what is sound --------------------------------------------------------------------------------


@EVERY
def test_it_reads_what_plain_python_reads(
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


@EVERY
def test_it_writes_what_plain_python_writes(
    layout: Layout, message: type[Message], version: int, seeded: int
) -> None:
    sent = sample(message, version, seeded, plausible=True)
    assert whole(layout.encode(sent)) == whole(compiler.plain_encoder(message, version)(sent))
    assert whole(layout.encode(message())) == message().encode(version)


@EVERY
def test_on_changed_bytes_it_is_never_less_strict(
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


def test_large_records_are_handed_over_uncopied_and_read_as_views(module: Any) -> None:
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


def test_a_default_structure_is_a_new_one_each_time(module: Any) -> None:
    partitions = [PartitionData(), PartitionData()]
    sent = FetchResponse(responses=[FetchableTopicResponse(partitions=partitions)])
    layout = layout_of(module.Layout, FetchResponse, 11)
    read: Any = layout.decode(whole(layout.encode(sent)), 0)[0]
    first, second = read.responses[0].partitions
    assert first.snapshot_id == second.snapshot_id
    assert first.snapshot_id is not second.snapshot_id


def test_nothing_is_leaked(module: Any) -> None:
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


# -- what it leaves to plain Python ---------------------------------------------------------------

BROKER = MetadataResponseBroker(node_id=1, host="h", port=2)
TOPIC = MetadataResponseTopic(name="t", topic_id=uuid.UUID(int=1))


class Text(str):
    """A string of another class."""


class Hosts(MetadataRequest):
    """A request with a property in the place of a slot."""

    @property
    def topics(self) -> None:  # type: ignore[override]
        """Every topic, whatever anybody sets."""

    @topics.setter
    def topics(self, value: object) -> None:
        pass


class Constant(MetadataRequest):
    """A request with a constant in the place of a slot."""

    include_topic_authorized_operations = True


class Loud(MetadataRequest):
    """A request that gives its attributes in a way of its own."""

    def __getattribute__(self, name: str) -> Any:
        return None if name == "topics" else super().__getattribute__(name)


class Broker(MetadataResponseBroker):
    """A broker of another class."""


def fetched(partition: PartitionData) -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])


TAGGED = SnapshotId()
TAGGED.unknown_tagged_fields = ((7, b"seven"),)

UNDECIDED_VALUES: list[tuple[Message, int, type[Exception] | None]] = [
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
    ("value", "version", "refused"), UNDECIDED_VALUES, ids=lambda each: repr(each)[:60]
)
def test_an_odd_value_is_left_to_plain_python(
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


def test_tagged_fields_that_nobody_knows_are_left_to_plain_python(module: Any) -> None:
    value = MetadataRequest(topics=None)
    value.unknown_tagged_fields = ((5, b"five"),)
    with pytest.raises(module.FallbackRequired):
        layout_of(module.Layout, MetadataRequest, 12).encode(value)
    assert MetadataRequest.decode(value.encode(12), 12) == value


def test_a_deleted_attribute_is_left_to_plain_python(module: Any) -> None:
    value = MetadataRequest(topics=None)
    del value.topics
    with pytest.raises(module.FallbackRequired):
        layout_of(module.Layout, MetadataRequest, 12).encode(value)
    with pytest.raises(AttributeError):
        value.encode(12)


@pytest.mark.parametrize("derived", [Hosts, Loud])
def test_a_class_that_has_attributes_its_own_way_is_left_to_plain_python(
    derived: type[MetadataRequest],
) -> None:
    sent = derived(topics=[MetadataRequestTopic(name="t")])
    assert sent.encode(12) == MetadataRequest(topics=None).encode(12)
    assert derived.decode(sent.encode(12), 12).topics is None
    assert compiler.encoder(derived, 12) is compiler.plain_encoder(derived, 12)
    assert compiler.decoder(derived, 12) is compiler.plain_decoder(derived, 12)


def test_a_class_with_a_constant_for_a_slot_is_left_to_plain_python() -> None:
    sent = object.__new__(Constant)
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

ODD_FRAMES: dict[str, tuple[tuple[type[Message], int], bytes]] = {
    "nothing": (FLEXIBLE, b""),
    "bytes longer than the rest": (FLEXIBLE, b"\x05abc\0"),
    "null where none is allowed": (FLEXIBLE, b"\0\0"),
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
    "a tagged field of another size": ((FetchRequest, 12), CLUSTER[:-6] + b"\x01\0\x04\x03abc"),
    "a structure neither there nor null": (
        (ConsumerGroupHeartbeatResponse, 0),
        ASSIGNMENT[:-4] + b"\x02\x01\0\0",
    ),
    "an array longer than the rest": (OFFSETS, bytes(4) + b"\0\0\0\x02" + bytes(6)),
    "an array of -1 where none is allowed": (OFFSETS, bytes(4) + b"\xff\xff\xff\xff"),
    "an array of -2": (OFFSETS, bytes(4) + b"\xff\xff\xff\xfe"),
    "an array of 1,000,001": (
        (MetadataResponse, 0),
        struct.pack(">i", 1_000_001) + bytes(10 * 1_000_001 + 4),
    ),
    "a string that is no UTF-8": (OFFSETS, bytes(4) + b"\0\0\0\x01\0\x01\xff\0\0\0\0"),
    "a compact string of 32,768": (
        (JoinGroupResponse, 9),
        bytes(12) + UVARINT[0x8001] + b"x" * 0x8000 + b"\0\x01\x01\0",
    ),
}


def test_nothing_is_made_for_elements_that_are_not_there(module: Any) -> None:
    layout = layout_of(module.Layout, ListOffsetsResponse, 4)
    frame = bytes(4) + struct.pack(">i", 1_000_000) + bytes(1000)
    tracemalloc.start()
    try:
        with pytest.raises(module.FallbackRequired):
            layout.decode(frame, 0)
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ODD_FRAMES)
def test_odd_bytes_are_left_to_plain_python(module: Any, name: str) -> None:
    (message, version), frame = ODD_FRAMES[name]
    layout = layout_of(module.Layout, message, version)
    with pytest.raises(ValueError):  # noqa: PT011
        layout.decode(frame, 0)
    with pytest.raises(DecodeError):
        message.decode(frame, version)


REQUEST = memoryview(bytes(6) + b"\x01\0\0\0" * 2)[3:-3]
"""At any position, before and after it as well, a message begins or a varint that would do."""


@pytest.mark.parametrize("position", [-3, -1, len(REQUEST) + 1])
def test_a_position_outside_is_left_to_plain_python(module: Any, position: int) -> None:
    with pytest.raises(module.FallbackRequired):
        layout_of(module.Layout, MetadataRequest, 12).decode(REQUEST, position)


@pytest.mark.parametrize("position", [2**63, -(2**63) - 1])
def test_a_position_beyond_64_bits_is_no_message(position: int) -> None:
    with pytest.raises(DecodeError):
        MetadataRequest.decode_from(REQUEST, position, 12)


def test_a_sound_frame_of_each_odd_one_is_decided_on(module: Any) -> None:
    for value, version in (
        (SaslAuthenticateRequest(auth_bytes=b"abc"), 2),
        (ListOffsetsResponse(), 4),
        (JoinGroupResponse(members=[JoinGroupResponseMember(member_id="x" * 0x7FFF)]), 9),
        (MetadataResponse(brokers=[BROKER], topics=[TOPIC]), 13),
    ):
        layout = layout_of(module.Layout, type(value), version)
        assert layout.decode(whole(layout.encode(value)), 0)[0] == value


def test_the_kernel_says_whether_messages_walk_a_table() -> None:
    plain = compiler.decoder(MetadataRequest, 12) is compiler.plain_decoder(MetadataRequest, 12)
    assert plain == (IMPLEMENTATION == "python")
