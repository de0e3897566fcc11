"""The programs in examples/."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from kafka_async import Admin, Producer, TopicPartition
from tests.integration.helpers import create_topic
from tests.programs import python_path

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kafka_async.spark.orchestrator import JobContext
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = pytest.mark.asyncio

ROOT = Path(__file__).parents[2]
CANCELLED_REQUESTS = 50


async def cancel_after(iterations: int, request: Coroutine[Any, Any, httpx.Response]) -> None:
    """Cancel an HTTP request after a number of event loop iterations."""
    caller = asyncio.create_task(request)
    for _ in range(iterations):
        await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait({caller})


async def test_web_service_stores_concurrent_clicks_and_survives_cancelled_requests(
    kafka_cluster: ClusterHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    from examples import web_service

    topic = await create_topic(kafka_cluster, "clicks")
    monkeypatch.setattr(web_service, "TOPIC", topic)
    monkeypatch.setenv("KAFKA_BOOTSTRAP", kafka_cluster.bootstrap_servers)
    app = web_service.app
    transport = httpx.ASGITransport(app)
    async with (
        web_service.lifespan(app),
        httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60) as browser,
    ):
        for iterations in range(CANCELLED_REQUESTS):
            await cancel_after(iterations, browser.post("/clicks", content=b"cancelled"))
        responses = await asyncio.gather(
            *(browser.post("/clicks", content=str(n).encode()) for n in range(1000))
        )
        too_large = await browser.post("/clicks", content=bytes(2 << 20))
    assert too_large.status_code == 413
    assert "max_request_size" in too_large.json()["error"]
    assert {response.status_code for response in responses} == {200}
    offsets = {response.json()["offset"] for response in responses}
    assert len(offsets) == 1000
    values = [record.value for record in await kafka_cluster.read(topic)]
    assert sorted(value or b"" for value in values if value != b"cancelled") == sorted(
        str(n).encode() for n in range(1000)
    )
    # The record of a request that was cancelled late is written.
    assert 0 < values.count(b"cancelled") <= CANCELLED_REQUESTS


async def start_example(
    name: str, *arguments: str, stderr: int | None = None
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, str(ROOT / "examples" / name), *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, "PYTHONPATH": python_path(), "PYSPARK_PYTHON": sys.executable},
    )


@pytest.mark.parametrize(
    ("program", "last_line"),
    [(["microservice.py"], b"drained\n"), (["exactly_once.py", "invoicing-1"], b"ended\n")],
)
async def test_worker_makes_invoices_until_sigterm(
    kafka_cluster: ClusterHandle, program: list[str], last_line: bytes
) -> None:
    source = await create_topic(kafka_cluster, "orders")
    target = await create_topic(kafka_cluster, "invoices")
    bootstrap = kafka_cluster.bootstrap_servers
    async with Producer(bootstrap) as producer:
        for number in range(100):
            order = {"id": number, "price": 2, "count": number}
            await producer.enqueue(source, json.dumps(order).encode())
    name, *arguments = program
    process = await start_example(name, bootstrap, source, target, *arguments)
    async with asyncio.timeout(30):
        while len(invoices := await kafka_cluster.read(target)) < 100:
            pass
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(30):
        output, _ = await process.communicate()
    assert process.returncode == 0
    assert output == last_line
    assert [json.loads(invoice.value or b"") for invoice in invoices] == [
        {"order": number, "total": 2 * number} for number in range(100)
    ]
    async with Admin(bootstrap) as admin:
        committed = await admin.list_group_offsets("invoicing")
    assert committed[TopicPartition(source, 0)].offset == 100


async def test_spark_driver_waits_for_new_records_without_blocking_the_event_loop(
    kafka_cluster: ClusterHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    from examples import spark_driver

    topic = await create_topic(kafka_cluster, "clicks")
    bootstrap = kafka_cluster.bootstrap_servers
    job_started, job_may_end = threading.Semaphore(0), threading.Semaphore(0)
    ranges: list[tuple[int, int]] = []

    def job(context: JobContext) -> int:
        (part,) = context.ranges
        ranges.append((part.start, part.end))
        job_started.release()
        assert job_may_end.acquire(timeout=30), "the event loop was blocked while the job ran"
        return part.end

    monkeypatch.setattr(spark_driver, "count_values", job)
    async with Producer(bootstrap) as producer:
        driving = asyncio.create_task(spark_driver.drive(None, bootstrap, topic, batch=10, jobs=2))
        for _ in range(2):
            await producer.send_many(topic, [b"v"] * 10)
            await producer.flush()
            assert await asyncio.to_thread(job_started.acquire, timeout=30)
            await producer.send(topic, b"while the job runs")
            job_may_end.release()
        assert await driving == [end for _, end in ranges]
    (first, middle), (then, last) = ranges
    assert (first, then) == (0, middle)
    assert middle >= 10
    assert last >= middle + 10


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.may_block(reason="Spark starts in this process")
@pytest.mark.one_backend("embedded")
async def test_spark_driver_runs_a_job_on_new_records(kafka_cluster: ClusterHandle) -> None:
    topic = await create_topic(kafka_cluster, "clicks", 2)
    bootstrap = kafka_cluster.bootstrap_servers
    async with Producer(bootstrap) as producer:
        for number in range(1000):
            await producer.enqueue(topic, str(number % 10).encode())
    process = await start_example(
        "spark_driver.py", bootstrap, topic, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(240):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0
    assert b"job 1: 10 distinct values" in output
