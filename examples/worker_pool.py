"""Divides named resources among processes, each of which works on its part.

    python examples/worker_pool.py localhost:9092 indexers a b c d

Start it several times: the resources are divided anew, and those of a process that is killed are
worked on by the others within 7 s, the session time-out plus a heartbeat interval.
"""

from __future__ import annotations

import asyncio
import sys

from kafka_async import run
from kafka_async.app import WorkerPool


async def work(resource: str) -> None:
    """Work on a resource, until it is cancelled."""
    print("started", resource, flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        print("stopped", resource, flush=True)


async def main(servers: str, group_id: str, *resources: str) -> None:
    """Work on a part of the resources."""
    async with WorkerPool(
        servers,
        group_id=group_id,
        resources=resources,
        worker=work,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=1_000,
    ) as pool:
        await pool.wait()


if __name__ == "__main__":
    run(main(*sys.argv[1:]))
