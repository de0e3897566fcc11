"""The example that keeps its offsets in a database, which is killed again and again."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_async import Producer
from tests.integration.helpers import create_topic

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_offsets.py"
RECORDS, KEYS = 3_000, 10


def next_offset(path: Path) -> int:
    """Return the sum of the offsets in the database; 0 before it exists."""
    if not path.exists():
        return 0
    with sqlite3.connect(path, timeout=30) as database:
        try:
            return database.execute("SELECT COALESCE(SUM(next), 0) FROM offsets").fetchone()[0]
        except sqlite3.OperationalError:  # the tables do not exist yet
            return 0


async def test_each_record_counts_once_when_the_process_is_killed(
    kafka_cluster: ClusterHandle, tmp_path: Path
) -> None:
    topic = await create_topic(kafka_cluster, "payments", 2)
    path, wanted = tmp_path / "sums.sqlite", Counter[bytes]()

    async def produce(count: int) -> None:
        for _ in range(count):
            key, value = b"%d" % random.randrange(KEYS), random.randrange(100)
            wanted[key] += value
            await producer.enqueue(topic, b"%d" % value, key)
        await producer.flush()

    async with Producer(kafka_cluster.bootstrap_servers) as producer, asyncio.timeout(60):
        for part in (1, 2):
            await produce(RECORDS // 2)
            process = await asyncio.create_subprocess_exec(
                *(
                    sys.executable,
                    str(EXAMPLE),
                    kafka_cluster.bootstrap_servers,
                    topic,
                    str(path),
                    "one",
                ),
                stdout=asyncio.subprocess.DEVNULL,
            )
            try:
                # The first one is killed while it works, the second one when all is done.
                enough = RECORDS if part == 2 else random.randint(1, RECORDS // 2)
                while await asyncio.to_thread(next_offset, path) < enough:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            finally:
                process.kill()
                await process.wait()
    with sqlite3.connect(path) as database:
        assert dict(database.execute("SELECT key, total FROM sums").fetchall()) == wanted
