"""Measures the time from a control message to the start of its job, on one broker.

    python -m benchmarks.control_latency --backend apache --spark

The clock starts before the message is sent. It stops in the job's thread, after the job's tags are
set in Spark. The message's transaction, which makes the job durable, is part of the time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from kafka_async import Producer
from kafka_async.spark import Orchestrator
from kafka_async.testing.backends import create_backend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafka_async.spark.orchestrator import JobContext

WARM_UP: Final = 20
GOALS_MS: Final = {"p50": 20.0, "p99": 100.0}


async def measure(servers: str, count: int, spark: Any, pause: float) -> list[float]:
    """Return the milliseconds between sending each of `count` messages and the job's start."""
    loop = asyncio.get_running_loop()
    orchestrator = Orchestrator(servers, spark, name="latency")
    started: asyncio.Queue[float] = asyncio.Queue()

    @orchestrator.job
    def note(context: JobContext) -> None:  # pyright: ignore[reportUnusedFunction]
        loop.call_soon_threadsafe(started.put_nowait, time.perf_counter())

    times: list[float] = []
    async with orchestrator, Producer(servers, linger_ms=0) as producer:
        await orchestrator.wait_active(60)
        for number in range(WARM_UP + count):
            message = {"type": "run", "id": f"{number}", "job": "note"}
            begun = time.perf_counter()
            await producer.send("latency-control", json.dumps(message).encode())
            async with asyncio.timeout(30):
                times.append((await started.get() - begun) * 1000)
            await asyncio.sleep(pause)  # the job's own transactions end
    return times[WARM_UP:]


def session() -> Any:
    """Return a local Spark session."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder
    options = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder.master("local[2]").getOrCreate()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print p50 and p99 in ms; return 1 if they miss the goals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="apache")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--pause", type=float, default=0.3, help="seconds between messages")
    parser.add_argument("--spark", action="store_true", help="set tags in a Spark session")
    options = parser.parse_args(arguments)
    spark = session() if options.spark else None
    with create_backend(options.backend, {"brokers": 1}) as cluster:
        servers = cluster.bootstrap_servers
        times = asyncio.run(measure(servers, options.count, spark, options.pause))
    if spark is not None:
        spark.stop()
    cuts = statistics.quantiles(times, n=100)
    figures = {"p50": cuts[49], "p99": cuts[98]}
    missed = False
    for name, figure in figures.items():
        missed |= figure > GOALS_MS[name]
        print(f"{name} {figure:.1f} ms (goal {GOALS_MS[name]:g} ms)")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
