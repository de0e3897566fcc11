"""All reading calls, in random order, compared with a model of what may be committed.

Two statements hold for each of them. At every commit, all records below the committed offset have
been handled, or the application has given them up: by a seek, a `commit`, or another poll. Once
nothing happens any more, the committed offset is the position, which is the end of the log.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from kafka_async.errors import ClientClosedError, KafkaError, RecordDeserializationError
from kafka_async.records.batch import RecordBatch
from kafka_async.testing.clock import run_virtual
from kafka_async.types import ProducerRecord, TopicPartition
from tests.compacted_batch import end_later
from tests.conftest import SEED
from tests.consumer.conftest import Stage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from kafka_async.consumer.consumer import Consumer
    from kafka_async.consumer.partition_streams import PartitionStream
    from kafka_async.embedded.state.offset_metadata_manager import CommittedOffset
    from kafka_async.kernel import Record

pytestmark = pytest.mark.one_kernel

PARTITIONS: Final = (TopicPartition("t", 0), TopicPartition("t", 1))
BAD: Final = b"not a number"
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
Offsets = defaultdict[TopicPartition, set[int]]


class HandlerError(Exception):
    """Raised by a handler, once for a record."""


class Member:
    """A consumer of the group, and the task in which it reads.

    Attributes:
        in_hand: Records that the reading call has returned and that are not handled yet.
    """

    def __init__(self, model: ReadingModel, consumer: Consumer, name: str) -> None:
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
            if (partition, record.offset) in self._model.failing:
                self._model.failing.remove((partition, record.offset))
                raise HandlerError
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


class Step(NamedTuple):
    """The random values of a step.

    Attributes:
        member: Number of the member, modulo their count.
        partition: The partition.
        records: A number of records.
        percent: A place in the log.
        how: A reading call.
    """

    member: int
    partition: TopicPartition
    records: int
    percent: int
    how: str

    @classmethod
    def choose(cls, random: Random) -> Step:
        """Choose a step."""
        return cls(
            random.randrange(2),
            random.choice(PARTITIONS),
            random.randint(1, 20),
            random.randint(0, 100),
            random.choice(list(READING_CALLS)),
        )


OPERATIONS: Final[Mapping[str, int]] = {
    "write": 4,
    "write_undecodable": 5,
    "write_transaction": 3,
    "delete_records": 1,
    "join": 2,
    "leave": 1,
    "crash": 1,
    "read_differently": 3,
    "seek": 4,
    "commit": 1,
    "pause_or_resume": 1,
    "let_a_handler_fail": 2,
    "settle": 2,
}
"""Methods of the model by their frequency."""


class ReadingModel:
    """A group of at most two members, which read a topic while it is written.

    Args:
        protocol: Key of `PROTOCOLS`.

    Attributes:
        handled: Records that a handler has handled.
        given_up: Offsets that may be committed although they were not handled.
        undecodable: Records that cannot be deserialized.
        failing: Records whose handlers are to fail once.
    """

    def __init__(self, protocol: str) -> None:
        self._options = {**OPTIONS, **PROTOCOLS[protocol]}
        self.handled: Offsets = defaultdict(set)
        self.given_up: Offsets = defaultdict(set)
        self.undecodable: Offsets = defaultdict(set)
        self.failing: set[tuple[TopicPartition, int]] = set()
        self._visible: Offsets = defaultdict(set)
        self._members: list[Member] = []
        self._names = 0
        self._wrong: list[str] = []
        self._history: list[str] = []

    async def run(self, random: Random, how: str, steps: int) -> None:
        """Run random steps, which begin with this reading call and end when all is read."""
        try:
            async with Stage() as self._stage:
                async with self._stage.producer(transactional_id="x") as self._producer:
                    await self._begin(how)
                    for _ in range(steps):
                        (operation,) = random.choices(list(OPERATIONS), list(OPERATIONS.values()))
                        pause = random.choice([0, 0.1, 0.3, 0.5, 1, 3])
                        await self._act(operation, Step.choose(random), pause)
                    await self._act("settle", Step.choose(random), 0)
                for member in list(self._members):
                    await self._stop(member)
        except BaseException as error:
            error.add_note("\n".join(["begins with " + how, *self._history]))
            raise

    async def _begin(self, how: str) -> None:
        await self._stage.topic("t", len(PARTITIONS))
        stored = self._stage.cluster.groups.offsets
        commit = stored.commit

        def check_and_commit(
            group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
        ) -> None:
            for partition, row in offsets.items():
                self._check_commit(partition, row.offset)
            commit(group_id, offsets)

        stored.commit = check_and_commit
        await self._add_member(how)

    def _check_commit(self, partition: TopicPartition, offset: int) -> None:
        done = self.handled[partition] | self.given_up[partition]
        lost = sorted(each for each in self._visible[partition] - done if each < offset)
        if lost:
            self._wrong.append(f"{partition} committed at {offset}, without {lost}")

    async def _act(self, operation: str, step: Step, pause: float) -> None:
        self._history.append(f"{operation}, then {pause} s: {step}")
        await getattr(self, f"_{operation}")(step)
        await asyncio.sleep(pause)
        assert not self._wrong
        for member in self._members:
            member.check_reading()

    # -- the log ----------------------------------------------------------------------------------

    def _end(self, partition: TopicPartition) -> int:
        return self._stage.partition(*partition).log.end_offset

    def _place(self, step: Step) -> int:
        log = self._stage.partition(*step.partition).log
        return log.start_offset + (log.end_offset - log.start_offset) * step.percent // 100

    async def _write(self, step: Step) -> None:
        self._append(step.partition, [b"%d" % number for number in range(step.records)], gap=2)

    async def _write_undecodable(self, step: Step) -> None:
        values = [b"%d" % number for number in range(step.records)]
        values.insert(step.records * step.percent // 100, BAD)
        self._append(step.partition, values)
        for member in self._members:
            member.note_undecodable()

    def _append(self, partition: TopicPartition, values: list[bytes], gap: int = 0) -> None:
        """Append a batch; after it there is a gap, as compaction leaves it."""
        rows = [ProducerRecord("", value, key=value[-1:]) for value in values]
        first = self._end(partition)
        for place, value in enumerate(values):
            self._visible[partition].add(first + place)
            if value == BAD:
                self.undecodable[partition].add(first + place)
        batch = RecordBatch.build(rows, timestamp=1_000).frame()
        self._stage.append(partition, end_later(batch, len(values) - 1 + gap))

    async def _write_transaction(self, step: Step) -> None:
        transaction = await self._producer.begin()
        first, commits = self._end(step.partition), step.percent < 50
        if commits:
            self._visible[step.partition] |= set(range(first, first + step.records))
        for number in range(step.records):
            await transaction.enqueue("t", b"%d" % number, partition=step.partition.partition)
        await self._producer.flush()  # An abort would drop what was not sent.
        await (transaction.commit() if commits else transaction.abort())

    async def _delete_records(self, step: Step) -> None:
        target = self._place(step)
        self.given_up[step.partition] |= set(range(target))
        self._stage.partition(*step.partition).log.delete_records_before(target)

    # -- members ----------------------------------------------------------------------------------

    def _member(self, step: Step) -> Member | None:
        return self._members[step.member % len(self._members)] if self._members else None

    async def _join(self, step: Step) -> None:
        if len(self._members) < 2:
            await self._add_member(step.how)

    async def _add_member(self, how: str) -> None:
        self._names += 1
        name = f"member-{self._names}"
        consumer = self._stage.consumer("t", client_id=name, **self._options)
        await consumer.start()
        self._members.append(Member(self, consumer, name))
        self._members[-1].read(how)

    async def _leave(self, step: Step) -> None:
        if (member := self._member(step)) is not None:
            await self._stop(member)

    async def _stop(self, member: Member) -> None:
        self._members.remove(member)
        await member.consumer.stop()
        await member.end_reading()

    async def _crash(self, step: Step) -> None:
        """End a member whose requests do not arrive any more."""
        if (member := self._member(step)) is not None:
            self._members.remove(member)
            self._stage.cluster.faults.add(
                when=lambda context, _: context.client_id == member.name, hang=True, count=None
            )
            await member.end_reading()
            await member.consumer.stop(0.1)

    async def _read_differently(self, step: Step) -> None:
        if (member := self._member(step)) is not None:
            await member.end_reading()
            member.read(step.how)

    async def _seek(self, step: Step) -> None:
        if (member := self._member(step)) is not None:
            await member.seek(step.partition, self._place(step))

    async def _commit(self, step: Step) -> None:
        if (member := self._member(step)) is not None:
            await member.commit()

    async def _pause_or_resume(self, step: Step) -> None:
        member = self._member(step)
        if member is None or step.partition not in member.consumer.assignment():
            return
        paused = step.partition in member.consumer.paused()
        (member.consumer.resume if paused else member.consumer.pause)([step.partition])

    async def _let_a_handler_fail(self, step: Step) -> None:
        self.failing.add((step.partition, self._place(step) + step.records // 2))

    # -- the end ----------------------------------------------------------------------------------

    async def _wait_for_commits(self) -> None:
        """Wait until the committed offsets are the ends of the log."""
        ends = {partition: self._end(partition) for partition in PARTITIONS}
        found: dict[TopicPartition, int] = {}
        for _ in range(300):
            rows = self._stage.cluster.groups.offsets.committed("g")
            found = {partition: row.offset for partition, row in rows.items()}
            if found == ends:
                return
            await asyncio.sleep(1)
        assert found == ends

    async def _settle(self, step: Step) -> None:
        if not self._members:
            await self._add_member(step.how)
        for member in self._members:
            member.consumer.resume()
        await self._wait_for_commits()
        for partition in PARTITIONS:  # A waiting call passes what it does not return.
            await self._write_transaction(step._replace(partition=partition, percent=100))
        await self._wait_for_commits()
        assert not self._wrong
        for member in self._members:
            for partition in member.consumer.assignment():
                assert await member.consumer.position(partition) == self._end(partition)
                assert not member.consumer.health().in_progress
        for partition in PARTITIONS:
            done = self.handled[partition] | self.given_up[partition]
            assert self._visible[partition] <= done


def run_histories(protocol: str, count: int, steps: int) -> None:
    """Run as many histories for each reading call, each on its own event loop."""
    for number in range(count):
        for how in READING_CALLS:
            random = Random(f"{SEED} {number} {how}")
            run_virtual(ReadingModel(protocol).run(random, how, steps))


def test_no_reading_call_loses_records_or_leaves_commits_behind() -> None:
    run_histories("default", 1, 50)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_reading_call_loses_records_in_long_histories(protocol: str) -> None:
    run_histories(protocol, 2, 60)
