"""The bound of buffer_memory: who may take, who waits, and what the stranded may hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka_async.producer.buffer_pool import BufferMemory, Holder, Place
from tests.producer.promises import FakePromise


def memory(total: int = 100) -> BufferMemory:
    return BufferMemory(total, FakePromise)


def sendable() -> Holder:
    return Holder(stranded=False)


def stranded() -> Holder:
    return Holder(stranded=True)


def test_no_more_than_the_total_is_taken() -> None:
    room, holder = memory(), sendable()
    assert room.take(60, holder)
    assert not room.take(41, holder)
    assert room.take(40, holder)
    assert (room.used, holder.held) == (100, 100)
    room.give(100, holder)
    assert (room.used, holder.held) == (0, 0)


def test_the_line_is_served_in_order_and_holds_what_it_got() -> None:
    room, holder = memory(), sendable()
    assert room.take(100, holder)
    first, second = room.queue(60, holder), room.queue(10, holder)
    room.give(50, holder)
    # The second would fit, but the first came earlier; and nobody else may take what it waits for.
    assert not first.granted
    assert not second.granted
    assert not room.take(5, holder)
    room.give(20, holder)
    assert first.granted
    assert second.granted
    assert room.used == 100
    room.redeem(first)
    assert room.take(60, holder, overtake=True)


def test_a_place_that_is_left_gives_back_what_it_was_granted() -> None:
    room, holder = memory(), sendable()
    assert room.take(100, holder)
    place, after = room.queue(60, holder), room.queue(50, holder)
    room.give(60, holder)
    assert place.granted
    room.leave(place)
    assert after.granted
    assert room.used == 90


def test_who_was_cancelled_in_the_line_is_passed_over() -> None:
    room, holder = memory(), sendable()
    assert room.take(100, holder)
    gone, after = room.queue(60, holder), room.queue(50, holder)
    assert isinstance(gone.promise, FakePromise)
    gone.promise.cancelled = True
    room.give(100, holder)
    assert after.granted
    assert not gone.granted
    room.leave(gone)
    assert room.used == 50


def test_all_that_is_stranded_holds_half_at_most() -> None:
    room = memory()
    one, two, good = stranded(), stranded(), sendable()
    assert room.take(50, one)
    assert not room.take(1, one)
    assert not room.take(1, two)
    assert room.take(50, good)


def test_the_stranded_share_their_half_equally() -> None:
    room = memory()
    one, two = stranded(), stranded()
    assert room.take(20, one)
    assert room.take(20, two)
    assert not room.take(6, one)
    assert room.take(5, two)


def test_a_stranded_record_larger_than_half_is_let_in_alone() -> None:
    room, holder = memory(), stranded()
    assert room.take(80, holder)
    assert not room.take(10, holder)


def test_a_stranded_place_holds_up_only_its_like() -> None:
    room = memory()
    lost, good = stranded(), sendable()
    assert room.take(50, lost)
    assert room.take(40, good)
    waiting = room.queue(10, lost)
    assert not waiting.granted
    assert room.take(10, good)
    room.give(50, good)
    assert not waiting.granted
    room.strand(lost, False)
    assert waiting.granted


def test_losing_the_leader_counts_what_is_held_already() -> None:
    room = memory()
    lost, other = sendable(), stranded()
    assert room.take(60, lost)
    room.strand(lost, True)
    assert not room.take(1, other)
    room.strand(lost, False)
    assert room.take(1, other)


def test_closing_wakes_everybody_and_grants_nothing() -> None:
    room, holder = memory(), sendable()
    assert room.take(100, holder)
    places = [room.queue(10, holder) for _ in range(3)]
    room.wake_all()
    assert [place.promise.done() for place in places] == [True] * 3
    assert not any(place.granted for place in places)
    assert room.waiting == 0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(1, 60)), max_size=60))
def test_accounting_never_drifts(steps: list[tuple[int, int, int]]) -> None:
    room = memory()
    holders = [sendable(), sendable(), stranded(), stranded()]
    places: list[Place] = []
    for action, who, size in steps:
        holder = holders[who]
        if action in (0, 1):
            room.take(size, holder)
        elif action == 2:
            room.give(min(size, holder.held - granted_to(places, holder)), holder)
        elif action == 3:
            places.append(room.queue(size, holder))
        elif action == 4 and places:
            room.leave(places.pop(size % len(places)))
        elif action == 5:
            room.strand(holder, not holder.stranded)
        assert 0 <= room.used <= room.total
        assert room.used == sum(holder.held for holder in holders)
        assert room.waiting == sum(not place.granted for place in places)
    for place in places:
        room.leave(place)
    for holder in holders:
        room.give(holder.held, holder)
    assert room.used == 0
    assert room.take(100, sendable())


def granted_to(places: list[Place], holder: Holder) -> int:
    return sum(place.size for place in places if place.granted and place.holder is holder)
