"""The compiled codec handles valid messages like plain Python, and falls back on all others."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.errors import DecodeError, EncodeError, UnsupportedVersionError
from kafka_async.kernel import IMPLEMENTATION
from kafka_async.protocol import compiler
from kafka_async.protocol.layouts import layout_of
from kafka_async.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
    SnapshotId,
)
from kafka_async.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from kafka_async.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.hostile.measure import allocates_at_most
from tests.hostile.test_primitives import CASES
from tests.protocol.samples import all_classes, label, sample, versions
from tests.rows import row

if TYPE_CHECKING:
    from kafka_async.protocol.layouts import Layout
    from kafka_async.protocol.message import Message


@pytest.fixture(scope="module")
def module() -> Any:
    """Import the compiled codec, with either kernel."""
    try:
        return importlib.import_module("kafka_async.kernel._ccodec")
    except ImportError as error:
        if os.environ.get("CI", "").lower() in {"true", "1"}:
            raise
        pytest.skip(f"the compiled codec is not built ({error})")


def whole(parts: list[Any]) -> bytes:
    return b"".join(parts)


# -- valid messages -------------------------------------------------------------------------------


@pytest.mark.one_kernel
@pytest.mark.parametrize("message", all_classes(), ids=label)
def test_decodes_and_encodes_like_plain_python(
    module: Any, message: type[Message], seeded: int
) -> None:
    for version in versions(message):
        with row(version):
            layout = layout_of(module.Layout, message, version)
            check_decoding(layout, message, version, seeded)
            check_encoding(layout, message, version, seeded)


def check_decoding(layout: Layout, message: type[Message], version: int, seed: int) -> None:
    body = sample(message, version, seed).encode(version)
    plain = compiler.plain_decoder(message, version)
    padded = b"before" + body + b"after"
    expected = plain(padded, 6)
    for buffer in (padded, bytearray(padded), memoryview(padded)):
        read, end = layout.decode(buffer, 6)
        assert (read, end) == plain(buffer, 6)
        assert repr(read) == repr(expected[0])
        assert end == 6 + len(body)


def check_encoding(layout: Layout, message: type[Message], version: int, seed: int) -> None:
    sent = sample(message, version, seed, plausible=True)
    assert whole(layout.encode(sent)) == whole(compiler.plain_encoder(message, version)(sent))
    assert whole(layout.encode(message())) == message().encode(version)


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


@pytest.mark.one_kernel
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


def test_falls_back_on_unusual_value(module: Any) -> None:
    for value, version, refused in FALLBACK_VALUES:
        layout = layout_of(module.Layout, type(value), version)
        with row(value, version):
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
def test_falls_back_on_class_with_other_attribute_access(derived: type[MetadataRequest]) -> None:
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


def test_falls_back_on_invalid_bytes(module: Any) -> None:
    for name, case in CASES.items():
        if name == "bytes left over":
            continue
        layout = layout_of(module.Layout, case.message, case.version)
        limit = 64 * 1024 + 8 * len(case.data)
        with row(name), allocates_at_most(limit), pytest.raises(ValueError):  # noqa: PT011
            layout.decode(case.data, 0)


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


def test_messages_use_compiled_codec_with_compiled_kernel() -> None:
    plain = compiler.decoder(MetadataRequest, 12) is compiler.plain_decoder(MetadataRequest, 12)
    assert plain == (IMPLEMENTATION == "python")
