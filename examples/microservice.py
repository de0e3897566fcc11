"""A streaming microservice: it consumes, transforms and produces; SIGTERM drains and commits.

    python examples/microservice.py localhost:9092 orders invoices

Records of the first topic are JSON documents such as {"id": 1, "price": 2, "count": 3}.
Delivery is at least once: offsets are committed after the produced records are acknowledged. For
exactly once, see the documentation of transactions.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys

from kafka_async import Consumer, Producer, run


def transform(order: bytes) -> bytes:
    """Convert an order to an invoice."""
    data = json.loads(order)
    return json.dumps({"order": data["id"], "total": data["price"] * data["count"]}).encode()


async def serve(consumer: Consumer, producer: Producer, target: str, stop: asyncio.Event) -> None:
    """Process records until `stop` is set; commit each poll's records after the acknowledgement."""
    while not stop.is_set():
        for record in await consumer.poll(timeout=0.5):
            await producer.enqueue(target, transform(record.value or b"{}"), key=record.key)
        await producer.flush()
        await consumer.commit()


async def main(bootstrap: str, source: str, target: str) -> None:
    """Serve until SIGTERM or Ctrl-C, then leave the group."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    async with (
        Producer(bootstrap) as producer,
        Consumer(
            bootstrap,
            topics=[source],
            group_id="invoicing",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
    ):
        await serve(consumer, producer, target, stop)
    print("drained")


if __name__ == "__main__":
    run(main(*sys.argv[1:4]))
