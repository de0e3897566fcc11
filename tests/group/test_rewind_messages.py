"""Messages by which members of a group rewind partitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.consumer.group.rewind.rewind_messages import RewindMessage, merge_rewinds
from kafka_async.errors import DecodeError
from kafka_async.group.assignors import MemberSubscription, TopicPartitions
from kafka_async.group.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kafka_async.types import TopicPartition

offsets = st.dictionaries(
    st.builds(TopicPartition, st.text(max_size=5), st.integers(0, 2**31 - 1)),
    st.integers(0, 2**63 - 1),
    max_size=4,
)
by_name = st.dictionaries(st.text(max_size=5), offsets, max_size=3)
messages = st.builds(
    RewindMessage, by_name, by_name, st.dictionaries(st.text(max_size=5), st.text(max_size=5))
)


@given(messages)
def test_message_round_trip(message: RewindMessage) -> None:
    assert RewindMessage.decode(message.encode()) == message


@pytest.mark.parametrize(
    "data", [b"x", b"[]", b"{}", b'{"requests":{"a":[1]},"replies":{},"refusals":{}}', b"\xff"]
)
def test_malformed_message_is_a_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError, match="cannot be read"):
        RewindMessage.decode(data)


@given(st.none() | st.binary(max_size=8), st.binary(min_size=1, max_size=8))
def test_message_is_apart_from_the_user_data(user_data: bytes | None, rewinds: bytes) -> None:
    subscription = MemberSubscription(
        frozenset({"t"}), user_data=user_data, version=3, reads_errors=True, rewinds=rewinds
    )
    assert decode_subscription(encode_subscription(subscription)) == subscription
    read = decode_assignment(encode_assignment((), user_data, rewinds))
    assert (read.user_data, read.rewinds) == (user_data, rewinds)


def test_truncated_message_in_an_assignment_is_a_decode_error() -> None:
    with pytest.raises(DecodeError, match="before their size"):
        decode_assignment(encode_assignment((), b"\xa5KAr\x00\x00\x00\x00\x09x"))


def test_leader_passes_on_what_all_members_have_sent() -> None:
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    sent = [
        RewindMessage({"a": {first: 1}}, {"b": {first: 2}}),
        RewindMessage({}, {"b": {second: 3}}, {"c": "no"}),
    ]
    members = {
        str(number): MemberSubscription(
            frozenset({"t"}), reads_errors=True, rewinds=message.encode()
        )
        for number, message in enumerate(sent)
    }
    merged = merge_rewinds(TopicPartitions({"t": 2}), members)
    assert merged == RewindMessage({"a": {first: 1}}, {"b": {first: 2, second: 3}}, {"c": "no"})
