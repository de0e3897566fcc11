"""Encoding of subscriptions and assignments."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.errors import DecodeError
from kafka_async.group.assignors import MemberSubscription
from kafka_async.group.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_assignor_error,
    encode_subscription,
)
from kafka_async.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)
from kafka_async.types import TopicPartition

partitions = st.frozensets(
    st.builds(TopicPartition, st.text(max_size=5), st.integers(0, 2**31 - 1)), max_size=8
)
members = st.builds(
    MemberSubscription,
    st.frozensets(st.text(max_size=8), max_size=5),
    partitions,
    st.integers(-1, 2**31 - 1),
    st.none() | st.binary(max_size=8),
    st.none() | st.text(max_size=8),
)


@given(members)
def test_subscription_round_trip(subscription: MemberSubscription) -> None:
    assert decode_subscription(encode_subscription(subscription)) == subscription


@given(partitions)
def test_assignment_round_trip(assignment: frozenset[TopicPartition]) -> None:
    assert decode_assignment(encode_assignment(assignment)) == (assignment, None, None, None)
    assert decode_assignment(encode_assignment(assignment, b"x")) == (assignment, b"x", None, None)


def test_empty_bytes_are_empty_assignment() -> None:
    assert decode_assignment(b"") == (frozenset(), None, None, None)


def test_error_of_assignor_round_trip() -> None:
    read = decode_assignment(encode_assignor_error("the assignor m\u00fcll raised"))
    assert read == (frozenset(), None, "the assignor m\u00fcll raised", None)


@pytest.mark.parametrize("user_data", [None, b"", b"generation"])
def test_declaration_to_read_errors_follows_the_user_data(user_data: bytes | None) -> None:
    """Java's assignors read their user data from the beginning, and ignore what follows."""
    plain = MemberSubscription(frozenset({"a"}), user_data=user_data)
    declared = MemberSubscription(
        frozenset({"a"}), user_data=user_data, version=7, reads_errors=True
    )
    assert decode_subscription(encode_subscription(declared)) == declared
    assert decode_subscription(encode_subscription(plain)) == plain
    sent = ConsumerProtocolSubscription.decode_from(encode_subscription(declared), 2, 3)[0]
    assert (sent.user_data or b"")[:-8] == (user_data or b"")


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_decodes_older_versions(version: int) -> None:
    message = ConsumerProtocolSubscription(topics=["a"], user_data=b"u")
    read = decode_subscription(struct.pack(">h", version) + message.encode(version), "static-1")
    assert read == MemberSubscription(
        frozenset({"a"}), user_data=b"u", group_instance_id="static-1"
    )


def test_ignores_fields_of_newer_versions() -> None:
    known = encode_subscription(MemberSubscription(frozenset({"a"})))
    newer = struct.pack(">h", 9) + known[2:] + b"what is new"
    assert decode_subscription(newer) == MemberSubscription(frozenset({"a"}))


@pytest.mark.parametrize("data", [b"\0", b"\xff\xff\0\0", b"\0\3\0\0\0\5"])
def test_invalid_bytes_raise(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_subscription(data)
