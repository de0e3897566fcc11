"""A random program that deletes, creates, enlarges and moves a topic while clients use it.

A record's value names the generation of its topic: how often the topic was created. What a reader
returns must fit: after a record of one generation none of an earlier one follows, the records of a
partition come in order and once, and at the end each reader has all records of the last generation.
A copier commits its offsets in the transactions that copy what it has read to another topic; for
what it has committed, and for the copies, the same is true.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from kafka_async.admin import ConfigResource, NewTopic, ResourceType
from kafka_async.consumer.consumer import Consumer
from kafka_async.errors import KafkaError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kafka_async.admin import Admin
    from kafka_async.consumer.share.share_consumer import ShareConsumer
    from kafka_async.kernel import Record
    from kafka_async.producer.producer import Producer

READERS: dict[str, dict[str, Any]] = {
    "no group": {"group_id": None},
    "range": {"partition_assignment_strategy": ["range"]},
    "cooperative": {"partition_assignment_strategy": ["cooperative-sticky"]},
    "consumer": {"group_protocol": "consumer"},
}
MAX_PARTITIONS = 4
BACKLOG = 30
"""Maximum records per step."""


class Reader:
    """Reads the topic and checks each record; restarts on request.

    Attributes:
        seen: Values of the last generation that were returned.
        once: Whether no record may come twice.
    """

    def __init__(self, name: str, create: Callable[[], Consumer | ShareConsumer]) -> None:
        self.seen: set[bytes] = set()
        self.name = name
        self._create = create
        self._client = create()
        self.once = isinstance(self._client, Consumer)
        self._generation = -1
        self._next: defaultdict[int, int] = defaultdict(int)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._client.start()
        self._task = asyncio.create_task(self._read(), name=f"reader {self.name}")

    async def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})
        await self._client.stop()
        if not self._task.cancelled():
            self._task.result()

    async def restart(self) -> None:
        """Stop, which commits what was read, and start again in the same group."""
        if "group" in self.name:
            return  # it would start at the beginning
        await self.stop()
        self._client = self._create()
        await self.start()

    def check(self) -> None:
        """Raise what reading has raised."""
        if self._task is not None and self._task.done():
            self._task.result()

    async def _read(self) -> None:
        while True:
            for record in await self._client.poll(timeout=1, max_records=7):
                self._check(record)

    def _check(self, record: Record[bytes, bytes] | Any) -> None:
        assert record.value is not None
        generation = int(record.value.split(b":")[0])
        where = f"{self.name}: {record}"
        assert generation >= self._generation, f"{where} after generation {self._generation}"
        if generation > self._generation:
            self._generation, self._next = generation, defaultdict(int)
            self.seen.clear()
        if self.once:
            assert record.value not in self.seen, f"{where} twice"
            assert record.offset >= self._next[record.partition], f"{where} again"
            self._next[record.partition] = record.offset + 1
        self.seen.add(record.value)


class Copier(Reader):
    """Copies records and commits their offsets in one transaction, then checks the records."""

    def __init__(
        self, name: str, create: Callable[[], Consumer], producer: Producer, copies: str
    ) -> None:
        super().__init__(name, create)
        self._producer, self._copies = producer, copies
        self._stopping = False

    async def stop(self) -> None:
        """Stop between two transactions."""
        assert self._task is not None
        self._stopping = True
        await asyncio.wait({self._task})
        self._stopping = False
        await super().stop()

    async def _read(self) -> None:
        while not self._stopping:
            if records := await self._client.poll(timeout=1, max_records=7):
                try:
                    await self._copy(records)
                except KafkaError as error:
                    _check_end_of_topic(error)
                    await self._go_back()
                else:
                    for record in records:
                        self._check(record)

    async def _copy(self, records: Sequence[Any]) -> None:
        assert isinstance(self._client, Consumer)
        async with self._producer.transaction() as transaction:
            for record in records:
                await transaction.enqueue(self._copies, record.value)
            await transaction.commit_offsets(self._client)

    async def _go_back(self) -> None:
        assert isinstance(self._client, Consumer)
        try:
            await self._client.seek_to_committed()
        except UnknownTopicOrPartitionError:  # it was deleted, and not created again yet
            await asyncio.sleep(0.2)
            await self._go_back()


class TopicChanges:
    """Runs the program.

    Args:
        consumer: Creates a consumer of topics, with options.
        share_consumer: Creates a share consumer in the same way.
        admin: Started admin client.
        producer: Started producer.
        transactional: Started transactional producer.
        copying: Another one, for the copier.
        topic: Name of the topic.
        brokers: Ids of the brokers; each has a replica of each partition.
        move_leader: Moves the leader of a partition.
        seed: Seed of the program.
    """

    def __init__(
        self,
        consumer: Callable[..., Consumer],
        share_consumer: Callable[..., ShareConsumer],
        admin: Admin,
        producer: Producer,
        transactional: Producer,
        copying: Producer,
        topic: str,
        brokers: list[int],
        move_leader: Callable[[str, int], Awaitable[object]],
        seed: int,
    ) -> None:
        self._admin, self._producer, self._transactional = admin, producer, transactional
        self._topic, self._brokers, self._move_leader = topic, brokers, move_leader
        self._random = random.Random(seed)
        self._generation = self._number = self._partitions = 0
        self._expected: set[bytes] = set()  # of the last generation
        self._maybe: set[bytes] = set()  # their sending has failed, maybe after some were written
        self.log: list[str] = []
        options: dict[str, Any] = {
            "metadata_max_age_ms": 1000,
            "auto_offset_reset": "earliest",
            "isolation_level": "read_committed",
            "enable_auto_commit": True,
        }

        def reader(name: str, more: dict[str, Any]) -> Reader:
            given = {"group_id": f"{topic}-{name}", **options, **more}
            return Reader(name, lambda: consumer(topic, **given))

        self.readers = [reader(name, more) for name, more in READERS.items()]
        copies = f"{topic}-copies"
        self._copies = NewTopic(copies, -1, assignments={0: brokers})
        protocol = READERS[self._random.choice([*READERS][1:])]
        manual = {**options, **protocol, "group_id": f"{topic}-copier", "enable_auto_commit": False}
        self.readers += [
            Copier("copier", lambda: consumer(topic, **manual), copying, copies),
            Reader("copies, no group", lambda: consumer(copies, group_id=None, **options)),
        ]
        self._share_group = f"{topic}-share"
        shared = {"group_id": self._share_group, "metadata_max_age_ms": 1000}
        self.readers.append(Reader("share", lambda: share_consumer(topic, **shared)))

    async def run(self, steps: int) -> None:
        """Run the program, then wait until all readers have the last generation."""
        group = ConfigResource(ResourceType.GROUP, self._share_group)
        reset = {"share.auto.offset.reset": "earliest", "share.isolation.level": "read_committed"}
        await self._admin.alter_configs({group: reset})
        await self._admin.create_topics([self._copies])
        await self._create()
        choices: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (6, self._produce),
            (2, self._produce_in_transaction),
            (2, self._recreate),
            (1, self._enlarge),
            (2, self._move),
            (1, self._restart),
            (3, self._wait),
        ]
        for each in self.readers:
            await each.start()
        try:
            for _ in range(steps):
                [step] = self._random.choices(
                    [step for _, step in choices], [weight for weight, _ in choices]
                )
                self.log.append(step.__name__)
                await step()
                for each in self.readers:
                    each.check()
            self.log.append("end")
            await self._produce()
            await self._wait_for_readers()
        finally:
            await asyncio.gather(*(each.stop() for each in self.readers), return_exceptions=True)

    async def _wait_for_readers(self) -> None:
        try:
            async with asyncio.timeout(60):
                while any(not self._has_all(each) for each in self.readers):
                    await asyncio.sleep(0.2)
                    for each in self.readers:
                        each.check()
        except TimeoutError:
            differ = {
                it.name: sorted(self._expected ^ it.seen)[:5]
                for it in self.readers
                if not self._has_all(it)
            }
            raise AssertionError(f"{self.log}: readers differ by records: {differ}") from None

    def _has_all(self, reader: Reader) -> bool:
        return self._expected <= reader.seen <= self._expected | self._maybe

    async def _create(self) -> None:
        self._partitions = self._random.randint(1, MAX_PARTITIONS)
        self._generation += 1
        self._expected = set()
        assignments = dict.fromkeys(range(self._partitions), self._brokers)
        await self._admin.create_topics([NewTopic(self._topic, -1, assignments=assignments)])

    async def _recreate(self) -> None:
        await self._admin.delete_topics([self._topic])
        if self._random.random() < 0.5:
            await self._wait()
        await self._create()

    async def _enlarge(self) -> None:
        if self._partitions < MAX_PARTITIONS:
            self._partitions += 1
            await self._admin.create_partitions({self._topic: self._partitions})

    async def _move(self) -> None:
        for _ in range(self._random.randint(1, 4)):
            await self._move_leader(self._topic, self._random.randrange(self._partitions))

    async def _restart(self) -> None:
        await self._random.choice(self.readers).restart()

    async def _wait(self) -> None:
        await asyncio.sleep(self._random.random() * 3)

    def _values(self) -> list[bytes]:
        first = self._number
        self._number += self._random.randint(1, BACKLOG)
        return [b"%d:%d" % (self._generation, number) for number in range(first, self._number)]

    async def _produce(self) -> None:
        """Send records.

        Those of partitions that the topic does not have any more fail, as in Java's client.
        """
        values = self._values()
        try:
            await self._producer.send_many(self._topic, values)
            await self._producer.flush()
        except KafkaError as error:
            _check_failure(error)
            self._maybe.update(values)
            await self._produce()
        else:
            self._expected.update(values)

    async def _produce_in_transaction(self) -> None:
        values = self._values()
        try:
            async with self._transactional.transaction() as transaction:
                for value in values:
                    await transaction.enqueue(self._topic, value)
        except KafkaError as error:
            _check_failure(error)
            await self._produce_in_transaction()
        else:
            self._expected.update(values)


def _check_end_of_topic(error: KafkaError) -> None:
    """Raise the error again unless the topic of a transaction's offsets was deleted."""
    text = str(error)
    assert "lost since" in text or "deleted since" in text, error


def _check_failure(error: KafkaError) -> None:
    """Raise the error again unless partitions were chosen of which the topic has less now."""
    text = str(error)
    assert "got no more within" in text or "UNKNOWN_TOPIC" in text, error
