"""Exactly-once workers during rebalances, and while a coordinator is stopped."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import Admin, Consumer, Producer
from kafka_async.app import transactional
from kafka_async.client.client import Client, services_of
from kafka_async.client.metadata.coordinator_lookup import CoordinatorKind
from kafka_async.hooks import Hooks, TransactionEnded
from tests.docs.markdown_blocks import ROOT, blocks_of
from tests.integration.helpers import create_topic, read_values

if TYPE_CHECKING:
    from kafka_async import Record, Transaction
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [pytest.mark.asyncio, pytest.mark.any_broker]

PARTITIONS = 12
LINES = 6_000
PER_TRANSACTION = 5
PAGE = ROOT / "docs" / "transactions.md"


class Worker:
    """Copies lines in transactions, and counts aborts, new producers and generations."""

    def __init__(self, cluster: ClusterHandle, number: int, **options: Any) -> None:
        self.aborts = 0
        self.producers = 0
        self.generations: set[int] = set()
        self.copied = 0
        self._in_transaction = 0
        self._servers = cluster.bootstrap_servers
        self._source, self._target = options.pop("source"), options.pop("target")
        self._id = f"{options['group_id']}-{number}"
        self._options = options

    async def run(self) -> None:
        async with Consumer(self._servers, topics=[self._source], **self._options) as consumer:
            consumer.on_assigned(
                lambda _: self.generations.add(consumer.group_metadata().generation_id)
            )
            await transactional(self._copy, consumer=consumer, producer_factory=self._make_producer)

    def _make_producer(self) -> Producer:
        self.producers += 1
        hooks = Hooks()
        hooks.listen(TransactionEnded, self._on_ended)
        return Producer(self._servers, transactional_id=self._id, hooks=hooks)

    def _on_ended(self, event: TransactionEnded) -> None:
        if event.committed:
            self.copied += self._in_transaction
        else:
            self.aborts += 1

    async def _copy(self, records: list[Record], txn: Transaction) -> None:
        self._in_transaction = len(records)
        for record in records:
            await txn.enqueue(self._target, record.value)


async def committed_lines(cluster: ClusterHandle, group: str) -> int:
    """Return the number of lines before the offsets that a group has committed."""
    async with Admin(cluster.bootstrap_servers) as admin:
        return sum(row.offset for row in (await admin.list_group_offsets(group)).values())


@pytest.mark.slow  # Takes a minute on Apache Kafka.
@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param("cooperative-sticky", marks=pytest.mark.one_backend("apache")),
        pytest.param("range", marks=pytest.mark.one_backend("embedded")),
    ],
)
async def test_each_rebalance_aborts_at_most_one_transaction_per_worker(
    kafka_cluster: ClusterHandle, strategy: str
) -> None:
    source = await create_topic(kafka_cluster, "lines", PARTITIONS)
    target = await create_topic(kafka_cluster, "copies")
    async with Producer(kafka_cluster.bootstrap_servers) as producer:
        await producer.send_many(source, [b"%d" % number for number in range(LINES)])
    options: dict[str, Any] = {
        "source": source,
        "target": target,
        "group_id": kafka_cluster.group(),
        "partition_assignment_strategy": [strategy],
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "isolation_level": "read_committed",
        "max_poll_records": PER_TRANSACTION,
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 100,
    }
    workers: list[Worker] = []
    tasks: list[asyncio.Task[None]] = []

    def add() -> None:
        worker = Worker(kafka_cluster, len(workers), **options)
        workers.append(worker)
        tasks.append(asyncio.create_task(worker.run()))

    async def copied(count: int) -> None:
        while sum(worker.copied for worker in workers) < count:
            for task in tasks:
                if task.done() and not task.cancelled():
                    task.result()
            await asyncio.sleep(0.02)

    async with asyncio.timeout(180):
        add()
        for step in range(1, 6):  # Each step adds a member while the others work.
            await copied(LINES * step // 10)
            add()
        for step in range(6, 10):  # Each step removes a member.
            await copied(LINES * step // 10)
            tasks[step - 6].cancel()
            await asyncio.wait([tasks[step - 6]])
        # Checks the group's offsets, since a worker cancelled during a commit has not counted it.
        while await committed_lines(kafka_cluster, options["group_id"]) < LINES:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for worker in workers:
        assert worker.producers == 1
        assert worker.aborts <= len(worker.generations)
    counts = Counter(await read_values(kafka_cluster, target))
    assert set(counts.values()) == {1}
    assert len(counts) == LINES


# -- the example of docs/transactions.md -----------------------------------------------------------


def documented_worker(servers: str, lines: str, counts: str, id_: str) -> dict[str, Any]:
    """Execute the page's example for these topics without `main()`, and return its names."""
    block = next(one for one in blocks_of(PAGE) if "count_words" in one.body)
    program = block.program(servers).replace("kafka_async.run(main())", "")
    for name, actual in (("word-counts", counts), ("lines", lines), ("word-count", id_)):
        program = program.replace(f'"{name}"', f'"{actual}"')
    names: dict[str, Any] = {}
    exec(compile(program, str(PAGE), "exec"), names)
    return names


async def counted(cluster: ClusterHandle, topic: str) -> int:
    return sum(int(record.value or b"0") for record in await cluster.read(topic))


async def until_counted(
    cluster: ClusterHandle, topic: str, total: int, worker: asyncio.Task[None]
) -> None:
    async with asyncio.timeout(120):
        while (found := await counted(cluster, topic)) < total:
            if worker.done():
                worker.result()
            await asyncio.sleep(0.2)
    assert found == total


async def test_documented_worker_survives_a_stopped_coordinator(
    kafka_cluster: ClusterHandle,
) -> None:
    """Fences the worker, and stops its transaction coordinator while the worker restarts."""
    lines = await create_topic(kafka_cluster, "lines")
    counts = await create_topic(kafka_cluster, "counts")
    group = kafka_cluster.group()
    id_ = f"{group}-1"
    servers = kafka_cluster.bootstrap_servers
    names = documented_worker(servers, lines, counts, group)
    producers: list[Producer] = []

    def make_producer() -> Producer:
        producers.append(Producer(servers, transactional_id=id_, max_block_ms=2_000))
        return producers[-1]

    names["make_producer"] = make_producer
    worker = asyncio.create_task(names["work"]())
    control = kafka_cluster.control

    try:
        async with Producer(servers) as producer:
            await producer.send_many(lines, [b"to be or not to be"] * 300)
            await until_counted(kafka_cluster, counts, 1_800, worker)
            async with Client(servers) as client:
                away = await services_of(client).coordinators.find(
                    CoordinatorKind.TRANSACTION, id_, timeout=30
                )
            async with Producer(servers, transactional_id=id_):
                pass  # Fences the worker.
            await asyncio.to_thread(control.stop_broker, away)
            before = len(producers)
            try:
                await producer.send_many(lines, [b"to be or not to be"] * 300)
                await producer.flush()
                async with asyncio.timeout(60):  # Until it has two new producers or has finished.
                    while (  # noqa: ASYNC110  # There is no event.
                        len(producers) < before + 2 and await counted(kafka_cluster, counts) < 3_600
                    ):
                        await asyncio.sleep(0.2)
            finally:
                await asyncio.to_thread(control.start_broker, away)
            await until_counted(kafka_cluster, counts, 3_600, worker)
    finally:
        worker.cancel()
        await asyncio.wait([worker])
    assert worker.cancelled()
    assert len(producers) > 1
