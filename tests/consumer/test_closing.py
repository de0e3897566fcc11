"""Closing is bounded in time, survives cancellation and logs what was not committed."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Literal

import anyio
import pytest

from kafka_async.admin import Admin
from kafka_async.client.client import services_of
from kafka_async.client.metadata.request_router import CoordinatorOfGroup
from kafka_async.consumer.consumer import ERROR_CLOSE_TIMEOUT, Consumer
from kafka_async.consumer.group.closing import CloseDeadlines
from kafka_async.errors import ClientClosedError, GroupAuthorizationError, KafkaError, TaskDiedError
from kafka_async.protocol.messages.describe_groups import DescribeGroupsRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine
    from typing import Any

    from kafka_async.types import TopicPartition
    from tests.consumer.conftest import Stage, StartStage

    Use = Callable[[], Coroutine[Any, Any, None]]

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

AUTO = {"enable_auto_commit": True, "auto_commit_interval_ms": 600_000}


async def members(stage: Stage) -> int:
    """Return the members of group "g" according to its coordinator."""
    response = await stage.shared_client.request(
        DescribeGroupsRequest(groups=["g"]), to=CoordinatorOfGroup("g"), timeout=5
    )
    return len(response.groups[0].members)


def connections(consumer: Consumer) -> list[str]:
    """Return the connections of the consumer that are still open."""
    services = consumer.client._services  # pyright: ignore[reportPrivateUsage]
    assert services is not None
    brokers = services.brokers._brokers.values()  # pyright: ignore[reportPrivateUsage]
    return [
        str(connection) for broker in brokers for connection in broker.all() if connection.connected
    ]


async def elapsed(stop: Awaitable[object]) -> float:
    """Return the seconds that it takes, without the error of a difference of floats."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await stop
    return round(loop.time() - began, 6)


async def reading(stage: Stage, **options: object) -> Consumer:
    """Start a member that has processed one record."""
    await stage.topic("t", 1, records=3)
    consumer = stage.consumer("t", **options)
    await consumer.start()
    await consumer.poll(max_records=2, timeout=10)
    await consumer.poll(max_records=1, timeout=10)
    return consumer


# -- cancellation ---------------------------------------------------------------------------------


async def by_move_on_after(use: Use) -> None:
    with anyio.move_on_after(20):
        await use()


async def by_cancelled_task_group(use: Use) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(use)
        await asyncio.sleep(20)
        group.cancel_scope.cancel()


async def by_timeout(use: Use) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(20):
            await use()


async def by_cancelling_twice(use: Use) -> None:
    async def run() -> None:
        await use()

    task = asyncio.create_task(run())
    await asyncio.sleep(20)
    task.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


WAYS = [by_move_on_after, by_cancelled_task_group, by_timeout, by_cancelling_twice]


@pytest.mark.parametrize("leave", WAYS)
async def test_cancelled_block_leaves_group_and_closes_connections(
    stage: Stage, leave: Callable[[Use], Awaitable[None]]
) -> None:
    await stage.topic("t", 1, records=3)
    consumer = stage.consumer("t", **AUTO)

    async def use() -> None:
        async with consumer:
            while True:
                await consumer.poll(timeout=1)

    assert await elapsed(leave(use)) < 21
    assert await members(stage) == 0
    assert connections(consumer) == []


async def test_cancelled_block_with_shared_client_closes_only_its_connections(stage: Stage) -> None:
    await stage.topic("t", 1, records=3)
    consumer = Consumer(stage.shared_client, topics=["t"], group_id="g")
    with anyio.move_on_after(20):
        async with consumer:
            while True:
                await consumer.poll(timeout=1)
    assert await members(stage) == 0
    assert all("shared" in connection for connection in connections(consumer))


@pytest.mark.parametrize("stopping", [0.0, 0.05, 0.5])
async def test_cancelled_stop_leaves_group_within_a_second(
    start_stage: StartStage, stopping: float
) -> None:
    """The commit does not end, so the deadline is far off when the caller is cancelled."""
    stage = await start_stage(1)
    consumer = await reading(stage, **AUTO)
    fault = stage.hang("OffsetCommit")
    task = asyncio.create_task(consumer.stop())
    await asyncio.sleep(stopping)
    task.cancel()
    assert await elapsed(asyncio.wait({task})) <= 1.1
    assert task.cancelled()
    assert await members(stage) == 0
    fault.remove()


