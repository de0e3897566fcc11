"""A worker that transforms each record exactly once; SIGTERM ends it between two commits.

    python examples/exactly_once.py localhost:9092 orders invoices invoicing-1

Records of the first topic are JSON documents such as {"id": 1, "price": 2, "count": 3}. Start
several workers with a different last argument each, their transactional id: the group divides the
partitions among them. Readers of the invoices need isolation_level="read_committed".
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import TYPE_CHECKING

from kafka_async import Consumer, Producer, run
from kafka_async.app import transactional

if TYPE_CHECKING:
    from kafka_async import Record, Transaction


async def main(bootstrap: str, source: str, target: str, transactional_id: str) -> None:
    """Work until SIGTERM or Ctrl-C; a transaction that is open then is aborted."""

    async def invoice(records: list[Record], txn: Transaction) -> None:
        for record in records:
            order = json.loads(record.value or b"{}")
            total = {"order": order["id"], "total": order["price"] * order["count"]}
            await txn.enqueue(target, json.dumps(total).encode(), key=record.key)

    def make_producer() -> Producer:
        return Producer(bootstrap, transactional_id=transactional_id)

    async with Consumer(
        bootstrap,
        topics=[source],
        group_id="invoicing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    ) as consumer:
        work = asyncio.ensure_future(
            transactional(invoice, consumer=consumer, producer_factory=make_producer)
        )
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, work.cancel)
        await asyncio.wait([work])
        if not work.cancelled():
            work.result()  # raises the error that ended it
    print("ended")


if __name__ == "__main__":
    run(main(*sys.argv[1:5]))
