"""While `stop` waits for listeners, handlers and tasks of streams, their calls work as before."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from kafka_async.errors import ClientClosedError, KafkaError
from kafka_async.types import TopicPartition
from tools import lifecycle
from tools.lifecycle import TABLE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection

    from kafka_async.consumer.consumer import Consumer
    from kafka_async.consumer.delivery.partition_streams import PartitionStream
    from kafka_async.producer.producer import Producer
    from tests.consumer.conftest import Stage

    Call = Callable[[Consumer], Any]


PARTITION: Final = TopicPartition("t", 0)
ALLOWED: Final[dict[str, Call]] = {
    "position": lambda c: c.position(PARTITION),
    "committed": lambda c: c.committed(),
    "group_metadata": lambda c: c.group_metadata(),
    "assignment": lambda c: c.assignment(),
    "pause": lambda c: c.pause(),
    "paused": lambda c: c.paused(),
    "resume": lambda c: c.resume(),
    "commit": lambda c: c.commit(),
    "commit offsets": lambda c: c.commit({PARTITION: 3}),
    "beginning_offsets": lambda c: c.beginning_offsets(PARTITION),
    "end_offsets": lambda c: c.end_offsets(PARTITION),
    "offsets_for_times": lambda c: c.offsets_for_times({PARTITION: 0.0}),
    "topics": lambda c: c.topics(),
    "partitions_for": lambda c: c.partitions_for("t"),
    "statistics": lambda c: c.statistics(),
    "explain": lambda c: c.explain(),
    "high_watermark": lambda c: c.high_watermark(PARTITION),
    "seek": lambda c: c.seek(PARTITION, 3),
    "seek_to_committed": lambda c: c.seek_to_committed(),
    "seek_to_beginning": lambda c: c.seek_to_beginning(PARTITION),
    "seek_to_end": lambda c: c.seek_to_end(PARTITION),
    "seek_to_time": lambda c: c.seek_to_time(0.0),
    "seek back": lambda c: c.seek(PARTITION, 3),
}


async def handle(_: object) -> None: ...


READS_ON: Final[dict[str, Call]] = {
    "poll": lambda c: c.poll(),
    "poll_batches": lambda c: c.poll_batches(),
    "__aiter__": lambda c: c.__aiter__(),
    "__anext__": lambda c: c.__anext__(),
    "process": lambda c: c.process(handle, concurrency=1),
    "partition_streams": lambda c: c.partition_streams(),
    "subscribe": lambda c: c.subscribe(["u"]),
    "unsubscribe": lambda c: c.unsubscribe(),
    "assign": lambda c: c.assign([]),
    "rewind": lambda c: c.rewind({PARTITION: 0}),
}

GROUPS: Final[dict[str, dict[str, Any]]] = {
    "eager": {"partition_assignment_strategy": ["range"]},
    "cooperative": {"partition_assignment_strategy": ["cooperative-sticky"]},
    "consumer": {"group_protocol": "consumer"},
}


class Calls:
    """Makes every call of a consumer, once, while it is being stopped, and collects errors."""

    def __init__(self, consumer: Consumer, producer: Producer) -> None:
        self._consumer = consumer
        self._producer = producer
        self.position = -1
        self.errors: dict[str, str] = {}
        self.made = False

    async def make(self) -> None:
        assert self._consumer.health().state == "stopping"
        self.made = True
        self.position = await self._consumer.position(PARTITION)
        for name, call in ALLOWED.items():
            try:
                await result_of(call(self._consumer))
            except Exception as error:  # noqa: BLE001  # the test shows all of them
                self.errors[name] = repr(error)
        try:
            async with self._producer.transaction() as txn:
                await txn.commit_offsets({PARTITION: 3}, self._consumer.group_metadata())
            async with self._producer.transaction() as txn:
                await txn.enqueue("out", b"v")
                await txn.commit_offsets(self._consumer)
        except KafkaError as error:
            self.errors["commit_offsets"] = repr(error)
        for name, call in READS_ON.items():
            try:
                await result_of(call(self._consumer))
            except ClientClosedError:
                continue
            except Exception as error:  # noqa: BLE001  # the test shows all of them
                self.errors[name] = repr(error)
            else:
                self.errors[name] = "no error"


async def result_of(result: Any) -> None:
    if inspect.isawaitable(result):
        await result


@asynccontextmanager
async def started(stage: Stage, kind: str) -> AsyncGenerator[tuple[Consumer, Calls]]:
    await stage.topic("t", 1, records=3)
    await stage.topic("out", 1)
    async with (
        stage.producer(transactional_id="x") as producer,
        stage.consumer("t", **GROUPS[kind]) as consumer,
    ):
        calls = Calls(consumer, producer)
        yield consumer, calls
    assert calls.errors == {}
    assert calls.position == 3


ALWAYS: Final = {"health", "last_stable_offset", "on_assigned", "on_lost", "on_revoked"} | {
    "start",
    "stop",
    "subscription",
}
"""Methods that do not depend on the partitions."""


def test_every_method_of_a_consumer_is_called() -> None:
    called = {name.split()[0] for name in ALLOWED}
    assert called | ALWAYS | READS_ON.keys() == TABLE["Consumer"].keys()
    assert READS_ON.keys() == lifecycle.READS_ON


LOCAL: Final = {"assignment", "paused", "statistics", "high_watermark"}
"""Calls that only read what the consumer has in memory, at any time."""


@pytest.mark.parametrize("in_task", [False, True], ids=["listener", "task of the listener"])
@pytest.mark.parametrize("kind", GROUPS)
@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_listener_makes_every_call_while_the_consumer_closes(
    stage: Stage, kind: str, in_task: bool
) -> None:
    async with started(stage, kind) as (consumer, calls):

        @consumer.on_revoked
        async def _(_: Collection[TopicPartition]) -> None:
            await (asyncio.create_task(calls.make()) if in_task else calls.make())

        assert len(await consumer.poll(timeout=10)) == 3
        await consumer.stop()
        for name, call in {**ALLOWED, **READS_ON}.items():
            if name not in LOCAL:
                with pytest.raises(ClientClosedError):
                    await result_of(call(consumer))


@pytest.mark.parametrize("kind", GROUPS)
@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_draining_handler_makes_every_call(stage: Stage, kind: str) -> None:
    async with started(stage, kind) as (consumer, calls):
        running = asyncio.Event()

        async def work(_: object) -> None:
            if running.is_set():
                return
            running.set()
            while consumer.health().state == "running":  # noqa: ASYNC110  # virtual time
                await asyncio.sleep(0.1)
            await calls.make()

        processing = asyncio.create_task(consumer.process(work, concurrency=1))
        await running.wait()
        await consumer.stop()
        await processing


@pytest.mark.parametrize("kind", GROUPS)
@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_draining_task_of_a_stream_makes_every_call(stage: Stage, kind: str) -> None:
    async with started(stage, kind) as (consumer, calls):
        running = asyncio.Event()

        async def work(stream: PartitionStream[Any, Any]) -> None:
            async for _ in stream:
                running.set()
            await calls.make()

        async def run() -> None:
            async with consumer.partition_streams() as streams:
                async for stream in streams:
                    stream.start_soon(work, stream)

        streaming = asyncio.create_task(run())
        await running.wait()
        await consumer.stop()
        await streaming
