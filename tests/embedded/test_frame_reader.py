"""Frames come out whole, however the stream is cut, and hostile sizes cost nothing."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_async.embedded.network import STAGE, FrameReader
from kafka_async.errors import DecodeError


def feed(reader: FrameReader, data: bytes) -> list[bytes]:
    """Everything that comes out when bytes go in as fast as the reader makes room."""
    frames: list[bytes] = []
    view = memoryview(data)
    while view:
        room = reader.room()
        count = min(room.nbytes, view.nbytes)
        assert count > 0
        room[:count] = view[:count]
        view = view[count:]
        frames += [bytes(frame) for frame in reader.received(count)]
    return frames


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 3, 100, STAGE - 5, STAGE - 4, STAGE, 3 * STAGE])),
    cuts=st.lists(st.integers(1, 4 * STAGE), max_size=20).map(lambda cuts: [*cuts, STAGE]),
)
def test_frames_come_out_whole_however_the_stream_is_cut(sizes: list[int], cuts: list[int]) -> None:
    bodies = [bytes([index % 256]) * size for index, size in enumerate(sizes)]
    stream = b"".join(map(framed, bodies))
    reader, found, at = FrameReader(10 * STAGE), list[bytes](), 0
    turn = 0
    while at < len(stream):
        cut = cuts[turn % len(cuts)]
        found += feed(reader, stream[at : at + cut])
        at, turn = at + cut, turn + 1
    assert found == bodies


@pytest.mark.parametrize("size", [-1, 1_001, 2**31 - 1])
def test_an_impossible_size_is_an_error_before_its_bytes_come(size: int) -> None:
    with pytest.raises(DecodeError, match=str(size)):
        feed(FrameReader(1_000), struct.pack(">i", size))


def test_memory_grows_with_what_came_not_with_what_was_promised() -> None:
    reader = FrameReader(100 * STAGE)
    feed(reader, struct.pack(">i", 100 * STAGE))
    assert reader.room().nbytes <= 2 * STAGE


def test_a_frame_does_not_change_when_the_next_one_arrives() -> None:
    reader = FrameReader(STAGE)
    room = reader.room()
    room[:6] = framed(b"ab")
    (frame,) = reader.received(6)
    feed(reader, framed(b"cd"))
    assert frame == b"ab"
