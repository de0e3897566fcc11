"""`Consumer.rewind`: members rewind partitions that other members of the group own."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.consumer.group.rewind.rewind_messages import RewindMessage
from kafka_async.consumer.group.rewind.rewinds import Rewinds
from kafka_async.errors import (
    ClientClosedError,
    FencedInstanceIdError,
    IllegalStateError,
    KafkaTimeoutError,
    TaskDiedError,
)
from kafka_async.group.assignors import RangeAssignor
from kafka_async.types import TopicPartition
from tests.embedded_client import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from kafka_async.consumer.consumer import Consumer
    from kafka_async.consumer.delivery.partition_streams import PartitionStream
    from kafka_async.kernel import Record
    from tests.consumer.conftest import Stage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

STRATEGIES = ["range", "cooperative-sticky"]


class Reader:
    """Polls a consumer and notes the offsets of the records by partition."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.seen: dict[TopicPartition, list[int]] = {}
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        while True:
            for record in await self.consumer.poll(timeout=0.1):
                partition = TopicPartition(record.topic, record.partition)
                self.seen.setdefault(partition, []).append(record.offset)

    async def stop(self) -> None:
        """Stop polling."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait({self.task})


@asynccontextmanager
async def group(
    stage: Stage, count: int, records: int = 5, **options: Any
) -> AsyncGenerator[list[Reader]]:
    """Start members of group "g", one for each partition of topic "t", that have read it all."""
    await stage.topic("t", count, records)
    readers: list[Reader] = []
    options = {"enable_auto_commit": True, "auto_commit_interval_ms": 1000, **options}
    try:
        for _ in range(count):
            reader = Reader(stage.consumer("t", **options))
            await reader.consumer.start()
            readers.append(reader)
            reader.task = asyncio.create_task(reader.run())
        await until(lambda: {len(r.consumer.assignment()) for r in readers} == {1})
        await asyncio.sleep(5)
        yield readers
    finally:
        for reader in readers:
            await reader.stop()
            await reader.consumer.stop()


def owner(readers: list[Reader], partition: TopicPartition) -> Reader:
    return next(r for r in readers if partition in r.consumer.assignment())


async def committed(consumer: Consumer, partition: TopicPartition) -> int | None:
    found = (await consumer.committed([partition]))[partition]
    return None if found is None else found.offset


async def check_first_rewinds_two_partitions(readers: list[Reader]) -> None:
    """Let the first of three members rewind partitions; check what their owners read again."""
    partitions = [TopicPartition("t", number) for number in range(3)]
    for reader in readers:
        reader.seen.clear()
    wanted = {partitions[0]: 3, partitions[1]: 1}
    assert await readers[0].consumer.rewind(wanted) == wanted
    await asyncio.sleep(5)
    seen = {p: offsets for reader in readers for p, offsets in reader.seen.items()}
    assert seen == {partitions[0]: [3, 4], partitions[1]: [1, 2, 3, 4]}
    for partition in partitions:
        assert await committed(readers[0].consumer, partition) == 5


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_rewinds_partitions_of_all_members(stage: Stage, strategy: str) -> None:
    async with group(stage, 3, partition_assignment_strategy=[strategy]) as readers:
        await check_first_rewinds_two_partitions(readers)


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_each_member_can_rewind_each_partition(stage: Stage, strategy: str) -> None:
    partitions = [TopicPartition("t", number) for number in range(2)]
    async with group(stage, 2, partition_assignment_strategy=[strategy]) as readers:
        for reader in readers:
            for partition in partitions:
                found = await reader.consumer.rewind({partition: 2}, timeout=30)
                assert found == {partition: 2}


async def test_two_members_rewind_at_the_same_time(stage: Stage) -> None:
    first, second = (TopicPartition("t", number) for number in range(2))
    async with group(stage, 2, partition_assignment_strategy=["cooperative-sticky"]) as readers:
        found = await asyncio.gather(
            readers[0].consumer.rewind({second: 1}), readers[1].consumer.rewind({first: 4})
        )
    assert found == [{second: 1}, {first: 4}]


async def test_returns_the_nearest_offsets_that_the_log_has(stage: Stage) -> None:
    partition = TopicPartition("t", 0)
    async with group(stage, 1) as (reader,):
        assert await reader.consumer.rewind({partition: 99}) == {partition: 5}
        assert await reader.consumer.rewind({partition: 0}) == {partition: 0}
        assert await reader.consumer.rewind({}) == {}


async def test_refuses_a_partition_that_no_member_subscribes_to(stage: Stage) -> None:
    async with group(stage, 1) as (reader,):
        with pytest.raises(IllegalStateError, match="no member subscribes to t-7, u-0"):
            await reader.consumer.rewind({TopicPartition("u", 0): 0, TopicPartition("t", 7): 0})


class Foreign(RangeAssignor):
    """Declares as little to the leader as another client does."""

    reads_errors = False


@pytest.mark.parametrize("foreign", [0, 1])
async def test_refuses_a_group_with_members_of_other_clients(stage: Stage, foreign: int) -> None:
    await stage.topic("t", 2, 5)
    strategies: list[Any] = ["range", "range"]
    strategies[foreign] = Foreign()
    tasks: list[asyncio.Task[None]] = []
    async with (
        stage.consumer("t", partition_assignment_strategy=[strategies[0]]) as first,
        stage.consumer("t", partition_assignment_strategy=[strategies[1]]) as second,
    ):
        tasks += [asyncio.create_task(Reader(each).run()) for each in (first, second)]
        await until(lambda: bool(first.assignment() and second.assignment()))
        ours = second if foreign == 0 else first
        with pytest.raises(IllegalStateError, match="the rewind was refused"):
            await ours.rewind({TopicPartition("t", 0): 0, TopicPartition("t", 1): 0})
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_owner_finishes_the_records_it_has_returned_before_it_rewinds(stage: Stage) -> None:
    (partition,) = await stage.topic("t", 1, 5)
    async with stage.consumer("t") as consumer:
        while not await consumer.poll(max_records=2):
            pass
        rewinding = asyncio.create_task(consumer.rewind({partition: 0}))
        await asyncio.sleep(5)
        assert not rewinding.done()
        assert [r.offset for r in await consumer.poll(timeout=30)] == [0, 1, 2, 3, 4]
        assert await rewinding == {partition: 0}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("polled_by", ["caller", "finished task"])
async def test_owner_that_polls_rewinds_its_own_partitions_at_once(
    stage: Stage, protocol: str, polled_by: str
) -> None:
    """The other partition keeps its records: none is returned again, none is committed."""
    rewound, other = await stage.topic("t", 2, 5)
    loop = asyncio.get_running_loop()

    async with stage.consumer("t", group_protocol=protocol) as consumer:
        taken: list[tuple[int, int]] = []

        async def poll() -> None:
            taken.extend((r.partition, r.offset) for r in await consumer.poll(timeout=1))

        while len(taken) < 10:
            await (poll() if polled_by == "caller" else asyncio.create_task(poll()))
        at = loop.time()
        assert await consumer.rewind({rewound: 3}) == {rewound: 3}
        assert loop.time() - at < 1
        assert await committed(consumer, rewound) == 3
        assert await committed(consumer, other) is None
        assert [(r.partition, r.offset) for r in await consumer.poll(timeout=30)] == [
            (0, 3),
            (0, 4),
        ]


async def test_stream_rewinds_within_its_body(stage: Stage) -> None:
    (partition,) = await stage.topic("t", 1, 5)
    seen: list[int] = []
    async with stage.consumer("t", enable_auto_commit=True) as consumer:
        async for record in consumer:
            seen.append(record.offset)
            if len(seen) == 3:
                assert await consumer.rewind({partition: 1}, timeout=5) == {partition: 1}
            if record.offset == 4:
                break
        assert seen == [0, 1, 2, 1, 2, 3, 4]


async def test_rewind_at_once_reports_what_the_coordinator_refuses(stage: Stage) -> None:
    (partition,) = await stage.topic("t", 1, 5)
    async with stage.consumer("t") as consumer:
        taken = 0
        while taken < 5:
            taken += len(await consumer.poll())
        stage.cluster.faults.add(api="OffsetCommit", error="TOPIC_AUTHORIZATION_FAILED")
        with pytest.raises(IllegalStateError, match="TopicAuthorizationError"):
            await consumer.rewind({partition: 0})
        assert await consumer.poll(timeout=1) == []


async def test_times_out_without_a_response_of_the_owner(stage: Stage) -> None:
    (partition,) = await stage.topic("t", 1, 5)
    async with stage.consumer("t") as consumer:
        while not await consumer.poll(max_records=2):
            pass
        rewinding = asyncio.create_task(consumer.rewind({partition: 0}, timeout=5))
        with pytest.raises(KafkaTimeoutError, match="the owners of t-0 have not responded"):
            await rewinding


@pytest.mark.parametrize("api", ["ListOffsets", "OffsetCommit"])
@pytest.mark.parametrize("concurrent", ["process", "partition_streams"])
async def test_records_dropped_for_a_rewind_that_fails_are_handled_again(
    stage: Stage, concurrent: str, api: str
) -> None:
    (partition,) = await stage.topic("t", 1, 10)
    handled: list[int] = []

    async def handle(record: Record[bytes, bytes]) -> None:
        await asyncio.sleep(1)
        handled.append(record.offset)

    async def handle_all(stream: PartitionStream) -> None:
        async for record in stream:
            await handle(record)

    async def run() -> None:
        if concurrent == "process":
            await consumer.process(handle, concurrency=1, ordering="partition")
            return
        async with consumer.partition_streams() as streams:
            async for stream in streams:
                stream.start_soon(handle_all, stream)

    strategies = ["cooperative-sticky"]  # an eager member revokes its partitions before it rewinds
    async with stage.consumer("t", partition_assignment_strategy=strategies) as consumer:
        running = asyncio.create_task(run())
        await until(lambda: len(handled) == 3)
        stage.cluster.faults.add(api=api, error="TOPIC_AUTHORIZATION_FAILED")
        with pytest.raises(IllegalStateError, match="TopicAuthorizationError"):
            await consumer.rewind({partition: 0})
        await asyncio.sleep(60)
        running.cancel()
        await asyncio.wait({running})
    assert handled == list(range(10))


async def test_handler_cannot_rewind(stage: Stage) -> None:
    (partition,) = await stage.topic("t", 1, 1)

    async def handle(_: Record[bytes, bytes]) -> None:
        await consumer.rewind({partition: 0})

    async with stage.consumer("t") as consumer:
        with pytest.raises(IllegalStateError, match="a handler cannot wait for it"):
            await consumer.process(handle, concurrency=1)


async def test_owner_does_not_apply_a_request_again_that_it_has_refused(stage: Stage) -> None:
    async with group(stage, 2, partition_assignment_strategy=["cooperative-sticky"]) as readers:
        (partition,) = readers[1].consumer.assignment()
        readers[1].seen.clear()
        stage.cluster.faults.add(api="ListOffsets", error="TOPIC_AUTHORIZATION_FAILED")
        with pytest.raises(IllegalStateError, match="TopicAuthorizationError"):
            await readers[0].consumer.rewind({partition: 1})
        await asyncio.sleep(30)
    assert readers[1].seen == {}


async def test_new_owner_does_not_apply_a_request_again_that_the_former_one_has_applied() -> None:
    moved, partition = TopicPartition("t", 0), TopicPartition("t", 1)
    rewound: list[dict[TopicPartition, int]] = []
    rejoins: list[str] = []

    async def seek(wanted: dict[TopicPartition, int], _: object) -> dict[TopicPartition, int]:
        rewound.append(wanted)
        return wanted

    not_used: Any = None
    rewinds = Rewinds(not_used, not_used, rejoins.append, timeout=30.0)
    message = RewindMessage({"request": {moved: 3, partition: 3}}, {"request": {moved: 3}})
    await rewinds.on_message(message.encode(), {moved, partition}, seek)
    assert rewound == [{partition: 3}]
    assert rejoins == ["a member has rewound partitions"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_closing_ends_a_rewind_at_once(stage: Stage, protocol: str) -> None:
    """The first member rewinds a partition whose owner does not poll."""
    await stage.topic("t", 2, 5)
    loop = asyncio.get_running_loop()
    options: dict[str, Any] = {"group_protocol": protocol}
    if protocol == "consumer":
        options["rewind_check_interval_ms"] = 1000
    async with stage.consumer("t", **options) as first, stage.consumer("t", **options) as second:
        polling = asyncio.create_task(Reader(first).run())
        await until(lambda: len(first.assignment()) == len(second.assignment()) == 1)
        (partition,) = second.assignment()
        while not await second.poll(max_records=2):
            pass
        rewinding = asyncio.create_task(first.rewind({partition: 0}))
        await asyncio.sleep(5)
        at = loop.time()
        await first.stop()
        with pytest.raises(ClientClosedError, match="is closed, and its rewind may"):
            await rewinding
        assert loop.time() - at < 1
        with pytest.raises(ClientClosedError):
            await polling


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_closing_ends_a_rewind_that_waits_for_its_own_records(
    stage: Stage, protocol: str
) -> None:
    (partition,) = await stage.topic("t", 1, 5)
    loop = asyncio.get_running_loop()
    async with stage.consumer("t", group_protocol=protocol) as consumer:
        while not await consumer.poll(max_records=2):
            pass
        rewinding = asyncio.create_task(consumer.rewind({partition: 0}))
        await asyncio.sleep(5)
        at = loop.time()
        await consumer.stop()
        with pytest.raises(ClientClosedError, match="is closed, and its rewind may"):
            await rewinding
        assert loop.time() - at < 1


async def test_task_that_dies_ends_a_rewind_at_once(stage: Stage) -> None:
    (partition,) = await stage.topic("t", 1, 5)
    loop = asyncio.get_running_loop()
    async with stage.consumer("t") as consumer:
        while not await consumer.poll(max_records=2):
            pass
        rewinding = asyncio.create_task(consumer.rewind({partition: 0}))
        await asyncio.sleep(5)
        at = loop.time()

        async def die() -> None:
            raise RuntimeError("planted")

        consumer._supervisor.spawn(die, name="planted")  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(TaskDiedError, match="planted"):
            await rewinding
        assert loop.time() - at < 1


async def test_rejection_of_the_member_ends_a_rewind_at_once(stage: Stage) -> None:
    await stage.topic("t", 2, 5)
    loop = asyncio.get_running_loop()
    async with (
        stage.consumer("t", group_instance_id="first") as first,
        stage.consumer("t", group_instance_id="second") as second,
    ):
        polling = asyncio.create_task(Reader(first).run())
        await until(lambda: len(first.assignment()) == len(second.assignment()) == 1)
        (partition,) = second.assignment()
        while not await second.poll(max_records=2):
            pass
        rewinding = asyncio.create_task(first.rewind({partition: 0}))
        await asyncio.sleep(1)
        at = loop.time()
        async with stage.consumer("t", group_instance_id="first"):
            with pytest.raises(FencedInstanceIdError):
                await rewinding
            with pytest.raises(FencedInstanceIdError):
                await first.rewind({partition: 0})
            assert loop.time() - at < 30
            with pytest.raises(FencedInstanceIdError):
                await polling


async def test_rewind_needs_a_subscription(stage: Stage) -> None:
    (partition,) = await stage.topic("t", 1, 5)
    async with stage.consumer(partitions=[partition]) as consumer:
        with pytest.raises(IllegalStateError, match="rewind needs a group_id"):
            await consumer.rewind({partition: 0})


PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {},
    "consumer": {"group_protocol": "consumer", "rewind_check_interval_ms": 1000},
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_member_rewinds_before_its_first_poll(stage: Stage, protocol: str) -> None:
    """It waits until it has joined the group."""
    wanted = dict(zip(await stage.topic("t", 2, 5), (2, 4), strict=True))
    async with stage.consumer("t", **PROTOCOLS[protocol]) as consumer:
        assert await consumer.rewind(wanted, timeout=30) == wanted
        records = await consumer.poll(timeout=5)
        while len(records) < 4:
            records += await consumer.poll(timeout=5)
    found = sorted((record.partition, record.offset) for record in records)
    assert found == [(0, 2), (0, 3), (0, 4), (1, 4)]


async def test_timeout_names_the_records_that_the_caller_has_in_hand(stage: Stage) -> None:
    """An eager member revokes all partitions; once it has committed, it needs no other poll."""
    async with group(stage, 2, partition_assignment_strategy=["range"]) as readers:
        caller, other = (reader.consumer for reader in readers)
        await readers[0].stop()
        (mine,), (wanted,) = caller.assignment(), other.assignment()
        stage.produce(mine, range(3))
        assert len(await caller.poll(timeout=5)) == 3
        with pytest.raises(KafkaTimeoutError, match=rf"{wanted} .* commit them before rewind, or"):
            await caller.rewind({wanted: 1}, timeout=20)
        assert await caller.poll(timeout=0) == []  # now the delayed rewind is applied
        await asyncio.sleep(10)
        stage.produce(mine, range(2))
        assert len(await caller.poll(timeout=5)) == 2
        await caller.commit()
        assert await caller.rewind({wanted: 2}, timeout=20) == {wanted: 2}
        assert await committed(caller, mine) == 10


@pytest.mark.parametrize(
    "options", [{"partition_assignment_strategy": ["cooperative-sticky"]}, PROTOCOLS["consumer"]]
)
async def test_caller_keeps_its_records_if_nothing_of_it_is_revoked(
    stage: Stage, options: dict[str, Any]
) -> None:
    async with group(stage, 2, **options) as readers:
        caller, other = (reader.consumer for reader in readers)
        await readers[0].stop()
        (mine,), (wanted,) = caller.assignment(), other.assignment()
        stage.produce(mine, range(3))
        assert len(await caller.poll(timeout=5)) == 3
        assert await caller.rewind({wanted: 1}, timeout=20) == {wanted: 1}
        assert await committed(caller, mine) == 5
        await caller.commit()
        assert await committed(caller, mine) == 8


async def test_timeout_names_no_records_in_hand_if_nothing_waits_for_them(stage: Stage) -> None:
    """A cooperative member that keeps its partitions rebalances with them; another one is late."""
    strategies = ["cooperative-sticky"]
    async with group(stage, 2, partition_assignment_strategy=strategies) as readers:
        caller, other = (reader.consumer for reader in readers)
        await readers[0].stop()
        (mine,), (wanted,) = caller.assignment(), other.assignment()
        stage.produce(mine, range(3))
        assert len(await caller.poll(timeout=5)) == 3
        joins = stage.cluster.faults.add(api="JoinGroup", hang=True, count=None)
        with pytest.raises(KafkaTimeoutError, match=f"{wanted}") as raised:
            await caller.rewind({wanted: 1}, timeout=20)
        assert "poll in another task" not in str(raised.value)
        joins.remove()


async def test_member_outside_of_its_group_is_told_to_poll(stage: Stage) -> None:
    (partition,) = await stage.topic("t", 1, 5)
    async with stage.consumer("t", max_poll_interval_ms=60_000) as consumer:
        assert len(await consumer.poll(timeout=10)) == 5
        await asyncio.sleep(70)
        with pytest.raises(IllegalStateError, match=r"has left its group .*: poll, then rewind"):
            await consumer.rewind({partition: 0})
        assert len(await consumer.poll(timeout=10)) == 5
        assert await consumer.rewind({partition: 3}) == {partition: 3}
