"""A worker that copies records in transactions, partition by partition, until it is killed.

`python -m tests.reliability.transactions.worker JSON`
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_async import Consumer, Producer, run
from kafka_async.app import transactional

if TYPE_CHECKING:
    from kafka_async import Record, Transaction


@dataclass(frozen=True)
class WorkerOptions:
    """Options of a worker; the transactional id is its own, and the same after a kill."""

    servers: str
    source: str
    target: str
    group_id: str
    transactional_id: str
    records_per_transaction: int


async def work(options: WorkerOptions) -> None:
    """Copy each record to the partition of its number, with its place as the key."""

    async def copy(records: list[Record], txn: Transaction) -> None:
        for record in records:
            await txn.enqueue(
                options.target,
                record.value,
                key=f"{record.partition}:{record.offset}".encode(),
                partition=record.partition,
            )

    def make_producer() -> Producer:
        return Producer(
            options.servers,
            transactional_id=options.transactional_id,
            transaction_timeout_ms=10_000,
            linger_ms=0,
        )

    async with Consumer(
        options.servers,
        topics=[options.source],
        group_id=options.group_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=1_000,
        max_poll_records=options.records_per_transaction,
    ) as consumer:
        await transactional(copy, consumer=consumer, producer_factory=make_producer)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(message)s")
    run(work(WorkerOptions(**json.loads(sys.argv[1]))))
