"""Fetches from the replica in the consumer's rack (KIP-392)."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from kafka_async import TopicPartition
from kafka_async.embedded.settings import RACK_AWARE_REPLICA_SELECTOR
from kafka_async.hooks import Fetched, Hooks
from kafka_async.protocol.messages.fetch import FetchRequest
from kafka_async.protocol.messages.list_offsets import ListOffsetsRequest
from tests.embedded_client import settle

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kafka_async.consumer.consumer import Consumer
    from tests.consumer.conftest import Stage, StartStage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

TP: Final = TopicPartition("t", 0)
LEADER, FOLLOWER, OTHER = 1, 2, 3
RACKS: Final = {LEADER: "north", FOLLOWER: "south", OTHER: "west"}
LIFETIME: Final = 300.0
"""Default of metadata_max_age_ms, in seconds."""


class Reader(NamedTuple):
    """Holds a consumer of one partition, and the brokers that returned its records."""

    stage: Stage
    consumer: Consumer
    sources: list[int]

    async def read(self, source: int, timeout: float = 10) -> None:
        """Produce a record and expect it, and nothing else, from one broker."""
        partition = self.stage.partition(*TP)
        offset = partition.log.end_offset
        self.stage.produce(TP, [offset])
        self.sources.clear()
        records = await self.consumer.poll(timeout=timeout)
        assert [record.offset for record in records] == [offset]
        assert self.sources == [source]

    def fetches(self, broker: int) -> int:
        """Return the number of fetch requests that a broker has received."""
        return len(self.stage.requests(FetchRequest, broker))


@asynccontextmanager
async def reading(
    start_stage: StartStage, rack: str = RACKS[FOLLOWER], *, records: int = 3, **options: Any
) -> AsyncGenerator[Reader]:
    """Start three brokers in racks, and a consumer in a rack of a partition that broker 1 leads."""
    stage = await start_stage(3, racks=RACKS, replica_selector_class=RACK_AWARE_REPLICA_SELECTOR)
    await stage.cluster.create_topic("t", assignments={0: [LEADER, FOLLOWER, OTHER]})
    if records:
        stage.produce(TP, range(records))
    hooks, sources = Hooks(), list[int]()
    hooks.listen(Fetched, lambda event: sources.append(event.node_id))
    options = {"client_rack": rack, "hooks": hooks, **options}
    async with stage.consumer(partitions=[TP], **options) as consumer:
        yield Reader(stage, consumer, sources)


async def test_reads_all_records_from_the_replica_in_its_rack(start_stage: StartStage) -> None:
    async with reading(start_stage, records=100) as reader:
        offsets = [record.offset for record in await reader.consumer.poll(timeout=10)]
        assert offsets == list(range(100))
        assert set(reader.sources) == {FOLLOWER}
        assert reader.fetches(LEADER) == 1
        for _ in range(3):
            await reader.read(FOLLOWER)
        assert (reader.fetches(LEADER), reader.fetches(OTHER)) == (1, 0)
        assert set(reader.stage.receivers(ListOffsetsRequest)) == {LEADER}


@pytest.mark.parametrize("rack", ["", RACKS[LEADER], "east"])
async def test_reads_from_the_leader_without_a_follower_in_its_rack(
    start_stage: StartStage, rack: str
) -> None:
    async with reading(start_stage, rack, records=0) as reader:
        for _ in range(3):
            await reader.read(LEADER)
        assert (reader.fetches(FOLLOWER), reader.fetches(OTHER)) == (0, 0)


async def test_aborted_transactions_are_skipped_on_a_follower(start_stage: StartStage) -> None:
    async with reading(start_stage, records=0, isolation_level="read_committed") as reader:
        async with reader.stage.producer(transactional_id="x") as producer:
            for value, commits in ((b"aborted", False), (b"committed", True)):
                transaction = await producer.begin()
                await transaction.send("t", value)
                await (transaction.commit() if commits else transaction.abort())
        records = await reader.consumer.poll(timeout=10)
        assert [record.value for record in records] == [b"committed"]
        assert set(reader.sources) == {FOLLOWER}


async def test_leader_serves_until_a_stopped_follower_is_back_and_its_time_is_over(
    start_stage: StartStage,
) -> None:
    async with reading(start_stage, records=0) as reader:
        await reader.read(FOLLOWER)
        await reader.stage.cluster.stop_broker(FOLLOWER)
        await reader.read(LEADER)
        await reader.stage.cluster.start_broker(FOLLOWER)
        await reader.read(LEADER)
        await asyncio.sleep(LIFETIME + 1)
        await reader.read(FOLLOWER)


async def test_leader_serves_while_a_follower_in_sync_cannot_be_reached(
    start_stage: StartStage,
) -> None:
    """The leader would name the follower again and return no records."""
    async with reading(start_stage, records=0) as reader:
        await reader.read(FOLLOWER)
        await reader.stage.cut_off(FOLLOWER)
        await reader.read(LEADER)
        attempts = reader.stage.attempts(FOLLOWER)
        for _ in range(20):
            await reader.read(LEADER)
            await asyncio.sleep(10)
        assert reader.stage.attempts(FOLLOWER) == attempts
        reader.stage.reconnect(FOLLOWER)
        await asyncio.sleep(LIFETIME + 1)
        await reader.read(FOLLOWER)


async def test_leader_serves_once_the_time_of_a_follower_out_of_sync_is_over(
    start_stage: StartStage,
) -> None:
    """A follower that lags has the records up to its high watermark: it serves until then."""
    async with reading(start_stage, records=0) as reader:
        await reader.read(FOLLOWER)
        partition = reader.stage.partition(*TP)
        partition.isr = (LEADER, OTHER)
        await reader.read(FOLLOWER)
        await asyncio.sleep(LIFETIME + 1)
        await reader.read(LEADER)
        partition.isr = (LEADER, FOLLOWER, OTHER)
        await reader.read(FOLLOWER)


async def test_leader_is_asked_again_at_the_end_of_the_time_without_new_metadata(
    start_stage: StartStage,
) -> None:
    async with reading(start_stage, records=0) as reader:
        await reader.read(FOLLOWER)
        silent = reader.stage.hang("Metadata")
        before = reader.fetches(LEADER)
        await asyncio.sleep(LIFETIME - 10)
        assert reader.fetches(LEADER) == before
        await asyncio.sleep(20)
        assert reader.fetches(LEADER) == before + 1
        await reader.read(FOLLOWER)
        silent.release()


async def test_new_leader_decides_again(start_stage: StartStage) -> None:
    async with reading(start_stage, records=0) as reader:
        await reader.read(FOLLOWER)
        await reader.stage.cluster.move_leader(TP, OTHER)
        await reader.read(FOLLOWER)
        assert reader.fetches(OTHER) >= 1
        await reader.stage.cluster.move_leader(TP, FOLLOWER)
        await reader.read(FOLLOWER)
        await reader.stage.cluster.move_leader(TP, LEADER)
        await reader.read(FOLLOWER)


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
async def test_offset_out_of_range_on_a_follower_is_checked_with_the_leader(
    start_stage: StartStage, policy: str
) -> None:
    async with reading(start_stage, records=5, auto_offset_reset=policy) as reader:
        reader.consumer.seek(TP, 3)
        assert [record.offset for record in await reader.consumer.poll(timeout=10)] == [3, 4]
        looked_up = len(reader.stage.requests(ListOffsetsRequest))
        fault = reader.stage.cluster.faults.add(
            api="Fetch", broker=FOLLOWER, error="OFFSET_OUT_OF_RANGE", count=2
        )
        await reader.read(FOLLOWER)
        await reader.read(FOLLOWER)
        assert fault.hits == 2
        assert len(reader.stage.requests(ListOffsetsRequest)) == looked_up
        assert reader.consumer.statistics().offset_reset_total == 0


async def test_offset_that_no_replica_has_is_reset_by_the_leader(start_stage: StartStage) -> None:
    async with reading(start_stage, records=5) as reader:
        await reader.consumer.poll(timeout=10)
        reader.consumer.seek(TP, 99)
        offsets = [record.offset for record in await reader.consumer.poll(timeout=10)]
        assert offsets == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "error",
    [
        "NOT_LEADER_OR_FOLLOWER",
        "REPLICA_NOT_AVAILABLE",
        "KAFKA_STORAGE_ERROR",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "OFFSET_NOT_AVAILABLE",
        "UNKNOWN_TOPIC_ID",
        "UNKNOWN_SERVER_ERROR",
    ],
)
async def test_leader_decides_again_after_an_error_of_a_follower(
    start_stage: StartStage, error: str
) -> None:
    async with reading(start_stage, records=0) as reader:
        await reader.read(FOLLOWER)
        before = reader.fetches(LEADER)
        fault = reader.stage.cluster.faults.add(api="Fetch", broker=FOLLOWER, error=error, count=1)
        await reader.read(FOLLOWER)
        assert fault.hits == 1
        assert reader.fetches(LEADER) == before + 1


async def test_follows_a_replica_that_is_not_in_the_metadata_yet(start_stage: StartStage) -> None:
    async with reading(start_stage, rack=RACKS[OTHER], records=0) as reader:
        await reader.stage.cluster.stop_broker(OTHER)
        await reader.read(LEADER)
        await asyncio.sleep(LIFETIME + 1)
        before = reader.fetches(LEADER)
        await reader.stage.cluster.start_broker(OTHER)
        await settle()
        await reader.read(OTHER)
        assert reader.fetches(LEADER) - before < 10


async def test_names_no_rack_to_brokers_before_version_11(start_stage: StartStage) -> None:
    stage = await start_stage(
        3,
        racks=RACKS,
        replica_selector_class=RACK_AWARE_REPLICA_SELECTOR,
        api_versions={FetchRequest.API_KEY: (4, 10)},
    )
    await stage.cluster.create_topic("t", assignments={0: [LEADER, FOLLOWER, OTHER]})
    stage.produce(TP, range(3))
    async with stage.consumer(partitions=[TP], client_rack=RACKS[FOLLOWER]) as consumer:
        assert len(await consumer.poll(timeout=10)) == 3
    assert set(stage.receivers(FetchRequest)) == {LEADER}
