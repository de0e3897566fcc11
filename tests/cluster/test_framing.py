"""Frames out of a stream, in any pieces; memory that follows what arrived; the budget of all."""

from __future__ import annotations

import random

import pytest

from kafka_async.cluster.framing import SMALL, Frame, FrameReader, FrameSizeError, ReceiveBudget

MIB = 1024 * 1024


class Receiving:
    """A reader, fed as a transport feeds it: never more than it has room for."""

    def __init__(self, cap: int = 16 * MIB, budget: ReceiveBudget | None = None) -> None:
        self.budget = budget or ReceiveBudget(64 * MIB)
        self.blocked: list[bool] = []
        self.reader = FrameReader(cap, self.budget, self.blocked.append)
        self.frames: list[bytes] = []
        self.largest_room = 0
        self.midway = False

    def take(self, frame: Frame) -> None:
        self.frames.append(bytes(frame))

    def feed(self, data: bytes, step: int = 2**30) -> None:
        view = memoryview(data)
        while view:
            room = self.reader.room()
            self.largest_room = max(self.largest_room, len(room))
            count = min(len(room), len(view), step)
            assert count > 0
            room[:count] = view[:count]
            room.release()
            self.midway = self.reader.received(count, self.take)
            view = view[count:]


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


BODIES = [b"abcd", b"efghi", b"bc" * 50, b"d" * 300]


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 100, 1 << 20])
def test_frames_come_out_however_the_bytes_come_in(step: int) -> None:
    receiving = Receiving()
    receiving.feed(framed(*BODIES), step)
    assert receiving.frames == BODIES
    assert not receiving.midway


@pytest.mark.parametrize("cut", range(len(framed(b"abcd", b"efghi")) + 1))
def test_frames_come_out_whichever_way_they_are_cut_in_two(cut: int) -> None:
    data = framed(b"abcd", b"efghi")
    receiving = Receiving()
    receiving.feed(data[:cut])
    receiving.feed(data[cut:])
    assert receiving.frames == [b"abcd", b"efghi"]


SIZES = [SMALL - 5, SMALL - 4, SMALL - 3, SMALL, SMALL + 1, 2 * SMALL, 3 * SMALL + 17, 1_000_000]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("step", [4096, 65_536, 1 << 20])
def test_a_frame_at_the_edge_of_the_buffer_or_beyond_is_whole(size: int, step: int) -> None:
    body = random.Random(size).randbytes(size)
    receiving = Receiving()
    receiving.feed(framed(b"before", body, b"after", body), step)
    assert receiving.frames == [b"before", body, b"after", body]
    assert receiving.budget.held == 0


def test_many_small_frames_move_through_one_buffer() -> None:
    bodies = [bytes([index % 251]) * (4 + index * 37 % 3000) for index in range(500)]
    receiving = Receiving()
    receiving.feed(framed(*bodies), step=8191)
    assert receiving.frames == bodies
    assert receiving.largest_room <= SMALL


def test_a_frame_that_was_handed_out_does_not_change() -> None:
    receiving = Receiving()
    view = memoryview(framed(b"first"))
    room = receiving.reader.room()
    room[: len(view)] = view
    frames: list[Frame] = []
    receiving.reader.received(len(view), frames.append)
    (frame,) = frames
    receiving.feed(framed(b"other"))
    assert frame == b"first"


@pytest.mark.parametrize("size", [1025, 2**31 - 1, 3, 0, -1, -(2**31)])
def test_a_size_that_is_absurd_is_refused_before_the_frame_is_read(size: int) -> None:
    receiving = Receiving(cap=1024)
    with pytest.raises(
        FrameSizeError, match=f"claims {size} bytes, 4 to 1024 are allowed"
    ) as caught:
        receiving.feed(framed(b"fine") + size.to_bytes(4, "big", signed=True) + b"tail")
    assert receiving.frames == [b"fine"]
    assert caught.value.head.endswith(b"tail")


