"""`Consumer.rewind` in groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.admin.admin import Admin
from kafka_async.consumer.group.rewind.rewind_store import RewindRow
from kafka_async.errors import IllegalStateError, KafkaTimeoutError
from kafka_async.types import TopicPartition
from tests.consumer.test_rewind import (
    Reader,
    check_first_rewinds_two_partitions,
    committed,
    group,
    owner,
)
from tests.embedded_client import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.consumer.conftest import Stage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

OPTIONS: dict[str, Any] = {"group_protocol": "consumer", "rewind_check_interval_ms": 1000}
REWINDS = "g.rewinds"


async def test_rewinds_partitions_of_all_members(stage: Stage) -> None:
    async with group(stage, 3, **OPTIONS) as readers:
        await check_first_rewinds_two_partitions(readers)


async def test_each_member_can_rewind_each_partition_again_and_again(stage: Stage) -> None:
    partitions = [TopicPartition("t", number) for number in range(2)]
    async with group(stage, 2, **OPTIONS) as readers:
        for round_number in range(3):
            for reader in readers:
                for partition in partitions:
                    owner(readers, partition).seen.clear()
                    found = await reader.consumer.rewind({partition: 2 + round_number}, timeout=30)
                    assert found == {partition: 2 + round_number}
                    await asyncio.sleep(5)
                    seen = owner(readers, partition).seen[partition]
                    assert seen == list(range(2 + round_number, 5))


async def test_members_rewind_the_same_partition_one_after_another(stage: Stage) -> None:
    """The third member owns the partition; both requests are applied, each once."""
    async with group(stage, 3, **OPTIONS) as readers:
        (partition,) = readers[2].consumer.assignment()
        readers[2].seen.clear()
        found = await asyncio.gather(
            readers[0].consumer.rewind({partition: 1}), readers[1].consumer.rewind({partition: 3})
        )
        assert found == [{partition: 1}, {partition: 3}]
        await asyncio.sleep(10)
        seen = readers[2].seen[partition]
    assert sorted(seen) in ([1, 2, 3, 3, 4, 4], [1, 3, 2, 3, 4, 4], [3, 4])


async def test_returns_the_nearest_offsets_that_the_log_has(stage: Stage) -> None:
    async with group(stage, 2, **OPTIONS) as readers:
        (partition,) = readers[1].consumer.assignment()
        assert await readers[0].consumer.rewind({partition: 99}) == {partition: 5}
        assert await readers[0].consumer.rewind({partition: 0}) == {partition: 0}


async def test_rebalances_no_other_member(stage: Stage) -> None:
    async with group(stage, 3, **OPTIONS) as readers:
        members = [reader.consumer for reader in readers]
        (partition,) = members[1].assignment()
        before = [each.group_metadata().generation_id for each in members]
        owned = [each.assignment() for each in members]
        await members[0].rewind({partition: 2})
        await asyncio.sleep(10)
        assert [each.group_metadata().generation_id for each in members] == before
        assert [each.assignment() for each in members] == owned


async def test_refuses_members_that_do_not_apply_rewinds(stage: Stage) -> None:
    await stage.topic("t", 2, 5)
    async with running(stage, OPTIONS, {"group_protocol": "consumer"}) as (first, second):
        (partition,) = second.consumer.assignment()
        (own,) = first.consumer.assignment()
        with pytest.raises(IllegalStateError, match=r"the members \S+ do not apply rewinds"):
            await first.consumer.rewind({own: 1, partition: 1})
        with pytest.raises(IllegalStateError, match="rewind_check_interval_ms, such as 1000"):
            await second.consumer.rewind({own: 1})
        assert await second.consumer.rewind({partition: 1}) == {partition: 1}
        assert await committed(first.consumer, own) != 1  # refused as a whole


@asynccontextmanager
async def running(stage: Stage, *options: dict[str, Any]) -> AsyncGenerator[list[Reader]]:
    """Start a member for each of the options, and wait until each has a partition."""
    readers = [Reader(stage.consumer("t", **each)) for each in options]
    tasks: list[asyncio.Task[None]] = []
    for reader in readers:
        await reader.consumer.start()
        tasks.append(asyncio.create_task(reader.run()))
    try:
        await until(lambda: all(r.consumer.assignment() for r in readers))
        yield readers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for reader in readers:
            await reader.consumer.stop()


async def test_refuses_a_partition_that_no_member_subscribes_to(stage: Stage) -> None:
    await stage.topic("u", 1)
    async with group(stage, 1, **OPTIONS) as (reader,):
        with pytest.raises(IllegalStateError, match="no member subscribes to u-0"):
            await reader.consumer.rewind({TopicPartition("u", 0): 0, TopicPartition("t", 0): 0})
        assert await committed(reader.consumer, TopicPartition("t", 0)) == 5


async def test_owner_finishes_the_records_it_has_returned_before_it_rewinds(stage: Stage) -> None:
    await stage.topic("t", 2, 5)
    async with (
        stage.consumer("t", **OPTIONS) as first,
        stage.consumer("t", **OPTIONS) as second,
    ):
        await until(lambda: len(first.assignment()) == len(second.assignment()) == 1)
        (partition,) = second.assignment()
        while not await second.poll(max_records=2):
            pass
        rewinding = asyncio.create_task(first.rewind({partition: 0}))
        await asyncio.sleep(10)
        assert not rewinding.done()
        assert [r.offset for r in await second.poll(timeout=30)] == [0, 1, 2, 3, 4]
        assert await rewinding == {partition: 0}


async def test_owner_waits_for_handlers_of_its_own_partitions(stage: Stage) -> None:
    (partition,) = await stage.topic("t", 1, 4)
    handled: list[int] = []

    async def handle(record: Any) -> None:
        await asyncio.sleep(1)
        handled.append(record.offset)

    async with stage.consumer("t", group_protocol="consumer") as consumer:
        running = asyncio.create_task(consumer.process(handle, concurrency=1, ordering="partition"))
        await until(lambda: len(handled) == 2)
        assert await consumer.rewind({partition: 1}) == {partition: 1}
        done = len(handled)
        await until(lambda: len(handled) == done + 3)
        assert handled[done:] == [1, 2, 3]
        running.cancel()
        await asyncio.wait({running})


async def test_new_owner_applies_a_request_that_the_former_one_has_not(stage: Stage) -> None:
    """The owner does not poll, and leaves; the member that gets its partition rewinds it."""
    await stage.topic("t", 2, 5)
    async with running(stage, OPTIONS) as (first,), stage.consumer("t", **OPTIONS) as second:
        await until(lambda: len(first.consumer.assignment()) == len(second.assignment()) == 1)
        (partition,) = second.assignment()
        taken = 0
        while taken < 5:
            taken += len(await second.poll())
        await second.commit({partition: 5})
        first.seen.clear()
        while not await second.poll(timeout=0.1):
            stage.produce(partition, ["more"])
        rewinding = asyncio.create_task(first.consumer.rewind({partition: 3}))
        await asyncio.sleep(5)
        await second.stop()
        assert await rewinding == {partition: 3}
        await asyncio.sleep(5)
        assert first.seen[partition][-3:] == [3, 4, 5]


async def test_times_out_without_a_response_and_the_request_expires(stage: Stage) -> None:
    await stage.topic("t", 2, 5)
    async with running(stage, OPTIONS) as (first,), stage.consumer("t", **OPTIONS) as second:
        await until(lambda: len(first.consumer.assignment()) == len(second.assignment()) == 1)
        (partition,) = second.assignment()
        while not await second.poll(max_records=2):
            pass
        with pytest.raises(KafkaTimeoutError, match=f"the owners of {partition} have not"):
            await first.consumer.rewind({partition: 0}, timeout=5)
        await asyncio.sleep(1)
        row = await stored(stage, partition)
        assert row.request
        assert not row.replies
        assert not row.is_pending(stage.cluster.scheduler.now_ms() / 1000)


async def stored(stage: Stage, partition: TopicPartition) -> RewindRow:
    admin = Admin(stage.shared_client)
    found = (await admin.list_group_offsets(REWINDS))[partition]
    return RewindRow.decode(found.offset, found.metadata)


@pytest.mark.parametrize("api", ["ListOffsets", "OffsetCommit"])
async def test_reports_why_an_owner_could_not_rewind(stage: Stage, api: str) -> None:
    async with group(stage, 2, enable_auto_commit=False, **OPTIONS) as readers:
        (partition,) = readers[1].consumer.assignment()
        rewinding = asyncio.create_task(readers[0].consumer.rewind({partition: 1}))
        admin = Admin(stage.shared_client)
        await until_async(lambda: admin.list_group_offsets(REWINDS))
        stage.cluster.faults.add(api=api, error="TOPIC_AUTHORIZATION_FAILED")
        with pytest.raises(IllegalStateError, match="TopicAuthorizationError"):
            await rewinding


async def until_async(condition: Any) -> None:
    while not await condition():  # noqa: ASYNC110  # virtual time costs nothing
        await asyncio.sleep(0.05)


async def test_reply_that_could_not_be_written_is_written_later(stage: Stage) -> None:
    """The partition is rewound once."""
    async with group(stage, 2, **OPTIONS) as readers:
        (partition,) = readers[1].consumer.assignment()
        readers[1].seen.clear()
        admin = Admin(stage.shared_client)
        stage.cluster.faults.add(
            api="OffsetCommit",
            error="TOPIC_AUTHORIZATION_FAILED",
            when=lambda _, request: (
                request.group_id == REWINDS
                and any(
                    '"replies":{"' in row.committed_metadata
                    for topic in request.topics
                    for row in topic.partitions
                )
            ),
        )
        assert await readers[0].consumer.rewind({partition: 2}) == {partition: 2}
        await asyncio.sleep(10)
        assert readers[1].seen[partition] == [2, 3, 4]
        assert list(await admin.list_group_offsets(REWINDS)) == [partition]


async def test_looks_for_no_rewinds_by_default(stage: Stage) -> None:
    async with group(stage, 1, group_protocol="consumer") as (reader,):
        (partition,) = reader.consumer.assignment()
        assert await reader.consumer.rewind({partition: 1}) == {partition: 1}
        admin = Admin(stage.shared_client)
        assert REWINDS not in await admin.list_groups()
