"""Sums the values of each key in SQLite, which also has the offsets: each record counts once.

    python examples/own_offsets.py localhost:9092 payments sums.sqlite one

A sum and the offset after its last record are written in one transaction of the database. After a
crash, and after a rebalance, a partition continues at the offset in the database, which no record
is missing from and none is in twice. Start it several times, each with another name, and the
partitions are divided among the processes; one whose partition has moved while it was frozen writes
nothing. A process that is restarted under its name continues at once.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Collection, Iterable
from itertools import groupby
from typing import TYPE_CHECKING

from kafka_async import Consumer, TopicPartition, run

if TYPE_CHECKING:
    from kafka_async import Record

SCHEMA = """
CREATE TABLE IF NOT EXISTS sums (key BLOB PRIMARY KEY, total INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS offsets (
    topic TEXT, part INTEGER, next INTEGER NOT NULL, PRIMARY KEY (topic, part)
);
"""


class Store:
    """Keeps sums and offsets. Its methods block, so they are called in threads."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, timeout=30, check_same_thread=False)
        self._database.executescript(SCHEMA)

    def offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset at which each partition continues; 0 for a new one."""
        with self._database:
            self._database.executemany("INSERT OR IGNORE INTO offsets VALUES (?, ?, 0)", partitions)
            rows = self._database.execute("SELECT topic, part, next FROM offsets").fetchall()
        found = {TopicPartition(topic, part): offset for topic, part, offset in rows}
        return {partition: found[partition] for partition in partitions}

    def add(self, partition: TopicPartition, start: int, records: list[Record]) -> bool:
        """Add records that begin at `start`; False if the partition is not at that offset."""
        with self._database:  # one transaction: the sums and the offset, or nothing
            moved = self._database.execute(
                "UPDATE offsets SET next = ? WHERE topic = ? AND part = ? AND next = ?",
                (records[-1].offset + 1, *partition, start),
            )
            if moved.rowcount == 0:
                return False
            self._database.executemany(
                "INSERT INTO sums VALUES (?, ?) "
                "ON CONFLICT (key) DO UPDATE SET total = total + excluded.total",
                [(record.key, int(record.value or b"0")) for record in records],
            )
        return True


async def main(servers: str, topic: str, path: str, name: str) -> None:
    """Add records to the sums until the process ends."""
    store = await asyncio.to_thread(Store, path)
    positions: dict[TopicPartition, int] = {}  # as the database has them
    group = f"sums of {topic}"
    consumer = Consumer(servers, topics=[topic], group_id=group, group_instance_id=name)

    async def seek(partitions: Collection[TopicPartition]) -> None:
        for partition, offset in (await asyncio.to_thread(store.offsets, partitions)).items():
            positions[partition] = offset
            consumer.seek(partition, offset)

    consumer.on_assigned(seek)
    async with consumer:
        while True:
            records = await consumer.poll()
            for place, rows in groupby(records, lambda r: (r.topic, r.partition)):
                partition, batch = TopicPartition(*place), list(rows)
                if await asyncio.to_thread(store.add, partition, positions[partition], batch):
                    positions[partition] = batch[-1].offset + 1
                elif partition in consumer.assignment():  # another process was faster
                    await seek([partition])
            print(sum(positions.values()), flush=True)


if __name__ == "__main__":
    run(main(*sys.argv[1:]))