def test_the_cap_itself_is_allowed_and_may_be_raised() -> None:
    receiving = Receiving(cap=10)
    receiving.feed(framed(b"x" * 10))
    receiving.reader.cap = 20
    receiving.feed(framed(b"x" * 20))
    assert [len(frame) for frame in receiving.frames] == [10, 20]


def test_four_hostile_bytes_cost_no_memory() -> None:
    receiving = Receiving(cap=100 * MIB)
    receiving.feed((100 * MIB).to_bytes(4, "big") + b"x")
    assert len(receiving.reader.room()) <= SMALL


def test_the_buffer_of_a_large_frame_doubles_as_it_fills() -> None:
    receiving = Receiving()
    data = framed(bytes(MIB))
    rooms: list[int] = []
    while data:
        room = receiving.reader.room()
        rooms.append(len(room))
        count = min(len(room), len(data))
        room[:count] = data[:count]
        room.release()
        receiving.reader.received(count, receiving.take)
        data = data[count:]
    assert rooms[0] == SMALL
    arrived = SMALL
    for room in rooms[1:]:
        assert room <= max(arrived, 4)
        arrived += room


def test_a_connection_that_has_had_large_frames_starts_where_they_ended() -> None:
    receiving = Receiving()
    receiving.feed(framed(bytes(MIB)))
    receiving.feed((MIB).to_bytes(4, "big") + b"x")
    assert len(receiving.reader.room()) == MIB - 1


# -- the budget -----------------------------------------------------------------------------------


def test_only_large_frames_are_booked_and_given_back_when_complete() -> None:
    receiving = Receiving()
    receiving.feed(framed(bytes(SMALL - 4)))
    assert receiving.budget.held == 0
    data = framed(bytes(MIB))
    receiving.feed(data[:-1])
    assert receiving.budget.held == MIB
    receiving.feed(data[-1:])
    assert receiving.budget.held == 0


def test_a_connection_waits_until_others_have_given_back() -> None:
    budget = ReceiveBudget(3 * MIB)
    first, second = Receiving(budget=budget), Receiving(budget=budget)
    data = framed(bytes(2 * MIB))
    first.feed(data[:-1])
    second.feed(data[:-1])
    assert (first.blocked, second.blocked) == ([], [True])
    first.feed(data[-1:])
    assert second.blocked == [True, False]
    second.feed(data[-1:])
    assert len(second.frames) == 1
    assert budget.held == 0


def test_a_frame_larger_than_the_whole_budget_passes_alone() -> None:
    budget = ReceiveBudget(MIB)
    receiving = Receiving(budget=budget)
    receiving.feed(framed(bytes(2 * MIB)))
    assert receiving.blocked == []
    assert len(receiving.frames) == 1


def test_first_come_first_served() -> None:
    budget = ReceiveBudget(10)
    granted: list[str] = []
    assert budget.book(8, lambda: granted.append("never"))
    assert not budget.book(9, lambda: granted.append("large"))
    assert not budget.book(1, lambda: granted.append("small"))
    budget.release(8)
    assert granted == ["large", "small"]
    assert budget.held == 10


def test_a_connection_that_ends_gives_back_and_waits_no_longer() -> None:
    budget = ReceiveBudget(3 * MIB)
    first, second, third = (Receiving(budget=budget) for _ in range(3))
    part = (2 * MIB).to_bytes(4, "big") + b"x"
    for receiving in (first, second, third):
        receiving.feed(part)
    second.reader.close()
    assert second.blocked == [True, False]
    first.reader.close()
    assert third.blocked == [True, False]
    third.reader.close()
    assert budget.held == 0


def test_bytes_that_come_in_spite_of_blocking_may_complete_the_frame() -> None:
    budget = ReceiveBudget(MIB)
    assert budget.book(MIB, lambda: None)
    receiving = Receiving(budget=budget)
    receiving.feed(framed(bytes(MIB)))
    assert receiving.blocked == [True, False]
    assert len(receiving.frames) == 1
    assert budget.held == MIB
