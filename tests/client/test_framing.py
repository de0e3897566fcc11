"""Tests of splitting a stream into frames, its memory and the receive budget."""

from __future__ import annotations

import random

import pytest

from kafka_async.client.wire.framing import (
    BUFFER_SIZE,
    Frame,
    FrameReader,
    FrameSizeError,
    ReceiveBudget,
)
from tests.rows import row

MIB = 1024 * 1024


class FeedableReader:
    """A reader that is fed as a transport does it: at most the size of its buffer."""

    def __init__(self, max_frame_size: int = 16 * MIB, budget: ReceiveBudget | None = None) -> None:
        self.budget = budget or ReceiveBudget(64 * MIB)
        self.blocked: list[bool] = []
        self.reader = FrameReader(max_frame_size, self.budget, self.blocked.append)
        self.frames: list[Frame] = []
        self.rooms: list[int] = []
        self.in_frame = False

    def feed(self, data: bytes, step: int = 2**30) -> None:
        view = memoryview(data)
        while view:
            room = self.reader.room()
            self.rooms.append(len(room))
            count = min(len(room), len(view), step)
            assert count > 0
            room[:count] = view[:count]
            room.release()
            self.in_frame = self.reader.received(count, self.frames.append)
            view = view[count:]


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


BODIES = [b"abcd", b"efghi", b"bc" * 50, b"d" * 300]


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 100, 1 << 20])
def test_splits_frames_for_any_read_size(step: int) -> None:
    feedable = FeedableReader()
    feedable.feed(framed(*BODIES), step)
    assert feedable.frames == BODIES
    assert not feedable.in_frame


def test_delivers_frames_around_and_above_buffer_size() -> None:
    for step in [4096, 65_536, 1 << 20]:
        for size in [
            *(BUFFER_SIZE + extra for extra in (-5, -4, -3, 0, 1)),
            *(2 * BUFFER_SIZE, 3 * BUFFER_SIZE + 17, 1_000_000),
        ]:
            with row(step, size):
                body = random.Random(size).randbytes(size)
                feedable = FeedableReader()
                feedable.feed(framed(b"before", body, b"after", body), step)
                assert feedable.frames == [b"before", body, b"after", body]
                assert feedable.budget.held == 0


def test_small_frames_share_one_buffer() -> None:
    bodies = [bytes([index % 251]) * (4 + index * 37 % 3000) for index in range(500)]
    feedable = FeedableReader()
    feedable.feed(framed(*bodies), step=8191)
    assert feedable.frames == bodies
    assert max(feedable.rooms) <= BUFFER_SIZE


def test_delivered_frame_does_not_change() -> None:
    feedable = FeedableReader()
    feedable.feed(framed(b"first"))
    feedable.feed(framed(b"other"))
    assert feedable.frames == [b"first", b"other"]


@pytest.mark.parametrize("size", [1025, 2**31 - 1, 3, 0, -1, -(2**31)])
def test_rejects_size_out_of_range_before_reading_the_frame(size: int) -> None:
    feedable = FeedableReader(max_frame_size=1024)
    with pytest.raises(
        FrameSizeError, match=f"claims {size} bytes, 4 to 1024 are allowed"
    ) as caught:
        feedable.feed(framed(b"fine") + size.to_bytes(4, "big", signed=True) + b"tail")
    assert feedable.frames == [b"fine"]
    assert caught.value.head.endswith(b"tail")


def test_allows_max_frame_size_and_raising_it() -> None:
    feedable = FeedableReader(max_frame_size=10)
    feedable.feed(framed(b"x" * 10))
    feedable.reader.max_frame_size = 20
    feedable.feed(framed(b"x" * 20))
    assert [len(frame) for frame in feedable.frames] == [10, 20]


def test_size_field_alone_allocates_no_memory() -> None:
    feedable = FeedableReader(max_frame_size=100 * MIB)
    feedable.feed((100 * MIB).to_bytes(4, "big") + b"x")
    assert len(feedable.reader.room()) <= BUFFER_SIZE


def test_buffer_of_large_frame_doubles_as_it_fills() -> None:
    feedable = FeedableReader()
    feedable.feed(framed(bytes(MIB)))
    first, *rooms = feedable.rooms
    assert first == BUFFER_SIZE
    arrived = BUFFER_SIZE
    for room in rooms:
        assert room <= max(arrived, 4)
        arrived += room


def test_next_large_frame_starts_with_size_of_the_last() -> None:
    feedable = FeedableReader()
    feedable.feed(framed(bytes(MIB)))
    feedable.feed((MIB).to_bytes(4, "big") + b"x")
    assert len(feedable.reader.room()) == MIB - 1


# -- the budget -----------------------------------------------------------------------------------


def test_reserves_budget_for_large_frames_until_they_are_complete() -> None:
    feedable = FeedableReader()
    feedable.feed(framed(bytes(BUFFER_SIZE - 4)))
    assert feedable.budget.held == 0
    data = framed(bytes(MIB))
    feedable.feed(data[:-1])
    assert feedable.budget.held == MIB
    feedable.feed(data[-1:])
    assert feedable.budget.held == 0


def test_connection_waits_until_others_have_released_budget() -> None:
    budget = ReceiveBudget(3 * MIB)
    first, second = FeedableReader(budget=budget), FeedableReader(budget=budget)
    data = framed(bytes(2 * MIB))
    first.feed(data[:-1])
    second.feed(data[:-1])
    assert (first.blocked, second.blocked) == ([], [True])
    first.feed(data[-1:])
    assert second.blocked == [True, False]
    second.feed(data[-1:])
    assert len(second.frames) == 1
    assert budget.held == 0


def test_frame_larger_than_whole_budget_passes_alone() -> None:
    budget = ReceiveBudget(MIB)
    feedable = FeedableReader(budget=budget)
    feedable.feed(framed(bytes(2 * MIB)))
    assert feedable.blocked == []
    assert len(feedable.frames) == 1


def test_grants_reservations_in_order() -> None:
    budget = ReceiveBudget(10)
    granted: list[str] = []
    assert budget.reserve(8, lambda: granted.append("never"))
    assert not budget.reserve(9, lambda: granted.append("large"))
    assert not budget.reserve(1, lambda: granted.append("small"))
    budget.release(8)
    assert granted == ["large", "small"]
    assert budget.held == 10


def test_close_releases_and_cancels_reservations() -> None:
    budget = ReceiveBudget(3 * MIB)
    first, second, third = (FeedableReader(budget=budget) for _ in range(3))
    part = (2 * MIB).to_bytes(4, "big") + b"x"
    for feedable in (first, second, third):
        feedable.feed(part)
    second.reader.close()
    assert second.blocked == [True, False]
    first.reader.close()
    assert third.blocked == [True, False]
    third.reader.close()
    assert budget.held == 0


def test_bytes_received_after_blocking_may_complete_the_frame() -> None:
    budget = ReceiveBudget(MIB)
    assert budget.reserve(MIB, lambda: None)
    feedable = FeedableReader(budget=budget)
    feedable.feed(framed(bytes(MIB)))
    assert feedable.blocked == [True, False]
    assert len(feedable.frames) == 1
    assert budget.held == MIB
