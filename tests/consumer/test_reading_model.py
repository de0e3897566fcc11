"""All reading calls, in any order, compared with a model of what may be committed.

Two statements hold for each of them. At every commit, all records below the committed offset have
been handled, or the application has given them up: by a seek, a `commit`, or another poll. Once
nothing happens any more, the committed offset is the position, which is the end of the log.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from kafka_async.errors import ClientClosedError, KafkaError, RecordDeserializationError
from kafka_async.types import TopicPartition
from tests.consumer.log_machine import (
    PARTITIONS,
    TOPIC,
    HandlerError,
    LogMachine,
    Offsets,
    numbers,
    pauses,
    percents,
    run_histories,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from kafka_async.consumer.consumer import Consumer
    from kafka_async.consumer.delivery.partition_streams import PartitionStream
    from kafka_async.embedded.state.offset_metadata_manager import CommittedOffset
    from kafka_async.kernel import Record

pytestmark = pytest.mark.one_kernel

OPTIONS: Final[dict[str, Any]] = {
    "enable_auto_commit": True,
    "auto_commit_interval_ms": 200,
    "isolation_level": "read_committed",
    "max_poll_records": 5,
    "value_deserializer": int,
}
CLASSIC: Final[dict[str, Any]] = {"heartbeat_interval_ms": 500, "session_timeout_ms": 6_000}
PROTOCOLS: Final[dict[str, dict[str, Any]]] = {
    "default": CLASSIC,
    "cooperative": {**CLASSIC, "partition_assignment_strategy": ["cooperative-sticky"]},
    "consumer": {"group_protocol": "consumer"},
}


class Member:
    """A consumer of the group, and the task in which it reads.

    Attributes:
        in_hand: Records that the reading call has returned and that are not handled yet.
    """

    def __init__(self, model: ReadingMachine, consumer: Consumer, name: str) -> None:
        self.consumer = consumer
        self.name = name
        self.in_hand: Offsets = defaultdict(set)
        self._model = model
        self._how = ""
        self._task: asyncio.Task[None] | None = None

    def read(self, how: str) -> None:
        """Start to read with one of the reading calls."""
        self._how = how
        self.note_undecodable()
        self._task = asyncio.create_task(self._read(READING_CALLS[how]))

    async def end_reading(self) -> None:
        """Cancel the reading call; the next poll counts what it has returned as processed."""
        assert self._task is not None
        if not self._tracks_records:
            self.give_up_in_hand()
        self._task.cancel()
        await asyncio.wait({self._task})
        self.in_hand.clear()

    def give_up_in_hand(self) -> None:
        for partition, offsets in self.in_hand.items():
            self._model.given_up[partition] |= offsets

    async def commit(self) -> None:
        """Commit as the application may: what is in its hands counts as processed."""
        if not self._tracks_records:
            self.give_up_in_hand()
        try:
            await self.consumer.commit(timeout=5)
        except KafkaError:
            pass

    async def seek(self, partition: TopicPartition, target: int) -> None:
        """Seek, and give up what the position has not reached."""
        if partition not in self.consumer.assignment():
            return
        position = await self.consumer.position(partition)
        if partition not in self.consumer.assignment():
            return
        given_up = set(range(target))
        if self._how.startswith("process"):
            given_up -= set(range(position))  # Those are handled still.
        elif self._how.startswith("streams"):
            given_up -= self.in_hand[partition]
        self._model.given_up[partition] |= given_up
        self.consumer.seek(partition, target)

    def check_reading(self) -> None:
        """Raise what the reading task has raised."""
        assert self._task is not None
        if self._task.done() and not self._task.cancelled():
            self._task.result()

    @property
    def _tracks_records(self) -> bool:
        """True if commits do not pass records in hand, whatever follows."""
        return self._how.startswith(("process", "streams"))

    async def _read(self, call: Callable[[Member], Awaitable[None]]) -> None:
        while True:
            try:
                await call(self)
            except HandlerError:
                continue
            except RecordDeserializationError as error:  # as the documentation advises
                record: Any = error.record
                partition = TopicPartition(record.topic, record.partition)
                if partition in self.consumer.assignment():
                    self._model.given_up[partition].add(record.offset)
                    self.consumer.seek(partition, record.offset + 1)
            except ClientClosedError:
                return
            else:
                return

    async def handle(self, record: Record[Any, Any]) -> None:
        """Handle a record: it takes some time, and fails once if the model says so."""
        partition = TopicPartition(record.topic, record.partition)
        self.in_hand[partition].add(record.offset)
        try:
            await asyncio.sleep(record.offset * 7 % 5 / 5)
            self._model.fail_once(partition, record.offset)
            self._model.handled[partition].add(record.offset)
        finally:
            self.in_hand[partition].discard(record.offset)

    async def handle_undecodable(self, error: RecordDeserializationError) -> None:
        record: Any = error.record
        await self.handle(record)

    async def handle_all(self, records: list[Record[Any, Any]]) -> None:
        """Handle what a poll has returned, with retries."""
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            self.in_hand[partition].add(record.offset)
        for record in records:
            try:
                await self.handle(record)
            except HandlerError:
                await self.handle(record)

    def note_undecodable(self) -> None:
        """Give up the records that cannot be deserialized if this member skips them."""
        if not self._how.endswith("skip"):
            return
        for partition, offsets in self._model.undecodable.items():
            self._model.given_up[partition] |= offsets


async def poll(member: Member) -> None:
    while True:
        await member.handle_all(await member.consumer.poll(timeout=1))


async def poll_without_timeout(member: Member) -> None:
    while True:
        await member.handle_all(await member.consumer.poll())


async def poll_batches(member: Member) -> None:
    while True:
        batches = await member.consumer.poll_batches(timeout=1)
        await member.handle_all([record for batch in batches for record in batch.records()])


async def iterate(member: Member) -> None:
    async for record in member.consumer:
        await member.handle_all([record])


def process(ordering: Any, on_undecodable: str) -> Callable[[Member], Coroutine[Any, Any, None]]:
    async def call(member: Member) -> None:
        await member.consumer.process(
            member.handle,
            concurrency=3,
            ordering=ordering,
            on_undecodable=rule_of(member, on_undecodable),
        )

    return call


def streams(on_undecodable: str) -> Callable[[Member], Coroutine[Any, Any, None]]:
    async def read(member: Member, stream: PartitionStream[Any, Any]) -> None:
        async for record in stream:
            await member.handle(record)

    async def call(member: Member) -> None:
        chosen = rule_of(member, on_undecodable)
        async with member.consumer.partition_streams(on_undecodable=chosen) as found:
            async for stream in found:
                stream.start_soon(read, member, stream)
                stream.start_soon(read, member, stream)

    return call


def rule_of(member: Member, name: str) -> Any:
    return member.handle_undecodable if name == "function" else name


READING_CALLS: Final[Mapping[str, Callable[[Member], Awaitable[None]]]] = {
    "poll": poll,
    "blocking-poll": poll_without_timeout,
    "poll_batches": poll_batches,
    "async for": iterate,
    "process raise": process("key", "raise"),
    "process skip": process("none", "skip"),
    "process function": process("partition", "function"),
    "streams raise": streams("raise"),
    "streams skip": streams("skip"),
    "streams function": streams("function"),
}


calls = st.sampled_from(list(READING_CALLS))
has_members = precondition(lambda self: bool(self._members))


class ReadingMachine(LogMachine):
    """A group of at most two members, which read a topic while it is written.

    Args:
        protocol: Key of `PROTOCOLS`.

    Attributes:
        handled: Records that a handler has handled.
        given_up: Offsets that may be committed although they were not handled.
    """

    def __init__(self, protocol: str) -> None:
        self._options = {**OPTIONS, **PROTOCOLS[protocol]}
        self.handled: Offsets = defaultdict(set)
        self.given_up: Offsets = defaultdict(set)
        self._members: list[Member] = []
        self._names = 0
        super().__init__()

    async def begin(self) -> None:
        stored = self.stage.cluster.groups.offsets
        commit = stored.commit

        def check_and_commit(
            group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
        ) -> None:
            for partition, row in offsets.items():
                self._check_commit(partition, row.offset)
            commit(group_id, offsets)

        stored.commit = check_and_commit

    def _missing(self, partition: TopicPartition) -> set[int]:
        """Return the records that are neither handled nor given up."""
        done = self.handled[partition] | self.given_up[partition] | self.deleted[partition]
        return self.visible[partition] - done

    def _check_commit(self, partition: TopicPartition, offset: int) -> None:
        self._note_undecodable()  # of what was written since the last rule
        lost = sorted(each for each in self._missing(partition) if each < offset)
        if lost:
            self.wrong.append(f"{partition} committed at {offset}, without {lost}")

    def check_members(self) -> None:
        self._note_undecodable()
        for member in self._members:
            member.check_reading()

    def _note_undecodable(self) -> None:
        for member in self._members:
            member.note_undecodable()

    # -- members ----------------------------------------------------------------------------------

    def _member(self, number: int) -> Member:
        return self._members[number % len(self._members)]

    @initialize(how=calls)
    def start(self, how: str) -> None:
        self._act(self._add_member(how))

    @precondition(lambda self: len(self._members) < 2)
    @rule(how=calls, pause=pauses)
    def join(self, how: str, pause: float) -> None:
        self._act(self._add_member(how), pause)

    async def _add_member(self, how: str) -> None:
        self._names += 1
        name = f"member-{self._names}"
        consumer = self.stage.consumer(TOPIC, client_id=name, **self._options)
        await consumer.start()
        self._members.append(Member(self, consumer, name))
        self._members[-1].read(how)

    @has_members
    @rule(number=numbers, pause=pauses)
    def leave(self, number: int, pause: float) -> None:
        self._act(self._stop(self._member(number)), pause)

    async def _stop(self, member: Member) -> None:
        self._members.remove(member)
        await member.consumer.stop()
        await member.end_reading()

    async def stop_members(self) -> None:
        for member in list(self._members):
            await self._stop(member)

    @has_members
    @rule(number=numbers, pause=pauses)
    def crash(self, number: int, pause: float) -> None:
        """End a member whose requests do not arrive any more."""

        async def end(member: Member) -> None:
            self._members.remove(member)
            self.stage.cluster.faults.add(
                when=lambda context, _: context.client_id == member.name, hang=True, count=None
            )
            await member.end_reading()
            await member.consumer.stop(0.1)

        self._act(end(self._member(number)), pause)

    @has_members
    @rule(number=numbers, how=calls, pause=pauses)
    def read_differently(self, number: int, how: str, pause: float) -> None:
        async def change(member: Member) -> None:
            await member.end_reading()
            member.read(how)

        self._act(change(self._member(number)), pause)

    @has_members
    @rule(number=numbers, partition=numbers, percent=percents, pause=pauses)
    def seek(self, number: int, partition: int, percent: int, pause: float) -> None:
        found = PARTITIONS[partition]
        self._act(self._member(number).seek(found, self.place(found, percent)), pause)

    @has_members
    @rule(number=numbers, pause=pauses)
    def commit(self, number: int, pause: float) -> None:
        self._act(self._member(number).commit(), pause)

    @has_members
    @rule(number=numbers, partition=numbers, pause=pauses)
    def pause_or_resume(self, number: int, partition: int, pause: float) -> None:
        async def change(member: Member, found: TopicPartition) -> None:
            if found in member.consumer.assignment():
                paused = found in member.consumer.paused()
                (member.consumer.resume if paused else member.consumer.pause)([found])

        self._act(change(self._member(number), PARTITIONS[partition]), pause)

    # -- the end ----------------------------------------------------------------------------------

    async def _wait_for_commits(self) -> None:
        """Wait until the committed offsets are the ends of the log."""
        ends = {partition: self.end(partition) for partition in PARTITIONS}
        found: dict[TopicPartition, int] = {}
        for _ in range(300):
            rows = self.stage.cluster.groups.offsets.committed("g")
            found = {partition: row.offset for partition, row in rows.items()}
            if found == ends:
                return
            await asyncio.sleep(1)
        assert found == ends

    async def settle_all(self) -> None:
        if not self._members:
            await self._add_member("poll")
        for member in self._members:
            member.consumer.resume()
        await self._wait_for_commits()
        for partition in PARTITIONS:  # A waiting call passes what it does not return.
            await self.transaction(partition, 1, commits=False)
        await self._wait_for_commits()
        for member in self._members:
            for partition in member.consumer.assignment():
                assert await member.consumer.position(partition) == self.end(partition)
                assert not member.consumer.health().in_progress
        assert not any(self._missing(partition) for partition in PARTITIONS)


def test_no_reading_call_loses_records_or_leaves_commits_behind() -> None:
    run_histories(partial(ReadingMachine, "default"), 14, 50)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_reading_call_loses_records_in_long_histories(protocol: str) -> None:
    run_histories(partial(ReadingMachine, protocol), 14, 60)