async def test_second_stop_waits_for_the_first(stage: Stage) -> None:
    consumer = await reading(stage, **AUTO)
    fault = stage.cluster.faults.add(api="OffsetCommit", hang=True)
    first = asyncio.create_task(consumer.stop())
    second = asyncio.create_task(consumer.stop())
    await fault.wait()
    assert not second.done()
    fault.release()
    await asyncio.gather(first, second)
    await consumer.stop()
    assert await members(stage) == 0


@pytest.mark.parametrize("shared", [False, True], ids=["own client", "shared client"])
async def test_start_cancelled_during_import_leaves_no_task_or_connection(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    """The client has started by then; the runtime is imported in a thread."""
    await stage.topic("t", 1, records=3)
    consumer = Consumer(stage.shared_client, topics=["t"]) if shared else stage.consumer("t")
    await services_of(stage.shared_client).metadata.refresh(timeout=5)
    loading = asyncio.Event()

    async def offload(*_: object) -> None:
        loading.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(consumer._supervisor, "offload", offload)  # pyright: ignore[reportPrivateUsage]
    before = asyncio.all_tasks()
    with anyio.move_on_after(1):
        await consumer.start()
    assert loading.is_set()
    assert asyncio.all_tasks() == before
    assert bool(connections(consumer)) is shared
    if shared:
        await services_of(stage.shared_client).metadata.refresh(timeout=5)
    with pytest.raises(ClientClosedError):
        await consumer.poll()


# -- coordinators that move -----------------------------------------------------------------------


LEAVE_APIS = {"classic": "LeaveGroup", "consumer": "ConsumerGroupHeartbeat"}


@pytest.mark.parametrize(
    "error", ["COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"]
)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_leaves_group_whose_coordinator_moves(
    stage: Stage, protocol: Literal["classic", "consumer"], error: str
) -> None:
    consumer = await reading(stage, group_protocol=protocol)
    admin = Admin(stage.shared_client)
    assert len((await admin.describe_groups(["g"]))["g"].members) == 1
    fault = stage.cluster.faults.add(api=LEAVE_APIS[protocol], error=error, count=2)
    assert await elapsed(consumer.stop()) < 2
    assert fault.hits == 2
    assert (await admin.describe_groups(["g"]))["g"].members == ()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_stop_without_a_coordinator_takes_two_seconds_at_most(
    stage: Stage, protocol: Literal["classic", "consumer"], caplog: pytest.LogCaptureFixture
) -> None:
    consumer = await reading(stage, group_protocol=protocol)
    stage.cluster.faults.add(api=LEAVE_APIS[protocol], error="NOT_COORDINATOR", count=None)
    with caplog.at_level(logging.INFO, "kafka_async.group"):
        assert await elapsed(consumer.stop()) <= 2
    [message] = [each for each in caplog.messages if each.startswith("leaving group g")]
    assert "NOT_COORDINATOR" in message


async def test_auto_commit_ends_when_the_consumer_closes(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """It is due during the last commit; after that the coordinator would not know the member."""
    consumer = await reading(stage, enable_auto_commit=True, auto_commit_interval_ms=1000)
    commits = stage.cluster.faults.add(api="OffsetCommit", delay=1.5, count=None)
    stage.cluster.faults.add(api="LeaveGroup", applied=True, delay=1.9)
    with caplog.at_level(logging.WARNING, "kafka_async"):
        assert await elapsed(consumer.stop()) >= 3
    assert (commits.hits, caplog.messages) == (1, [])


# -- a shared client that is stopped first --------------------------------------------------------


async def poll_once(consumer: Consumer) -> None:
    await consumer.poll(timeout=None)


async def poll_batches_once(consumer: Consumer) -> None:
    await consumer.poll_batches(timeout=None)


async def read_stream(consumer: Consumer) -> None:
    async for _ in consumer:
        pass


@pytest.mark.parametrize("read", [poll_once, poll_batches_once, read_stream])
@pytest.mark.parametrize("records", [0, 3], ids=["never read", "read before"])
@pytest.mark.parametrize("group", [True, False], ids=["group", "manual"])
async def test_stopped_shared_client_ends_waiting_consumer(
    stage: Stage,
    read: Callable[[Consumer], Coroutine[Any, Any, None]],
    records: int,
    group: bool,
) -> None:
    partitions = await stage.topic("t", 1, records=records)
    async with stage.client() as client:
        options: dict[str, Any] = (
            {"topics": ["t"], "group_id": "g"} if group else {"partitions": partitions}
        )
        consumer = Consumer(client, auto_offset_reset="earliest", **options)
        await consumer.start()
        if records:
            await consumer.poll(timeout=10)
        waiting = asyncio.create_task(read(consumer))
        await asyncio.sleep(10)
    with pytest.raises(TaskDiedError) as died:
        async with asyncio.timeout(1):
            await waiting
    assert isinstance(died.value.__cause__, ClientClosedError)
    with pytest.raises(TaskDiedError):
        await consumer.poll(timeout=1)
    assert await elapsed(consumer.stop()) < 0.01


async def test_stopped_shared_client_ends_joining_member(stage: Stage) -> None:
    """The coordinator holds back the response to JoinGroup for the other member's next poll."""
    member = await reading(stage)
    client = stage.client()
    await client.start()
    joining = Consumer(client, topics=["t"], group_id="g")
    await joining.start()
    waiting = asyncio.create_task(poll_once(joining))
    await asyncio.sleep(10)
    await client.stop()
    with pytest.raises(TaskDiedError):
        async with asyncio.timeout(1):
            await waiting
    await joining.stop()
    await member.stop()


async def test_died_shared_client_ends_waiting_consumer(stage: Stage) -> None:
    client = stage.client()
    await client.start()
    consumer = Consumer(client, topics=["t"], group_id="g")
    await consumer.start()
    waiting = asyncio.create_task(read_stream(consumer))
    await asyncio.sleep(10)

    async def bug() -> None:
        raise ZeroDivisionError("a bug")

    services_of(client).supervisor.spawn(bug, name="bug")
    with pytest.raises(TaskDiedError, match="a bug"):
        async with asyncio.timeout(1):
            await waiting
    with pytest.raises(TaskDiedError):
        async with asyncio.timeout(1):
            await consumer.unsubscribe()
    await consumer.stop()
    await client.stop()


# -- bounds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [True, False], ids=["group", "no-group"])
async def test_stop_is_immediate_without_brokers_and_without_offsets_to_commit(
    start_stage: StartStage, group: bool
) -> None:
    stage = await start_stage(3)
    partitions = await stage.topic("t", 1, records=3)
    consumer = stage.consumer("t") if group else stage.consumer(partitions=partitions)
    await consumer.start()
    await consumer.poll(timeout=10)
    for broker in (1, 2, 3):
        await stage.cluster.stop_broker(broker)
    await asyncio.sleep(20)
    assert await elapsed(consumer.stop()) < 0.1


@pytest.mark.parametrize(
    ("timeout", "option", "limit"),
    [(None, None, 30.0), (2.0, None, 2.0), (None, 5_000, 5.0), (0.0, None, 0.0)],
)
@pytest.mark.parametrize("frozen", [False, True], ids=["stopped", "frozen"])
async def test_stop_with_offsets_to_commit_ends_at_its_limit(
    stage: Stage,
    caplog: pytest.LogCaptureFixture,
    timeout: float | None,
    option: float | None,
    limit: float,
    frozen: bool,
) -> None:
    options = {} if option is None else {"close_timeout_ms": option}
    consumer = await reading(stage, **AUTO, **options)
    if frozen:
        stage.hang()
    else:
        await stage.cluster.stop_broker(1)
    with caplog.at_level(logging.WARNING, "kafka_async"):
        assert await elapsed(consumer.stop(timeout)) <= limit + 0.01
    (message,) = [r.getMessage() for r in caplog.records if "not committed" in r.message]
    assert "offsets of 1 partitions were not committed" in message
    assert "t-0: 2" in message
    stage.cluster.faults.clear()


@pytest.mark.parametrize(
    ("close_timeout_ms", "limit"), [(3_000, 3.0), (60_000, ERROR_CLOSE_TIMEOUT)]
)
async def test_block_that_raises_closes_with_short_timeout(
    stage: Stage, close_timeout_ms: float, limit: float
) -> None:
    """The commit ends at least two seconds early, which leaves time for the other steps."""
    await stage.topic("t", 1, records=3)
    loop = asyncio.get_running_loop()
    raised: list[float] = []

    async def block() -> None:
        async with stage.consumer("t", **AUTO, close_timeout_ms=close_timeout_ms) as consumer:
            await consumer.poll(max_records=2, timeout=10)
            await consumer.poll(max_records=1, timeout=10)
            stage.hang()
            raised.append(loop.time())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await block()
    assert limit - 2.0 <= loop.time() - raised[0] <= limit + 0.01
    stage.cluster.faults.clear()


@pytest.mark.parametrize("silent_for", [0.0, 1.0, 5.0, 60.0])
async def test_stop_with_frozen_cluster_and_nothing_to_commit_takes_two_seconds_at_most(
    stage: Stage, silent_for: float
) -> None:
    """It is immediate if a heartbeat has had no response for a second or more."""
    consumer = await reading(stage)
    stage.hang()
    await asyncio.sleep(silent_for)
    assert await elapsed(consumer.stop()) <= (2.0 if silent_for < 5 else 0.01)
    stage.cluster.faults.clear()


async def test_stop_does_not_wait_for_rebalance(stage: Stage) -> None:
    """The other member has unprocessed records and does not poll, for five minutes."""
    consumer = await reading(stage)
    async with stage.consumer("t") as joining:
        await joining.poll(timeout=30)
        assert joining.group_metadata().generation_id == -1
        assert await elapsed(joining.stop()) < 1
    assert await elapsed(consumer.stop()) < 1
    assert await members(stage) == 0


async def test_stop_commits_once_the_group_has_its_assignments(stage: Stage) -> None:
    """Between JoinGroup and SyncGroup the coordinator rejects commits of a cooperative member."""
    cooperative = {"partition_assignment_strategy": ["cooperative-sticky"]}
    consumer = await reading(stage, **AUTO, **cooperative)
    await consumer.poll(max_records=1, timeout=10)
    syncing = stage.hang("SyncGroup")
    async with stage.consumer("t", **cooperative) as joining:
        polling = [asyncio.create_task(each.poll(timeout=60)) for each in (consumer, joining)]
        await syncing.wait()
        stopping = asyncio.create_task(consumer.stop())
        await asyncio.sleep(1)
        assert not stopping.done()
        syncing.remove()
        await stopping
        await asyncio.gather(*polling, return_exceptions=True)
        (partition,) = joining.assignment()
        committed = (await joining.committed([partition]))[partition]
        assert committed is not None
        assert committed.offset == 3


async def test_stop_does_not_wait_for_hanging_listener(stage: Stage) -> None:
    consumer = await reading(stage)

    async def revoked(_: object) -> None:
        await asyncio.Event().wait()

    consumer.on_revoked(revoked)
    assert await elapsed(consumer.stop(3.0)) <= 3.0
    assert connections(consumer) == []


async def test_stop_ends_commit_before_revoke(stage: Stage) -> None:
    consumer = await reading(stage, **AUTO)
    fault = stage.hang("OffsetCommit")
    async with stage.consumer("t") as joining:
        polling = asyncio.create_task(consumer.poll(timeout=None))
        await joining.poll(timeout=5)
        await fault.wait()
        assert await elapsed(consumer.stop(2.0)) <= 2.0
        with pytest.raises(ClientClosedError):
            await polling
    fault.remove()


async def test_stop_ends_commit_in_progress(stage: Stage) -> None:
    consumer = await reading(stage)
    fault = stage.hang("OffsetCommit")
    committing = asyncio.create_task(consumer.commit())
    await fault.wait()
    assert await elapsed(consumer.stop()) < 1
    with pytest.raises(KafkaError):
        await committing
    fault.remove()


async def test_failed_commit_on_close_is_raised_and_logged(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = await reading(stage, **AUTO)
    stage.cluster.faults.add(api="OffsetCommit", error="GROUP_AUTHORIZATION_FAILED")
    with caplog.at_level(logging.WARNING, "kafka_async"), pytest.raises(GroupAuthorizationError):
        await consumer.stop()
    assert "t-0: 2" in caplog.text
    assert await members(stage) == 0


def refuse(_: Collection[TopicPartition]) -> None:
    raise ValueError("the state store is full")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_stop_raises_and_logs_the_exception_of_a_listener(
    stage: Stage, caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    consumer = await reading(stage, group_protocol=protocol)
    consumer.on_revoked(refuse)
    with pytest.raises(ValueError, match="the state store is full"):
        await consumer.stop()
    assert consumer.health().state == "closed"
    assert "a rebalance listener raised ValueError('the state store is full')" in caplog.text
    assert await members(stage) == 0
    await consumer.stop()  # It is raised once.


GROUPS: dict[str, dict[str, object]] = {
    "eager": {"partition_assignment_strategy": ["range"]},
    "cooperative": {"partition_assignment_strategy": ["cooperative-sticky"]},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.mark.parametrize("auto_commit", [False, True])
@pytest.mark.parametrize("kind", GROUPS)
@pytest.mark.parametrize("end", ["stop", "block"])
@pytest.mark.parametrize("caller", ["listener", "task of the listener"])
async def test_commit_in_on_revoked_while_the_consumer_closes(
    stage: Stage, kind: str, end: str, caller: str, auto_commit: bool
) -> None:
    consumer = await reading(stage, **GROUPS[kind], enable_auto_commit=auto_commit)
    revoked: list[TopicPartition] = []

    @consumer.on_revoked
    async def _(partitions: Collection[TopicPartition]) -> None:
        revoked.extend(partitions)
        if caller == "listener":
            await consumer.commit()
        else:
            await asyncio.create_task(consumer.commit())

    if end == "stop":
        await consumer.stop()
    else:
        await consumer.__aexit__(None, None, None)
    assert len(revoked) == 1
    assert await members(stage) == 0
    async with stage.consumer("t") as other:
        committed = (await other.committed(revoked))[revoked[0]]
    assert committed is not None
    assert committed.offset == 3
    with pytest.raises(ClientClosedError):
        await consumer.commit()


async def test_stop_ends_the_commit_of_a_listener(stage: Stage) -> None:
    consumer = await reading(stage)
    fault = stage.hang("OffsetCommit")

    @consumer.on_revoked
    async def _(_: Collection[TopicPartition]) -> None:
        await consumer.commit()

    assert await elapsed(consumer.stop(3.0)) <= 3.0
    assert connections(consumer) == []
    fault.remove()


async def test_end_of_the_block_raises_the_exception_of_a_listener(stage: Stage) -> None:
    await stage.topic("t", 1, records=1)

    async def use() -> None:
        async with stage.consumer("t", **AUTO) as consumer:
            consumer.on_revoked(refuse)
            await consumer.poll(timeout=10)

    with pytest.raises(ValueError, match="the state store is full"):
        await use()


async def test_exception_of_the_block_is_raised_before_that_of_a_listener(stage: Stage) -> None:
    await stage.topic("t", 1, records=1)

    async def use() -> None:
        async with stage.consumer("t") as consumer:
            consumer.on_revoked(refuse)
            await consumer.poll(timeout=10)
            raise KeyError("from the block")

    with pytest.raises(KeyError) as raised:
        await use()
    assert "the state store is full" in raised.value.__notes__[0]


async def test_stop_that_cannot_commit_tells_of_the_listener_too(stage: Stage) -> None:
    consumer = await reading(stage, **AUTO)
    consumer.on_revoked(refuse)
    stage.cluster.faults.add(api="OffsetCommit", error="GROUP_AUTHORIZATION_FAILED")
    with pytest.raises(GroupAuthorizationError) as raised:
        await consumer.stop()
    assert "the state store is full" in raised.value.__notes__[0]


async def test_error_of_failed_task_is_raised_by_unsubscribe(stage: Stage) -> None:
    consumer = await reading(stage)

    async def revoked(_: object) -> None:
        consumer._supervisor.spawn(die, name="task with a bug")  # pyright: ignore[reportPrivateUsage]
        await asyncio.sleep(5)

    async def die() -> None:
        raise ZeroDivisionError("a bug")

    consumer.on_revoked(revoked)
    with pytest.raises(TaskDiedError, match="a bug"):
        await consumer.unsubscribe()
    await consumer.stop()


# -- deadlines ------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0.0, 0.4, 2.0, 30.0, 600.0])
async def test_close_deadlines_divide_the_limit(limit: float) -> None:
    time = CloseDeadlines.of(100.0, limit)
    assert 100.0 <= time.commit_by <= time.leave_by <= time.end == 100.0 + limit
    assert time.end - time.commit_by <= 2.0
    time.shorten(100.0)
    assert time.commit_by == 100.0
    assert time.leave_by <= time.end <= 101.0


async def test_start_cancelled_by_scope_leaves_nothing_open(stage: Stage) -> None:
    fault = stage.hang("Metadata")
    consumer = stage.consumer("t")
    with anyio.move_on_after(1):
        await consumer.start()
    assert connections(consumer) == []
    fault.remove()
