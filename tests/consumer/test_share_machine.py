"""Share consumers that acknowledge in any order and way, compared with a model of each record.

A record is delivered until it is accepted, rejected or archived by the delivery limit; none that is
accepted or rejected is delivered again; and once nothing happens any more, nothing is left.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal
from unittest import mock

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from kafka_async.admin import ConfigResource, ResourceType
from kafka_async.consumer.share.share_consumer import ShareConsumer
from kafka_async.embedded.groups.share_partition import RecordState
from kafka_async.embedded.groups.share_states import ShareKey, ShareStates
from kafka_async.errors import ClientClosedError, RecordDeserializationError
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
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from kafka_async.consumer.share.share_record import ShareRecord
    from kafka_async.embedded.groups.share_partition import StateBatch
    from kafka_async.errors import KafkaError

pytestmark = pytest.mark.one_kernel

DELIVERY_LIMIT: Final = 3
LOCK_MS: Final = 15_000
STANDSTILL: Final = 100
"""Seconds after which a record was delivered, also if a crashed member had its partition."""
CONFIGS: Final = {
    "share.auto.offset.reset": "earliest",
    "share.isolation.level": "read_committed",
    "share.record.lock.duration.ms": str(LOCK_MS),
    "share.delivery.count.limit": str(DELIVERY_LIMIT),
}
Outcome = Literal["accept", "release", "reject", "renew"]
Offset = tuple[TopicPartition, int]


def offset_of(record: ShareRecord[Any, Any]) -> Offset:
    return TopicPartition(record.topic, record.partition), record.offset


class ShareMember:
    """A consumer of the share group, and the task in which it reads.

    Attributes:
        outcomes: What the application has chosen for records, until a broker has responded.
    """

    def __init__(self, machine: ShareMachine, consumer: ShareConsumer[Any, Any], how: str) -> None:
        self.consumer = consumer
        self.outcomes: dict[Offset, Outcome] = {}
        self._machine = machine
        self._implicit = how.startswith("implicit")
        self._renewed: set[Offset] = set()
        self._in_hand: dict[Offset, ShareRecord[Any, Any]] = {}
        consumer.on_acknowledged(self._on_acknowledged)
        self._call = READING_CALLS[how]
        self.task = asyncio.create_task(self._read())

    async def cancel(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})

    async def read_again(self) -> None:
        """Cancel the reading call, and read anew; what is in hand is handled then."""
        await self.cancel()
        for offset, record in list(self._in_hand.items()):
            if self._implicit:
                self._machine.handled[offset[0]].add(offset[1])
            else:
                self._choose(record, "release")
        self.task = asyncio.create_task(self._read())

    async def commit(self) -> None:
        """Commit as the application may; without acknowledgements, what is in hand is accepted."""
        if self._implicit:
            for partition, offset in self._in_hand:
                self._machine.handled[partition].add(offset)
            self.accept_in_hand()
        await self.consumer.commit(timeout=5)

    def accept_in_hand(self) -> None:
        """Note that the next call accepts what the last poll has returned."""
        self.outcomes |= dict.fromkeys(self._in_hand, "accept")
        self._in_hand.clear()

    def take(self, records: Sequence[ShareRecord[Any, Any]]) -> None:
        for record in records:
            self._machine.on_delivered(record, renewed=offset_of(record) in self._renewed)
            self._in_hand[offset_of(record)] = record

    async def handle(self, record: ShareRecord[Any, Any]) -> None:
        """Handle a record that is accepted by the next call."""
        partition, offset = offset_of(record)
        await asyncio.sleep(self._machine.seconds(offset))
        self._machine.handled[partition].add(offset)

    async def handle_and_choose(self, record: ShareRecord[Any, Any]) -> None:
        """Handle a record, and acknowledge it in a way that depends on its offset."""
        partition, offset = place = offset_of(record)
        await asyncio.sleep(self._machine.seconds(offset))
        outcome: Outcome = "accept"
        try:
            self._machine.fail_once(partition, offset)
        except HandlerError:
            outcome = "release"
        else:
            if offset % 7 == 3 and place not in self._renewed:
                self._renewed.add(place)
                outcome = "renew"
            elif offset % 5 == 2:
                outcome = "reject"
                self._machine.rejected[partition].add(offset)
            else:
                self._machine.handled[partition].add(offset)
        self._choose(record, outcome)

    def _choose(self, record: ShareRecord[Any, Any], outcome: Outcome) -> None:
        self._in_hand.pop(offset_of(record), None)
        self.outcomes[offset_of(record)] = outcome
        self.consumer.acknowledge(record, outcome)

    def _on_acknowledged(
        self, partition: TopicPartition, offsets: frozenset[int], error: KafkaError | None
    ) -> None:
        for offset in offsets:
            outcome = self.outcomes.pop((partition, offset), None)
            if error is None and outcome in ("accept", "reject"):
                self._machine.on_recorded(partition, offset)

    async def _read(self) -> None:
        while True:
            try:
                await self._call(self)
            except RecordDeserializationError:  # The client has released the record.
                continue
            except ClientClosedError:
                return
            else:
                return


async def poll(member: ShareMember, limit: int | None) -> None:
    while True:
        member.accept_in_hand()
        records = await member.consumer.poll(timeout=1, max_records=limit)
        member.take(records)
        for record in records:
            await member.handle(record)


async def iterate(member: ShareMember) -> None:
    member.accept_in_hand()
    async for record in member.consumer:
        member.take([record])
        await member.handle(record)
        member.accept_in_hand()


async def acknowledge(member: ShareMember, limit: int | None) -> None:
    while True:
        records = await member.consumer.poll(timeout=1, max_records=limit)
        member.take(records)
        for record in records:
            await member.handle_and_choose(record)


READING_CALLS: Final[Mapping[str, Callable[[ShareMember], Awaitable[None]]]] = {
    "implicit poll": partial(poll, limit=None),
    "implicit poll of few": partial(poll, limit=2),
    "implicit async for": iterate,
    "explicit poll": partial(acknowledge, limit=None),
    "explicit poll of few": partial(acknowledge, limit=2),
}
calls = st.sampled_from(list(READING_CALLS))
has_members = precondition(lambda self: bool(self._members))


class ShareMachine(LogMachine):
    """A share group of at most two members, which read a topic while it is written.

    Attributes:
        handled: Records that a handler has handled.
        rejected: Records that the application has rejected.
    """

    def __init__(self) -> None:
        self.handled = Offsets(set)
        self.rejected = Offsets(set)
        self._done = Offsets(set)  # acknowledged or archived by the broker
        self._deliveries = 0
        self._slow: set[int] = set()
        self._members: list[ShareMember] = []
        self._names = 0
        self._states: ShareStates | None = None
        self._write = ShareStates.write
        self._patch = mock.patch.object(ShareStates, "write", self._check_and_write())
        self._patch.start()
        super().__init__()

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self._patch.stop()

    async def begin(self) -> None:
        async with self.stage.admin() as admin:
            await admin.alter_configs({ConfigResource(ResourceType.GROUP, "g"): CONFIGS})

    # -- what the broker stores -------------------------------------------------------------------

    def _check_and_write(self) -> Any:
        def write(
            states: ShareStates,
            key: ShareKey,
            epoch: int,
            start: int,
            done: int,
            batches: Sequence[StateBatch],
        ) -> None:
            self._write(states, key, epoch, start, done, batches)
            self._states = states
            partition = PARTITIONS[key.partition]
            for first, last, state, count in batches:
                for offset in self.visible[partition].intersection(range(first, last + 1)):
                    self._on_stored(partition, offset, state, count)

        return write

    def _on_stored(
        self, partition: TopicPartition, offset: int, state: RecordState, count: int
    ) -> None:
        named = f"{partition} {offset}"
        self._deliveries += 1
        given_up = self.rejected[partition] | self.deleted[partition]
        if state is RecordState.ACKNOWLEDGED and offset not in self.handled[partition]:
            self.wrong.append(f"{named} was accepted, but not handled")
        if state is RecordState.ARCHIVED and count < DELIVERY_LIMIT and offset not in given_up:
            self.wrong.append(f"{named} was archived after {count} deliveries, but not rejected")
        if state in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED):
            self._done[partition].add(offset)
        elif offset in self._done[partition]:
            self.wrong.append(f"{named} was done, and is {state.name} again")

    def on_delivered(self, record: ShareRecord[Any, Any], *, renewed: bool) -> None:
        """Check a record that a poll has returned.

        A broker reports no error for the renewal of a record below its start offset, such as one
        that was archived when its lock ended, so that the poll returns that again.
        """
        partition, offset = offset_of(record)
        if offset in self._done[partition] and not renewed:
            self.wrong.append(f"{partition} {offset} was delivered again")
        if offset not in self.visible[partition] - self.undecodable[partition]:
            self.wrong.append(f"{partition} {offset} was delivered, and is no record")
        if not 1 <= record.delivery_count <= DELIVERY_LIMIT:
            self.wrong.append(f"{partition} {offset} was delivered {record.delivery_count} times")

    def on_recorded(self, partition: TopicPartition, offset: int) -> None:
        if offset not in self._done[partition] | self.deleted[partition]:
            self.wrong.append(f"{partition} {offset} is reported as recorded, and is not")

    def check_members(self) -> None:
        for member in self._members:
            if member.task.done() and not member.task.cancelled():
                member.task.result()

    # -- handlers ---------------------------------------------------------------------------------

    def seconds(self, offset: int) -> float:
        """Return how long the handler of a record takes: longer than its lock if told so, once."""
        if offset in self._slow:
            self._slow.remove(offset)
            return LOCK_MS / 1000 + 1
        return offset * 7 % 5 / 5

    @rule(number=numbers, percent=percents)
    def let_a_lock_expire(self, number: int, percent: int) -> None:
        self._slow.add(self.place(PARTITIONS[number], percent))

    # -- members ----------------------------------------------------------------------------------

    def _member(self, number: int) -> ShareMember:
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
        mode: Any = how.split()[0]
        consumer = ShareConsumer[Any, Any](
            self.stage.cluster.bootstrap_servers,
            dialer=self.stage.network,
            topics=[TOPIC],
            group_id="g",
            client_id=f"member-{self._names}",
            max_poll_records=5,
            value_deserializer=int,
            share_acknowledgement_mode=mode,
        )
        await consumer.start()
        self._members.append(ShareMember(self, consumer, how))

    @has_members
    @rule(number=numbers, pause=pauses)
    def leave(self, number: int, pause: float) -> None:
        self._act(self._stop(self._member(number)), pause)

    async def _stop(self, member: ShareMember) -> None:
        self._members.remove(member)
        await member.consumer.stop()
        await member.cancel()

    async def stop_members(self) -> None:
        for member in list(self._members):
            await self._stop(member)

    @has_members
    @rule(number=numbers, pause=pauses)
    def crash(self, number: int, pause: float) -> None:
        """End a member whose requests do not arrive any more."""

        async def end(member: ShareMember) -> None:
            self._members.remove(member)
            name = member.consumer.config.client_id
            self.stage.cluster.faults.add(
                when=lambda context, _: context.client_id == name, hang=True, count=None
            )
            await member.cancel()
            await member.consumer.stop(0.1)

        self._act(end(self._member(number)), pause)

    @has_members
    @rule(number=numbers, pause=pauses)
    def read_again(self, number: int, pause: float) -> None:
        self._act(self._member(number).read_again(), pause)

    @has_members
    @rule(number=numbers, pause=pauses)
    def commit(self, number: int, pause: float) -> None:
        self._act(self._member(number).commit(), pause)

    # -- the end ----------------------------------------------------------------------------------

    def _left(self) -> dict[TopicPartition, set[int]]:
        """Return the records of each partition that are not done."""
        return {it: self.visible[it] - self._done[it] - self.deleted[it] for it in PARTITIONS}

    async def settle_all(self) -> None:
        if not self._members:
            await self._add_member("explicit poll")
        former: object = None
        while any(left := self._left().values()):
            assert former != (former := (self._deliveries, self._left())), f"stands still: {left}"
            await asyncio.sleep(STANDSTILL)
        await asyncio.sleep(LOCK_MS / 1000)
        for member in self._members:
            assert not member.outcomes
            assert not member.consumer.statistics().acquired_records


def test_share_consumers_deliver_each_record_until_it_is_done() -> None:
    run_histories(ShareMachine, 8, 40)


@pytest.mark.slow
def test_share_consumers_deliver_each_record_until_it_is_done_in_long_histories() -> None:
    run_histories(ShareMachine, 40, 60)
