"""Tests of the offsets in a streaming query's checkpoint."""

from __future__ import annotations

import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.errors import IllegalStateError
from kafka_async.spark.offsets import parse_offsets
from kafka_async.spark.source.stream_offset import StreamOffset, read_stream_offset
from kafka_async.types import TopicPartition

ID = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_json_is_that_of_sparks_connector_with_keys_without_partitions() -> None:
    offset = StreamOffset({B0: 5, A1: 7, A0: 3}, {"a": ID}, {A0: 4, A1: 2})
    assert offset.to_json() == {
        "a": {"0": 3, "1": 7},
        "b": {"0": 5},
        f"#a#{ID}#0:4,1:2": {},
    }
    assert StreamOffset({A0: 3}).to_json() == {"a": {"0": 3}}


def test_starting_offsets_accept_the_json_of_a_checkpoint() -> None:
    text = json.dumps(StreamOffset({A0: 3}, {"a": ID}, {A0: 4}).to_json())
    assert parse_offsets(text, "startingOffsets") == {A0: 3}


partitions = st.builds(
    TopicPartition, st.from_regex(r"[a-zA-Z0-9._-]+", fullmatch=True), st.integers(0, 9999)
)


@given(st.dictionaries(partitions, st.tuples(st.integers(0, 2**62), st.integers(0, 2**31 - 1))))
def test_checkpoint_returns_the_same_offset(
    rows: dict[TopicPartition, tuple[int, int]],
) -> None:
    offset = StreamOffset(
        {tp: row[0] for tp, row in rows.items()},
        {tp.topic: ID for tp in rows},
        {tp: row[1] for tp, row in rows.items()},
    )
    assert read_stream_offset(json.loads(json.dumps(offset.to_json()))) == offset


@pytest.mark.parametrize("value", [None, {"a": 1}, {"a": {"x": 1}}, {"#a": {}}, {"#a#b#c": {}}])
def test_other_offsets_raise(value: object) -> None:
    with pytest.raises(IllegalStateError, match="checkpoint"):
        read_stream_offset(value)
