"""A producer of an embedded cluster in memory, for tests on virtual time."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from kafka_async.client.client import services_of
from kafka_async.config import ProducerConfig
from kafka_async.errors import KafkaError
from kafka_async.producer import runtime
from kafka_async.producer.producer import preload
from kafka_async.protocol.messages.produce import ProduceRequest
from kafka_async.records.batch import iter_batches
from kafka_async.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from tests.embedded_client import InMemory

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    import pytest

    from kafka_async.embedded.faults import Fault
    from kafka_async.hooks import ClientEvent
    from kafka_async.producer.producer import Producer
    from kafka_async.producer.transactions.state import TransactionState
    from kafka_async.producer.transactions.transaction import Transaction
    from kafka_async.records.batch import BatchHeader

E = TypeVar("E", bound="ClientEvent")

OFFSETS = {TopicPartition("lines", 0): OffsetAndMetadata(5)}
GROUP = GroupMetadata("words")

# An event loop on virtual time must not read files.
for _codec in ("none", "gzip", "snappy", "lz4", "zstd"):
    preload(_codec, transactional=True)


class Bench:
    """Runs a cluster and a producer that does not linger: `async with Bench({"clicks": [1]})`.

    The producer's client has metadata of the topics, so that the first records are sent at once.

    Args:
        topics: The leaders of each topic's partitions, as ids of brokers from 1 on; -1 for a
            partition whose only replica is stopped.
        settings: Those of the embedded cluster; topics are not created by metadata requests.
        options: Those of the producer.
    """

    def __init__(
        self,
        topics: dict[str, list[int]] | None = None,
        *,
        settings: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self._topics = topics or {}
        self._options: dict[str, Any] = {"linger_ms": 0, **options}
        leaders = [leader for row in self._topics.values() for leader in row]
        self._lost = max([1, *leaders]) + 1
        """The id of the broker that is stopped."""
        self._loses = -1 in leaders
        brokers = self._lost if self._loses else self._lost - 1
        self.memory = InMemory(brokers, **{"auto_create_topics": False, **(settings or {})})
        self.cluster = self.memory.cluster
        self.faults = self.cluster.faults
        self.batches, self.records = self.memory.batches, self.memory.records
        self.values, self.requests = self.memory.values, self.memory.requests
        self.config = ProducerConfig("memory:1", **self._options)

    async def __aenter__(self) -> Bench:
        await self.memory.__aenter__()
        for name, leaders in self._topics.items():
            assigned = [[self._lost if leader == -1 else leader] for leader in leaders]
            await self.cluster.create_topic(name, assignments=dict(enumerate(assigned)))
        if self._loses:
            await self.cluster.stop_broker(self._lost)
        self.renew()
        try:
            await self.producer.start()
            services_of(self.producer.client).metadata.track(self._topics)
            await services_of(self.producer.client).metadata.wait_for_topics(
                self._topics, timeout=1
            )
        except BaseException:
            await self.memory.__aexit__(None, None, None)
            raise
        return self

    def renew(self) -> None:
        """Replace the producer by a new one, which is not started."""
        self.producer: Producer = self.memory.producer(**self._options)

    async def __aexit__(self, *raised: Any) -> None:
        self.faults.clear()
        with suppress(KafkaError):  # a test need not deliver everything
            await self.producer.stop(0)
        await self.memory.__aexit__(*raised)

    # -- the cluster ------------------------------------------------------------------------------

    async def lead(self, topic: str, *leaders: int) -> None:
        """Give each partition of a topic a leader, and create those that are missing."""
        found = self.cluster.topics.get(topic)
        assert found is not None
        if len(leaders) > len(found.partitions):
            await self.cluster.add_partitions(topic, len(leaders))
        for number, leader in enumerate(leaders):
            await self.cluster.move_leader(TopicPartition(topic, number), leader)

    def refuse(self, *codes: int | str) -> None:
        """Answer the next Produce requests with these errors, one each."""
        for code in codes:
            self.faults.add(api="Produce", error=code)

    def hold(self, api: str = "Produce", **options: Any) -> Fault:
        """Hold requests of an API until the fault is released; by default one, unhandled.

        A broker handles no other request of the connection meanwhile.
        """
        return self.faults.add(api=api, hang=True, **options)

    async def open_transaction(self) -> Transaction:
        """Begin a transaction and send its first record, to "counts"."""
        txn = await self.producer.begin()
        await txn.send("counts", b"1")
        return txn

    @property
    def transaction_state(self) -> TransactionState:
        """The state of a transactional producer."""
        manager = self.producer._transactions  # pyright: ignore[reportPrivateUsage]  # no other test does
        assert manager is not None
        return manager.state

    def events(self, kind: type[E]) -> list[E]:
        """Return a list to which each later event of a class is added."""
        found: list[E] = []
        self.producer.client.hooks.listen(kind, found.append)
        return found

    @property
    def memory_in_use(self) -> int:
        """The bytes of buffer_memory that unacknowledged records use."""
        statistics = self.producer.statistics()
        return statistics.buffer_total_bytes - statistics.buffer_available_bytes

    # -- what was sent ----------------------------------------------------------------------------

    @property
    def sent(self) -> int:
        """The number of Produce requests that the producer has sent."""
        return self.producer.statistics().request_total

    @property
    def producing(self) -> list[int]:
        """The brokers that received the Produce requests, in order."""
        return self.memory.receivers(ProduceRequest)

    def headers(self) -> list[BatchHeader]:
        """Return the header of every batch that a broker received, in order."""
        return [
            next(iter_batches(data.records)).header
            for request in self.requests(ProduceRequest)
            for topic in request.topic_data
            for data in topic.partition_data
        ]

    def sequences(self) -> list[tuple[int, int]]:
        """Return epoch and base sequence of every batch that a broker received, in order."""
        return [(header.producer_epoch, header.base_sequence) for header in self.headers()]


def transactional(
    version: int = 2, *, settings: dict[str, Any] | None = None, **options: Any
) -> Bench:
    """Return a bench of a transactional producer, with transactions v1 or v2."""
    return Bench(
        {"counts": [1], "lines": [1]},
        settings={"transaction_version": version, **(settings or {})},
        transactional_id="t",
        **options,
    )


class Source:
    """The part of a consumer that a transaction uses."""

    def __init__(self) -> None:
        self.marked = 0

    def __offset_source__(self) -> Source:
        return self

    def uncommitted(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return OFFSETS

    def group_metadata(self) -> GroupMetadata:
        return GROUP

    async def next_generation(self, former: GroupMetadata, timeout: float) -> GroupMetadata | None:
        return None

    def mark_committed(self, offsets: object) -> None:
        self.marked += 1

    def topic_ids(self, topics: Collection[str]) -> dict[str, UUID]:
        return {}

    async def find_ended(self, topic_ids: Mapping[str, UUID], timeout: float) -> frozenset[str]:
        return frozenset()


def advance_with_each_reading(seconds: float, patch: pytest.MonkeyPatch) -> None:
    """Let each reading of a producer's clock take some time, so that all machines yield alike."""

    def ticking(loop: asyncio.AbstractEventLoop) -> object:
        readings = itertools.count(0, seconds)
        return lambda: loop.time() + next(readings)

    patch.setattr(runtime, "time_function", ticking)


def record_calls(patch: pytest.MonkeyPatch, owner: object, name: str) -> list[tuple[Any, ...]]:
    """Return a list to which each later call of a function adds its positional arguments."""
    calls: list[tuple[Any, ...]] = []
    function = getattr(owner, name)

    def recorded(*arguments: Any, **named: Any) -> Any:
        calls.append(arguments)
        return function(*arguments, **named)

    patch.setattr(owner, name, recorded)
    return calls
