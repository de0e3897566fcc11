"""Request frames from a stream: any chunking, invalid sizes, memory."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_async.embedded.network import SMALL_FRAME_BUFFER_BYTES, RequestFrameReader
from kafka_async.errors import DecodeError


def feed(reader: RequestFrameReader, data: bytes) -> list[bytes]:
    """Return the frames of the reader for these bytes."""
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
    sizes=st.lists(
        st.sampled_from(
            [
                0,
                1,
                3,
                100,
                SMALL_FRAME_BUFFER_BYTES - 5,
                SMALL_FRAME_BUFFER_BYTES - 4,
                SMALL_FRAME_BUFFER_BYTES,
                3 * SMALL_FRAME_BUFFER_BYTES,
            ]
        )
    ),
    cuts=st.lists(st.integers(1, 4 * SMALL_FRAME_BUFFER_BYTES), max_size=20).map(
        lambda cuts: [*cuts, SMALL_FRAME_BUFFER_BYTES]
    ),
)
def test_returns_whole_frames_for_any_chunking(sizes: list[int], cuts: list[int]) -> None:
    bodies = [bytes([index % 256]) * size for index, size in enumerate(sizes)]
    stream = b"".join(map(framed, bodies))
    reader, found, at = RequestFrameReader(10 * SMALL_FRAME_BUFFER_BYTES), list[bytes](), 0
    step = 0
    while at < len(stream):
        cut = cuts[step % len(cuts)]
        found += feed(reader, stream[at : at + cut])
        at, step = at + cut, step + 1
    assert found == bodies


@pytest.mark.parametrize("size", [-1, 1_001, 2**31 - 1])
def test_invalid_size_is_rejected_before_frame_is_received(size: int) -> None:
    with pytest.raises(DecodeError, match=str(size)):
        feed(RequestFrameReader(1_000), struct.pack(">i", size))


def test_buffer_grows_with_received_bytes() -> None:
    reader = RequestFrameReader(100 * SMALL_FRAME_BUFFER_BYTES)
    feed(reader, struct.pack(">i", 100 * SMALL_FRAME_BUFFER_BYTES))
    assert reader.room().nbytes <= 2 * SMALL_FRAME_BUFFER_BYTES


def test_frame_is_not_overwritten_by_next() -> None:
    reader = RequestFrameReader(SMALL_FRAME_BUFFER_BYTES)
    room = reader.room()
    room[:6] = framed(b"ab")
    (frame,) = reader.received(6)
    feed(reader, framed(b"cd"))
    assert frame == b"ab"
