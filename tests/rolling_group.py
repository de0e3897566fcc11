"""A group whose members are restarted one by one while records flow, and what it must never do."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from kafka_async.consumer.consumer import RebalanceListener
from kafka_async.errors import ClientClosedError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection

    from kafka_async.consumer.consumer import Consumer
    from kafka_async.producer.producer import Producer
    from kafka_async.types import TopicPartition


class _Owner(RebalanceListener):
    """Tells the group which partitions a member gets and gives up."""

    def __init__(self, group: RollingGroup, name: str) -> None:
        self._group, self._name = group, name

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._group.note_assigned(self._name, partitions)

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._group.note_revoked(self._name, partitions)

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._group.note_lost(self._name, partitions)


class RollingGroup:
    """Runs members, each in a task that polls, and a producer.

    Args:
        consumer: Returns a consumer that was not started; it is given the options of `start`.
        partitions: Number of partitions of the topic.

    Attributes:
        seen: Partition and offset of each returned record.
        sent: Number of records sent to each partition.
        owned_twice: Partitions that a member got while another one had them.
        lost: Partitions that the coordinator took from a member.
        most_rebalances_without_owner: Largest number of rebalances, each of which ended with
            assignments, after which a partition that had no owner has got one.
    """

    def __init__(self, consumer: Callable[..., Consumer], partitions: int) -> None:
        self.seen: list[tuple[int, int]] = []
        self.sent = 0
        self.owned_twice: list[int] = []
        self.lost: list[int] = []
        self.most_rebalances_without_owner = 0
        self.members: dict[str, Consumer] = {}
        self._consumer = consumer
        self._partitions = partitions
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._owners: dict[int, str] = {}
        self._revoked_in: dict[int, int] = {}
        self._generations: dict[str, int] = {}
        self._completed: set[int] = set()

    async def start(self, name: str, **options: Any) -> None:
        """Start a member."""
        member = self._consumer(client_id=name, listener=_Owner(self, name), **options)
        self.members[name] = member
        await member.start()
        self._tasks[name] = asyncio.create_task(self._poll(member))

    async def stop(self, name: str) -> None:
        """Stop a member in order."""
        task = self._tasks.pop(name)
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()
        await self.members[name].stop()
        del self.members[name]

    async def restart(self, name: str, **options: Any) -> None:
        """Stop a member and start it with other options, after the others have its partitions."""
        await self.wait_until_balanced()
        await self.stop(name)
        await self.wait_until_balanced()
        await self.start(name, **options)

    async def upgrade_strategy(self, count: int) -> None:
        """Start members with range; restart them with both assignors, then with the new one."""
        names = [f"member-{number}" for number in range(count)]
        old, new = "range", "cooperative-sticky"
        for name in names:
            await self.start(name, partition_assignment_strategy=[old])
        for strategy in ([old, new], [new]):
            for name in names:
                await self.restart(name, partition_assignment_strategy=strategy)
        await self.wait_until_balanced()

    async def close(self) -> None:
        """Stop all members."""
        for name in list(self._tasks):
            await self.stop(name)

    @asynccontextmanager
    async def producing(
        self, producer: Producer, topic: str, *, interval: float
    ) -> AsyncGenerator[None]:
        """Send a record to each partition again and again; at the end wait until all are read."""
        ended = asyncio.Event()
        async with producer:
            task = asyncio.create_task(self._produce(producer, topic, interval, ended))
            try:
                yield
            finally:
                ended.set()
                await task
        await self._wait_until(lambda: len(self.seen) >= self.sent * self._partitions)

    async def wait_until_balanced(self) -> None:
        """Wait until each partition has one owner, the members own equally many, and none lags.

        A member whose epoch lags when a consumer group becomes a classic one loses its partitions.
        """
        least = self._partitions // len(self.members)

        def balanced() -> bool:
            sizes = [len(member.assignment()) for member in self.members.values()]
            owned = len(self._owners) == sum(sizes) == self._partitions
            same = len({self._generation(name) for name in self.members}) == 1
            return same and owned and min(sizes) >= least and max(sizes) <= least + 1

        await self._wait_until(balanced)

    def check(self) -> None:
        """Check that each record was read once, and that no partition had two owners."""
        assert self.owned_twice == []
        assert self.lost == []
        assert sorted(self.seen) == [
            (partition, offset)
            for partition in range(self._partitions)
            for offset in range(self.sent)
        ]

    # -- for listeners ----------------------------------------------------------------------------

    def note_assigned(self, name: str, partitions: Collection[TopicPartition]) -> None:
        """Note the partitions that a member has got."""
        generation = self._generation(name)
        self._completed.add(generation)
        for _, index in partitions:
            if index in self._owners:
                self.owned_twice.append(index)
            self._owners[index] = name
            since = self._revoked_in.pop(index, generation)
            rebalances = sum(since < each <= generation for each in self._completed)
            self.most_rebalances_without_owner = max(self.most_rebalances_without_owner, rebalances)

    def note_revoked(self, name: str, partitions: Collection[TopicPartition]) -> None:
        """Note the partitions that a member gives up."""
        for _, index in partitions:
            if self._owners.get(index) == name:
                del self._owners[index]
            self._revoked_in[index] = self._generation(name)

    def note_lost(self, name: str, partitions: Collection[TopicPartition]) -> None:
        """Note the partitions that the coordinator has taken from a member."""
        self.lost += [index for _, index in partitions]
        self.note_revoked(name, partitions)

    def _generation(self, name: str) -> int:
        """Return the generation of a member; while it is stopped, the last one."""
        with suppress(ClientClosedError):
            self._generations[name] = self.members[name].group_metadata().generation_id
        return self._generations[name]

    async def _poll(self, member: Consumer) -> None:
        while True:
            records = await member.poll(timeout=0.2)
            self.seen += [(record.partition, record.offset) for record in records]

    async def _produce(
        self, producer: Producer, topic: str, interval: float, ended: asyncio.Event
    ) -> None:
        while not ended.is_set():
            self.sent += 1
            for partition in range(self._partitions):
                await producer.enqueue(topic, b"value", partition=partition)
            await asyncio.sleep(interval)

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(60):
                while not condition():
                    for task in self._tasks.values():
                        if task.done():
                            task.result()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"this lasts too long: {self}") from None

    def __repr__(self) -> str:
        members = {
            name: (self._generation(name), sorted(it.partition for it in member.assignment()))
            for name, member in self.members.items()
        }
        return f"{len(self.seen)} records of {self.sent} x {self._partitions}, {members}"
