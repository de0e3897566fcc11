"""Messages as values: errors that name a field; equality, `repr` and dictionaries."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.errors import EncodeError, UnsupportedVersionError
from kafka_async.protocol.message import coalesce
from kafka_async.protocol.messages.alter_configs import AlterableConfig
from kafka_async.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kafka_async.protocol.messages.fetch import FetchRequest
from kafka_async.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest
from kafka_async.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafka_async.protocol.messages.list_offsets import ListOffsetsRequest
from kafka_async.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafka_async.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from kafka_async.protocol.messages.sasl_authenticate import SaslAuthenticateRequest

if TYPE_CHECKING:
    from kafka_async.protocol.message import Message

WRONG: Any = object()


def topic(**fields: Any) -> ProduceRequest:
    return ProduceRequest(topic_data=[TopicProduceData(**fields)])


@pytest.mark.parametrize(
    ("message", "version", "error"),
    [
        (ProduceRequest(acks=40_000), 3, "acks must be int16, not 40000"),
        (ProduceRequest(acks=WRONG), 9, "acks must be int16"),
        (topic(name=None), 3, r"topic_data\[0\].name must not be None"),
        (topic(name=b"bytes"), 9, r"topic_data\[0\].name must be str, not bytes"),
        (topic(name="\ud800"), 9, "lone surrogate"),
        (topic(name="x" * 40_000), 3, "name has 40000 bytes, 32767 are allowed"),
        (topic(name="x" * 40_000), 9, "name has 40000 bytes, 32767 are allowed"),
        (topic(topic_id="text"), 13, r"topic_id must be a UUID, not 'text'"),
        (topic(partition_data=None), 9, "partition_data must not be None"),
        (
            topic(partition_data=[1]),
            9,
            r"partition_data\[0\] must be PartitionProduceData, not int",
        ),
        (
            topic(partition_data=[PartitionProduceData(records=WRONG)]),
            9,
            r"topic_data\[0\].partition_data\[0\].records must be bytes, not object",
        ),
        (MetadataRequest(topics=None), 0, "topics must not be None"),
        (MetadataRequest(topics=7), 9, "topics must be a list, not int"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_encode_error_names_field(message: Message, version: int, error: str) -> None:
    with pytest.raises(EncodeError, match=error) as caught:
        message.encode(version)
    assert f"{type(message).__name__} version {version}" in str(caught.value)
    with pytest.raises(EncodeError, match=error):
        message.encode_parts(version)


def test_encodes_null_in_nullable_version() -> None:
    assert MetadataRequest(topics=None).encode(1) == b"\xff\xff\xff\xff"
    assert MetadataRequest(topics=[]).encode(1) == b"\0\0\0\0"


# -- fields that a version does not have ----------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "version", "field"),
    [
        (JoinGroupRequest(group_instance_id="i"), 4, "JoinGroupRequest.group_instance_id"),
        (FindCoordinatorRequest(key_type=1), 0, "FindCoordinatorRequest.key_type"),
        (MetadataRequest(allow_auto_topic_creation=False), 3, "allow_auto_topic_creation"),
        (FindCoordinatorRequest(coordinator_keys=["a"]), 3, "coordinator_keys"),
    ],
)
def test_refuses_set_field_that_version_does_not_have(
    message: Message, version: int, field: str
) -> None:
    with pytest.raises(UnsupportedVersionError, match=f"version {version} has no .*{field}"):
        message.encode(version)
    assert message.encode(version + 1)


def test_field_with_default_value_counts_as_not_set() -> None:
    plain = FindCoordinatorRequest(key="g").encode(0)
    assert FindCoordinatorRequest(key="g", key_type=0, coordinator_keys=[]).encode(0) == plain


def test_drops_ignorable_field_that_version_does_not_have() -> None:
    by_name = MetadataRequestTopic(name="t")
    with_id = MetadataRequestTopic(name="t", topic_id=uuid.UUID(int=1))
    first = JoinGroupRequest(reason="because").encode(7)
    assert first == JoinGroupRequest().encode(7)
    assert MetadataRequest(topics=[by_name]).encode(9) == MetadataRequest(topics=[with_id]).encode(
        9
    )


def test_refuses_changed_structure_that_version_does_not_have() -> None:
    FetchRequest().encode(4)
    moved = FetchRequest()
    moved.replica_state.replica_epoch = 3
    with pytest.raises(UnsupportedVersionError, match="replica_state"):
        moved.encode(14)


def test_refuses_to_encode_and_decode_unknown_version() -> None:
    with pytest.raises(
        UnsupportedVersionError, match="ListOffsetsRequest has no version 0, only 1-11"
    ):
        ListOffsetsRequest().encode(0)
    with pytest.raises(
        UnsupportedVersionError, match="HeartbeatRequest has no version 5, only 0-4"
    ):
        HeartbeatRequest.decode(b"", 5)


# -- values ---------------------------------------------------------------------------------------


def test_messages_with_equal_fields_are_equal() -> None:
    one = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    assert one == MetadataRequest(topics=(MetadataRequestTopic(name="t"),))
    assert one != MetadataRequest(topics=[MetadataRequestTopic(name="u")])
    assert one != MetadataRequest(topics=None)
    assert one != "something else"
    tagged = MetadataRequest(topics=one.topics)
    tagged.unknown_tagged_fields = ((1, b""),)
    assert one != tagged


def test_default_structures_are_not_shared() -> None:
    one, other = PartitionProduceResponse(), PartitionProduceResponse()
    one.current_leader.leader_id = 7
    assert other.current_leader == LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)


def test_repr_shows_set_fields_and_shortens_bytes() -> None:
    partition = PartitionProduceData(index=3, records=b"\0" * 1000)
    text = repr(topic(name="t", partition_data=[partition]))
    assert text.startswith("ProduceRequest(topic_data=[TopicProduceData(name='t', partition_data=[")
    assert "index=3" in text
    assert "<1000 bytes" in text
    assert len(text) < 300
    assert "acks" not in text


def test_repr_hides_secrets() -> None:
    assert "hunter2" not in repr(SaslAuthenticateRequest(auth_bytes=b"\0alice\0hunter2"))
    assert "hunter2" not in repr(AlterableConfig(name="ssl.key.password", value="hunter2"))
    assert "ssl.key.password" in repr(AlterableConfig(name="ssl.key.password", value="hunter2"))


def test_to_dict_returns_plain_values() -> None:
    made = JoinGroupRequest(protocols=(JoinGroupRequestProtocol(name="range", metadata=b"m"),))
    fields = made.to_dict()
    assert fields["protocols"] == [{"name": "range", "metadata": b"m"}]
    assert fields["group_instance_id"] is None
    assert "unknown_tagged_fields" not in fields
    view = PartitionProduceData(records=memoryview(b"abc"))
    assert view.to_dict() == {"index": 0, "records": b"abc"}


def test_from_dict_accepts_missing_fields_and_structures() -> None:
    made = ApiVersionsResponse.from_dict({"api_keys": [{"api_key": 3}, ApiVersion(api_key=4)]})
    assert made == ApiVersionsResponse(api_keys=[ApiVersion(api_key=3), ApiVersion(api_key=4)])
    with pytest.raises(EncodeError, match="ApiVersionsResponse has no field 'apiKeys'"):
        ApiVersionsResponse.from_dict({"apiKeys": []})


def test_refuses_unknown_attribute() -> None:
    with pytest.raises(AttributeError):
        HeartbeatRequest().generation = 3  # pyright: ignore[reportAttributeAccessIssue]


def test_coalesce_joins_small_buffers_and_keeps_large_ones() -> None:
    large, other = b"x" * 5000, memoryview(b"y" * 5000)
    parts = coalesce([b"a", b"b", large, b"", b"c", other, b"d"])
    assert parts == [b"ab", large, b"c", other, b"d"]
    assert parts[1] is large
    assert parts[3] is other
    assert coalesce([]) == []
